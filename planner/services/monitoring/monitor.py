"""The monitor: every minute it judges each fleet, and acts where the policy of the fleet says so.

For each fleet, under an advisory lock, so that only one monitor acts:

1. Telemetry since the last check is compared with the validated range of the active plan (`monitoring.drift`), and the
   check is stored. Silence and missing data are verdicts of their own: neither a breach nor a pass.
2. The fleet falls back when as many checks in a row are outside as its policy says. Silent and missing checks between
   them neither count nor reset; a check within the range resets. The row of the fleet is locked meanwhile.
3. The step of a canary is judged (`monitoring.canary_analysis`). A failed canary is aborted, and one that passed its
   watch time is advanced, each where the policy says so; never while telemetry is silent or outside the range.

The audit trail records its acts under the name `monitor`, and each start and end of a breach or of silence once.
"""

from __future__ import annotations

import datetime as dt

import structlog
from django.db import transaction
from django.utils import timezone

from planner.errors import Refused
from planner.models import DriftCheck, Fleet, Plan, Rollout, RolloutAnalysis
from planner.records import JsonObject
from planner.selectors.monitoring.cool_down import MONITOR
from planner.selectors.rollouts.queries import freeze_of, latest_analysis, what_holds
from planner.services.audit.events import record_event
from planner.services.base.locking import JUDGING_SPACE, MONITOR_SPACE, held, lock, wait_in_transaction
from planner.services.monitoring.canary_analysis import analyse_step
from planner.services.monitoring.drift import GRACE_S, Drift, judge
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.starts import fire_schedules
from planner.services.rollouts.steps import abort_rollout, advance_rollout

log = structlog.get_logger(__name__)

# Shortest time between two checks of the monitor, so that beat firing twice does not count one minute twice.
SHORTEST_GAP_S = 30.0

Verdict = DriftCheck.Verdict


def watch_all(now: dt.datetime | None = None) -> dict[str, int]:
    """Start scheduled canaries, then judge every fleet; return the number of checks by verdict."""
    fire_schedules(now)
    found: dict[str, int] = {}
    for fleet in Fleet.objects.order_by("pk"):
        try:
            check = watch_fleet(fleet, now=now)
        except Exception:  # One fleet must not hide the others from the monitor.
            log.exception("monitor_crashed", fleet=fleet.slug)
            found["crashed"] = found.get("crashed", 0) + 1
            continue
        if check is not None:
            found[check.verdict] = found.get(check.verdict, 0) + 1
    return found


def watch_fleet(fleet: Fleet, *, now: dt.datetime | None = None, by_hand: bool = False) -> DriftCheck | None:
    """Judge one fleet, and its canary; act as the policy of the fleet says.

    Parameters
    ----------
    fleet
        The fleet.
    now
        Time of the check; by default the present.
    by_hand
        A user asks for the check. It acts like any other, also right after another one, but does not count as a sign
        that the monitor runs.

    Returns
    -------
    DriftCheck or None
        The stored check. None when another monitor is active on the fleet or, without `by_hand`, when the monitor
        judged it less than 30 seconds ago.
    """
    with held(MONITOR_SPACE, fleet.pk) as mine:
        if not mine:
            return None
        now = now or timezone.now()
        if not by_hand and (last := newest_check(fleet, by_hand=False)) is not None and _just_now(last, now):
            return None
        check = _check(fleet, now, by_hand)
        _watch_canary(fleet, check, now)
        return check


def _just_now(last: DriftCheck, now: dt.datetime) -> bool:
    """Return whether the previous check covered telemetry of the same minute."""
    looked = last.created_at if last.window_end is None else last.window_end + dt.timedelta(seconds=GRACE_S)
    return (now - looked).total_seconds() < SHORTEST_GAP_S


def newest_check(fleet: Fleet, **kind: bool) -> DriftCheck | None:
    """Return the newest check of a fleet."""
    return DriftCheck.objects.filter(fleet=fleet, **kind).order_by("-id").first()


@transaction.atomic
def _check(fleet: Fleet, now: dt.datetime, by_hand: bool) -> DriftCheck:
    """Judge, store, and fall back if due, with the fleet locked so that the active plan stays the same."""
    # Before the row lock: reports that wait for this lock hold no lock that is needed here.
    wait_in_transaction(JUDGING_SPACE, fleet.pk)
    last = newest_check(fleet)
    fleet = lock(Fleet, fleet.pk)
    active = fleet.rollouts.select_related("plan", "fleet").get(state=Rollout.State.ACTIVE)
    drift = judge(fleet, active, last, now)
    in_a_row = _breaches_before(fleet, active) + 1 if drift.verdict == Verdict.OUT_OF_RANGE else 0
    check = DriftCheck.objects.create(
        fleet=fleet,
        rollout=active,
        plan=active.plan,
        verdict=drift.verdict,
        explanation=drift.explanation,
        simulated=drift.simulated,
        by_hand=by_hand,
        window_start=drift.since,
        window_end=drift.until,
        figures={**drift.figures, "breaches": list(drift.breaches), "breaches_in_a_row": in_a_row},
    )
    _say_what_changed(fleet, check, last, in_a_row)
    if in_a_row >= fleet.breaches_to_fall_back and fleet.auto_fall_back and active.plan.kind != Plan.Kind.FLAT:
        fall_back(acting_user=None, system=MONITOR, fleet=fleet, reason=_why(drift, in_a_row))
    return check


