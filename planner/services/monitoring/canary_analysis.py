"""Canary analysis: the judgement of a canary's step on telemetry of both arms.

It reads windows of the canary's plan as `canary` and of the plan that it replaces as `incumbent`, that were reported
under a table version with the canary's present weight and began after the warm-up of the step. Windows are added up
over the step, so each judgement has more data; each is a look of its own (`planner.analysis.arms`). Of a step with
more than 2,000 windows of an arm the newest are read, of both arms over the same time, and the judgement states since
when.
Late windows count like others. Missing data holds a canary: an earlier pass does not outlive it.
"""

from __future__ import annotations

import datetime as dt

import structlog
from django.db import transaction
from django.utils import timezone

from planner.analysis.arms import Limits, judge
from planner.models import Fleet, Publication, Rollout, RolloutAnalysis
from planner.records import JsonObject
from planner.selectors.monitoring.cool_down import MONITOR
from planner.selectors.monitoring.queries import envelope_of
from planner.selectors.rollouts.queries import step_number
from planner.selectors.telemetry import traffic
from planner.selectors.telemetry.traffic import (
    Row,
    acceptable,
    arm_of,
    load_of,
    newest_end,
    one_kind,
    places_of,
    rows_of,
)
from planner.services.audit.events import record_event
from planner.services.base.locking import lock

log = structlog.get_logger(__name__)

Verdict = RolloutAnalysis.Verdict
ARMS = ("canary", "incumbent")


def analyse_step(rollout: Rollout, *, now: dt.datetime | None = None) -> RolloutAnalysis | None:
    """Judge the present step of a canary; return None when there is nothing new.

    1. Nothing is judged before the warm-up of the step ends and a window after it is reported.
    2. An arm without telemetry for the fleet's `telemetry_stale_s` makes the verdict `missing`, once.
    3. Otherwise windows that arrived since the last judgement cause a new one.
    4. A crash is the verdict `error`, never a pass: it is stored and logged.
    """
    now = now or timezone.now()
    rollout = Rollout.objects.select_related("fleet", "plan", "incumbent").get(pk=rollout.pk)
    if rollout.state != Rollout.State.CANARY or rollout.step_started_at is None:
        return None
    step = step_number(rollout)
    last = rollout.analyses.filter(step=step).order_by("-id").first()
    try:
        found = _judgement(rollout, step, last, now)
    except Exception as crash:
        log.exception("analysis_crashed", rollout=rollout.pk, step=step)
        found = {"verdict": Verdict.ERROR, "explanation": f"The analysis failed: {type(crash).__name__}: {crash}"}
        if last is not None and (last.verdict, last.explanation) == (found["verdict"], found["explanation"]):
            return None
    return None if found is None else _store(rollout, step, last, found)


def _judgement(rollout: Rollout, step: int, last: RolloutAnalysis | None, now: dt.datetime) -> JsonObject | None:
    fleet = rollout.fleet
    assert rollout.step_started_at is not None  # of a canary
    begins = rollout.step_started_at + dt.timedelta(seconds=fleet.canary_warmup_s)
    rows, cut = _rows(rollout, begins)
    if (silence := _silence(fleet, rows, begins, now)) is not None:
        if last is not None and last.verdict == Verdict.MISSING and last.numbers.get("silent"):
            return None
        return {"verdict": Verdict.MISSING, "explanation": silence, "numbers": {"silent": True}}
    newest = max((row["id"] for row in rows), default=None)
    if newest is None or (last is not None and last.numbers.get("newest_window") == newest):
        return None
    places = places_of(fleet)
    arms = [arm_of([row for row in rows if row["arm"] == arm], places) for arm in ARMS]
    envelope = envelope_of(rollout) or {}
    limits = Limits(
        p99_s=envelope.get("p99_limit_s", fleet.slo_p99_s),
        error_rate=envelope.get("max_error_rate", fleet.max_error_rate),
        imbalance=envelope.get("max_imbalance", fleet.max_imbalance),
        min_requests=fleet.canary_min_requests,
    )
    looks = rollout.analyses.filter(step=step, numbers__has_key="look").count()
    found = judge(arms[0], arms[1], limits, look=looks + 1, capacity=places.capacity)
    load, high = load_of(rows), envelope.get("load_high_rps")
    verdict, explanation = str(found.outcome), found.explanation
    if verdict == Verdict.PASS and high is not None and load.low > high:
        verdict = Verdict.INCONCLUSIVE
        explanation = f"{load.rps:.4g} requests/s are above the validated {high:g} requests/s. {explanation}"
    numbers = {**found.numbers, "load_rps": load.rps, "newest_window": newest, "windows": len(rows)}
    if cut is not None:
        numbers["read_since"] = cut.isoformat()
        explanation += f" It uses the newest windows of the step, since {cut:%Y-%m-%d %H:%M} UTC."
    return {
        "verdict": verdict,
        "explanation": explanation,
        "numbers": numbers,
        "simulated": any(row["simulated"] for row in rows),
        "window_start": min(row["started_at"] for row in rows),
        "window_end": max(row["ended_at"] for row in rows),
    }


