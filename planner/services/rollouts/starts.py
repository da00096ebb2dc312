"""Starts of canaries, now or scheduled. A scheduled start is checked again when it is due."""

from __future__ import annotations

import datetime as dt

import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.errors import Conflict, Invalid, Refused
from planner.models import Fleet, GateEvaluation, Plan, Rollout
from planner.selectors.access import rights
from planner.selectors.monitoring.cool_down import cooling_down_until
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.fleets.policy import planned_steps
from planner.services.fleets.publishing import publish
from planner.services.gate.preload import Preloaded, with_preloaded
from planner.services.reviews.approvals import require_approved
from planner.services.rollouts.guards import (
    Passage,
    active_of,
    audit_facts,
    end,
    enter_step,
    refuse_ahead,
    refuse_open_review,
)

log = structlog.get_logger(__name__)

# Name of the acting part of the console when a scheduled start is due.
SCHEDULER = "scheduler"
# Approvals expire long before that.
FARTHEST = dt.timedelta(days=366)
# A scheduled start that fails for so long is cancelled.
LATEST = dt.timedelta(minutes=15)


def start_rollout(
    *,
    acting_user: User,
    plan: Plan,
    scheduled_for: dt.datetime | None = None,
    expected_version: int | None = None,
) -> Rollout:
    """Start the canary of an approved plan at the first weight, now or at a time.

    A scheduled canary carries no traffic until its time, and everything is checked again then.

    Parameters
    ----------
    acting_user, plan
        A user with the right to operate the fleet, and an approved plan.
    scheduled_for
        Time of the start with its time zone, at most 366 days ahead; None starts it now.
    expected_version
        Version of the plan that the caller has read; None skips the check.

    Returns
    -------
    Rollout
        The canary, or the scheduled rollout.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    StaleVersion
        When the plan has another version than the expected one.
    Invalid
        When the time has no time zone, is past or too far ahead; `field` is ``scheduled_for``.
    Conflict
        For Flat-LB, the active plan, or a plan whose approval is not valid; on a fleet with a freeze (open break-glass
        of the user passes it), a cool-down, a break-glass without review, or another canary or scheduled rollout.
    ArtifactLost
        When the table of the plan cannot be read.
    Busy
        When the active plan changes faster than its files can be read.
    """
    rights.require(acting_user, rights.OPERATE, plan.fleet)
    return with_preloaded(plan.pk, lambda stored: _start(acting_user, plan, scheduled_for, expected_version, stored))


def _start(
    acting_user: User, plan: Plan, scheduled_for: dt.datetime | None, expected_version: int | None, stored: Preloaded
) -> Rollout:
    fleet = lock(Fleet, plan.fleet_id)
    plan = lock(Plan, plan.pk, expected_version)
    rights.require_now(acting_user, rights.OPERATE, fleet)
    passage = Passage(acting_user, fleet)
    if scheduled_for is not None:
        _check_time(scheduled_for)
    evaluation = _startable(fleet, plan, passage, stored, at=scheduled_for)
    refuse_ahead(fleet)
    steps = planned_steps(fleet)
    rollout = Rollout.objects.create(
        fleet=fleet,
        plan=plan,
        state=Rollout.State.CANARY if scheduled_for is None else Rollout.State.SCHEDULED,
        weight=steps[0]["weight"],
        planned_steps=steps,
        incumbent_id=active_of(fleet).plan_id,
        evidence_digest=evaluation.evidence_digest,
        scheduled_for=scheduled_for,
        started_by=acting_user,
    )
    if scheduled_for is None:
        enter_step(rollout, acting_user)
        publish(fleet)
        after = {**audit_facts(rollout), "table_version": fleet.table_version}
    else:
        after = {**audit_facts(rollout), "scheduled_for": scheduled_for.isoformat()}
    record_event(
        "rollout.started" if scheduled_for is None else "rollout.scheduled",
        acting_user=acting_user,
        fleet=fleet,
        subject=rollout,
        after={**after, "steps": steps, **passage.marks},
        evidence_digest=evaluation.evidence_digest,
    )
    return rollout


def _startable(
    fleet: Fleet, plan: Plan, passage: Passage, stored: Preloaded, *, at: dt.datetime | None = None
) -> GateEvaluation:
    """Return the evaluation under which a locked plan of a locked fleet may start, now or `at` a time.

    Raises
    ------
    Conflict
        Naming the obstacle.
    """
    if plan.kind == Plan.Kind.FLAT:
        raise Conflict("Flat-LB has no canary; fall back instead")
    passage.not_frozen()
    until = cooling_down_until(fleet, at)
    if until is not None:
        raise Conflict(
            f"the monitor fell back; no canary starts on this fleet before {until:%Y-%m-%d %H:%M:%S} UTC",
            code="cooling-down",
        )
    refuse_open_review(fleet)
    if fleet.rollouts.filter(state=Rollout.State.ACTIVE, plan=plan).exists():
        raise Conflict(f"{plan} is active on this fleet already")
    return require_approved(plan, stored)


def _check_time(scheduled_for: dt.datetime) -> None:
    if timezone.is_naive(scheduled_for):
        raise Invalid("give the time with its time zone", field="scheduled_for")
    now = timezone.now()
    if scheduled_for <= now:
        raise Invalid(f"the time is in the past: it is {now:%Y-%m-%d %H:%M:%S} UTC now", field="scheduled_for")
    if scheduled_for > now + FARTHEST:
        raise Invalid("the time is more than a year ahead", field="scheduled_for")