def _breaches_before(fleet: Fleet, active: Rollout) -> int:
    """Return the number of checks of this rollout in a row that were outside, ignoring silent and missing ones."""
    verdicts = (
        DriftCheck.objects.filter(fleet=fleet, rollout=active, verdict__in=[Verdict.OUT_OF_RANGE, Verdict.WITHIN])
        .order_by("-id")
        .values_list("verdict", flat=True)
    )
    count = 0
    for verdict in verdicts[: max(fleet.breaches_to_fall_back, 1_000)]:
        if verdict != Verdict.OUT_OF_RANGE:
            break
        count += 1
    return count


def _why(drift: Drift, in_a_row: int) -> str:
    checks = "check" if in_a_row == 1 else f"{in_a_row} checks in a row"
    return f"{checks} outside the validated range: {drift.explanation}"


def _say_what_changed(fleet: Fleet, check: DriftCheck, last: DriftCheck | None, in_a_row: int) -> None:
    """Record the start or end of a breach, and of silence, once each."""
    was_silent = last is not None and last.verdict == Verdict.SILENT
    if check.verdict == Verdict.SILENT:
        # A fleet without any telemetry has not fallen silent.
        if last is not None and not was_silent:
            _event("fleet.telemetry_silent", fleet, check)
        return
    if was_silent:
        _event("fleet.telemetry_resumed", fleet, check)
    if in_a_row == 1:
        _event("fleet.out_of_range", fleet, check)
    elif check.verdict == Verdict.WITHIN and _breaches_ended(fleet, check):
        _event("fleet.back_in_range", fleet, check)


def _breaches_ended(fleet: Fleet, check: DriftCheck) -> bool:
    """Return whether the previous check of this rollout with a verdict on the range was outside."""
    before = DriftCheck.objects.filter(
        fleet=fleet, rollout=check.rollout_id, pk__lt=check.pk, verdict__in=[Verdict.OUT_OF_RANGE, Verdict.WITHIN]
    )
    return before.order_by("-id").values_list("verdict", flat=True).first() == Verdict.OUT_OF_RANGE


def _event(action: str, fleet: Fleet, check: DriftCheck) -> None:
    after: JsonObject = {"verdict": check.verdict, "check": check.pk, "simulated": check.simulated}
    if check.figures.get("breaches"):
        after["breaches"] = check.figures["breaches"]
    record_event(
        action,
        acting_user=None,
        system=MONITOR,
        fleet=fleet,
        subject=fleet,
        after=after,
        reason=check.explanation,
        evidence_digest=check.rollout.evidence_digest if check.rollout else "",
    )


def _watch_canary(fleet: Fleet, check: DriftCheck, now: dt.datetime) -> None:
    canary = fleet.rollouts.filter(state=Rollout.State.CANARY).first()
    if canary is None:
        return
    analyse_step(canary, now=now)
    # Read again: policy and rollout may have changed since the check.
    canary = Rollout.objects.select_related("fleet", "plan").get(pk=canary.pk)
    analysis = latest_analysis(canary) if canary.state == Rollout.State.CANARY else None
    if analysis is None:
        return
    try:
        if analysis.verdict == RolloutAnalysis.Verdict.FAIL and canary.fleet.auto_abort:
            abort_rollout(
                acting_user=None,
                system=MONITOR,
                rollout=canary,
                reason=f"step {analysis.step} failed: {analysis.explanation}",
                expected_version=canary.version,
            )
        elif _may_advance(canary, check, now):
            advance_rollout(acting_user=None, system=MONITOR, rollout=canary, expected_version=canary.version)
    except Refused as refusal:
        # A person was faster, or the approval is stale: the page shows it, and the next minute judges again.
        log.info("monitor_refused", rollout=canary.pk, code=refusal.code, reason=refusal.message)


def _may_advance(canary: Rollout, check: DriftCheck, now: dt.datetime) -> bool:
    """Return whether the policy advances canaries, nothing holds this one, and telemetry is present and within the
    range.
    """
    if not canary.fleet.auto_advance or check.verdict not in (Verdict.WITHIN, Verdict.MISSING):
        return False
    return not what_holds(canary, now=now) and freeze_of(canary.fleet) is None