def _rows(rollout: Rollout, begins: dt.datetime) -> tuple[list[Row], dt.datetime | None]:
    """Return windows of both arms in this step, of one kind, and since when, where more exist than are read.

    Both arms are compared over the same time: a cut of one cuts the other.
    """
    version = _first_version(rollout)
    if version is None:
        return [], None
    windows = acceptable(rollout.fleet).filter(started_at__gte=begins, table_version__gte=version)
    of_plan = {"canary": rollout.plan_id, "incumbent": rollout.incumbent_id}
    arms = [rows_of(windows.filter(arm=arm, plan=of_plan[arm])) for arm in ARMS]
    cut = max((rows[0]["ended_at"] for rows in arms if len(rows) >= traffic.MAX_WINDOWS), default=None)
    return one_kind([row for rows in arms for row in rows if cut is None or row["ended_at"] >= cut]), cut


def _first_version(rollout: Rollout) -> int | None:
    """Return the first table version with the present weight of the canary; weights only rise, so the versions are
    contiguous.
    """
    arm = {"rollout": rollout.pk, "weight": rollout.weight}
    published = Publication.objects.filter(fleet=rollout.fleet_id, arms__contains=[arm])
    return published.order_by("version").values_list("version", flat=True).first()


def _silence(fleet: Fleet, rows: list[Row], begins: dt.datetime, now: dt.datetime) -> str | None:
    """Return what has not reported for too long; None when both arms report."""
    stale = dt.timedelta(seconds=fleet.telemetry_stale_s)
    heard = {arm: max((row["ended_at"] for row in rows if row["arm"] == arm), default=begins) for arm in ARMS}
    silent = [arm for arm in ARMS if heard[arm] < now - stale]
    if not silent:
        return None
    whole = newest_end(acceptable(fleet))
    if whole is None:
        return "No router telemetry yet. Routers report to the telemetry endpoint of the fleet."
    if whole < now - stale:
        return f"The last telemetry is of {whole:%Y-%m-%d %H:%M:%S} UTC."
    words = " and ".join(f"the {arm} (since {heard[arm]:%H:%M:%S} UTC)" for arm in silent)
    return f"No telemetry of {words}, while the fleet reports: check that its routers use the published table."


@transaction.atomic
def _store(rollout: Rollout, step: int, last: RolloutAnalysis | None, found: JsonObject) -> RolloutAnalysis | None:
    """Store the judgement if the canary is still in the step; a changed verdict is an audit event."""
    locked = lock(Rollout, rollout.pk)
    if locked.state != Rollout.State.CANARY or step_number(locked) != step:
        return None
    analysis = RolloutAnalysis.objects.create(rollout=locked, step=step, **found)
    if last is None or last.verdict != analysis.verdict:
        record_event(
            "rollout.analysed",
            acting_user=None,
            system=MONITOR,
            fleet=rollout.fleet,
            subject=rollout,
            before={"verdict": last.verdict} if last is not None else {},
            after={"step": step, "verdict": analysis.verdict, "simulated": analysis.simulated},
            reason=analysis.explanation,
            evidence_digest=rollout.evidence_digest,
        )
    return analysis