@transaction.atomic
def reschedule_rollout(
    *, acting_user: User, rollout: Rollout, scheduled_for: dt.datetime, expected_version: int | None = None
) -> Rollout:
    """Reschedule a canary. It never starts at the earlier time.

    Parameters
    ----------
    acting_user, rollout
        A user with the right to operate the fleet, and a scheduled rollout.
    scheduled_for
        The new time with its time zone, in the future, at most 366 days ahead.
    expected_version
        Version of the rollout that the caller has read; None skips the check.

    Returns
    -------
    Rollout
        The rollout with the new time.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    StaleVersion
        When the rollout has another version than the expected one.
    Invalid
        When the time has no time zone, is past or too far ahead; `field` is ``scheduled_for``.
    Conflict
        When the rollout is not scheduled.
    """
    rights.require(acting_user, rights.OPERATE, rollout.fleet)
    fleet = lock(Fleet, rollout.fleet_id)
    rights.require_now(acting_user, rights.OPERATE, fleet)
    rollout = lock(Rollout, rollout.pk, expected_version)
    if rollout.state != Rollout.State.SCHEDULED:
        raise Conflict(f"the rollout is {rollout.get_state_display()}, not scheduled")
    _check_time(scheduled_for)
    assert rollout.scheduled_for is not None  # a database constraint of this state
    before = rollout.scheduled_for
    rollout.scheduled_for = scheduled_for
    rollout.bump("scheduled_for")
    record_event(
        "rollout.rescheduled",
        acting_user=acting_user,
        fleet=fleet,
        subject=rollout,
        before={"scheduled_for": before.isoformat()},
        after={"scheduled_for": scheduled_for.isoformat()},
        evidence_digest=rollout.evidence_digest,
    )
    return rollout


def fire_schedules(now: dt.datetime | None = None) -> list[Rollout]:
    """Start every canary whose time has come, or cancel it with the reason; return the rollouts that were handled.

    Each has its own transaction, and two runs at once start it once. A start that fails or crashes for a quarter of an
    hour is cancelled.
    """
    now = now or timezone.now()
    due = Rollout.objects.filter(state=Rollout.State.SCHEDULED, scheduled_for__lte=now).order_by("scheduled_for", "id")
    fired = []
    for rollout in list(due.only("id", "fleet_id", "plan_id", "scheduled_for")):
        try:
            done = _fire(rollout, now)
        except Exception:  # One fleet must not delay the others.
            log.exception("schedule_crashed", rollout=rollout.pk)
            continue
        if done is not None:
            fired.append(done)
    return fired


def _fire(rollout: Rollout, now: dt.datetime) -> Rollout | None:
    """Start one; None when it was rescheduled, cancelled or started meanwhile."""
    if _too_late(rollout, now):  # None of its columns is read: they may be the cause of the crash.
        with transaction.atomic():
            return _fire_locked(rollout, now, Preloaded())
    return with_preloaded(rollout.plan_id, lambda stored: _fire_locked(rollout, now, stored))


def _too_late(rollout: Rollout, now: dt.datetime) -> bool:
    return rollout.scheduled_for is not None and now - rollout.scheduled_for > LATEST


def _fire_locked(rollout: Rollout, now: dt.datetime, stored: Preloaded) -> Rollout | None:
    fleet, plan = lock(Fleet, rollout.fleet_id), lock(Plan, rollout.plan_id)
    rollout = lock(Rollout, rollout.pk)
    if rollout.state != Rollout.State.SCHEDULED or rollout.scheduled_for is None or rollout.scheduled_for > now:
        return None
    try:
        if _too_late(rollout, now):
            minutes = LATEST // dt.timedelta(minutes=1)
            raise Conflict(f"it is more than {minutes} minutes after its time; schedule it again", code="too-late")
        _scheduler_may_still(rollout, fleet)
        evaluation = _startable(fleet, plan, Passage(None, fleet), stored)
    except Refused as refusal:
        end(rollout, Rollout.State.ABORTED, f"could not start as scheduled: {refusal.message}")
        record_event(
            "rollout.schedule_refused",
            acting_user=None,
            system=SCHEDULER,
            fleet=fleet,
            subject=rollout,
            before={"state": "scheduled", "scheduled_for": rollout.scheduled_for.isoformat()},
            after={**audit_facts(rollout), "code": refusal.code},
            reason=refusal.message,
            evidence_digest=rollout.evidence_digest,
        )
        return rollout
    rollout.state = Rollout.State.CANARY
    rollout.planned_steps = planned_steps(fleet)
    rollout.weight = rollout.planned_steps[0]["weight"]
    rollout.incumbent_id = active_of(fleet).plan_id
    rollout.evidence_digest = evaluation.evidence_digest
    enter_step(rollout, rollout.started_by, "state", "planned_steps", "incumbent", "evidence_digest")
    publish(fleet)
    record_event(
        "rollout.started",
        acting_user=None,
        system=SCHEDULER,
        fleet=fleet,
        subject=rollout,
        before={"state": "scheduled", "scheduled_for": rollout.scheduled_for.isoformat()},
        after={
            **audit_facts(rollout),
            "table_version": fleet.table_version,
            "steps": rollout.planned_steps,
            "scheduled_by": str(rollout.started_by),
        },
        evidence_digest=evaluation.evidence_digest,
    )
    return rollout


def _scheduler_may_still(rollout: Rollout, fleet: Fleet) -> None:
    """Require that the user who scheduled it still has the right by role; break-glass does not count."""
    if rollout.started_by is None or not rights.by_role(rollout.started_by, rights.OPERATE, fleet):
        raise Conflict(
            f"{rollout.started_by}, who scheduled it, has lost the right to operate this fleet", code="no-right"
        )
