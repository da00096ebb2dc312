"""Steps of a canary: advance, promote, pause, resume, abort."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.errors import Conflict
from planner.models import Fleet, GateEvaluation, Plan, Rollout
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.selectors.rollouts.queries import next_weight, step_number
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.fleets.publishing import publish
from planner.services.gate.preload import Preloaded, with_preloaded
from planner.services.reviews.approvals import require_approved
from planner.services.rollouts.guards import Passage, active_of, audit_facts, end, enter_step, needed_reason


def _may(acting_user: User | None, rollout: Rollout) -> None:
    """Require the right of a person; the console acts by the policy of the fleet."""
    if acting_user is not None:
        rights.require(acting_user, rights.OPERATE, rollout.fleet)


def _locked(
    acting_user: User | None, rollout: Rollout, expected_version: int | None, *, with_plan: bool = False
) -> tuple[Fleet, Rollout]:
    """Lock fleet and rollout in that order, and between them the plan where its approval matters.

    The right is checked again under the lock: it may be lost, or break-glass expired, while waiting.
    """
    fleet = lock(Fleet, rollout.fleet_id)
    if acting_user is not None:
        rights.require_now(acting_user, rights.OPERATE, fleet)
    plan = lock(Plan, rollout.plan_id) if with_plan else None
    rollout = lock(Rollout, rollout.pk, expected_version)
    rollout.fleet = fleet
    if plan is not None:
        rollout.plan = plan
    return fleet, rollout


def _require_canary(rollout: Rollout) -> None:
    if rollout.state != Rollout.State.CANARY:
        raise Conflict(f"the rollout is {rollout.get_state_display()}, not in canary")


def advance_rollout(
    *,
    acting_user: User | None,
    rollout: Rollout,
    expected_version: int | None = None,
    system: str = "monitor",
) -> Rollout:
    """Advance the canary to its next weight.

    After the last step the plan becomes active and the earlier one ends. It is refused while the canary is paused,
    before the end of the step's watch time, and unless the latest analysis of the step passes. Open break-glass passes
    these guards and a freeze, which the audit event records. The approval must still be valid.

    Parameters
    ----------
    acting_user
        A user with the right to operate the fleet; None for the console itself, named by `system`.
    rollout
        A canary.
    expected_version
        Version of the rollout that the caller has read; None skips the check.
    system
        Name of the acting part of the console.

    Returns
    -------
    Rollout
        The canary in its next step, or the active rollout.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    StaleVersion
        When the rollout has another version than the expected one.
    Conflict
        When it is not in canary, frozen or held, or its approval is not valid.
    ArtifactLost
        When the table of the plan cannot be read.
    Busy
        When the active plan changes faster than its files can be read.
    """
    _may(acting_user, rollout)
    return with_preloaded(
        rollout.plan_id, lambda stored: _advance(acting_user, rollout, expected_version, system, stored)
    )


def _advance(
    acting_user: User | None, rollout: Rollout, expected_version: int | None, system: str, stored: Preloaded
) -> Rollout:
    fleet, rollout = _locked(acting_user, rollout, expected_version, with_plan=True)
    _require_canary(rollout)
    passage = Passage(acting_user, fleet)
    passage.not_frozen()
    evaluation = require_approved(rollout.plan, stored)
    passage.not_held(rollout)
    before, higher = _rollout_facts(rollout), next_weight(rollout)
    rollout.evidence_digest = evaluation.evidence_digest
    if higher is None:
        _activate(fleet, rollout, acting_user)
    else:
        rollout.weight = higher
        enter_step(rollout, acting_user, "evidence_digest")
    _published("rollout.advanced" if higher else "rollout.activated", fleet, rollout, evaluation,
               acting_user=acting_user, system=system, before=before, marks=passage.marks)  # fmt: skip
    return rollout


def promote_rollout(
    *, acting_user: User, rollout: Rollout, reason: str, expected_version: int | None = None
) -> Rollout:
    """Make the plan of a canary active now, without the rest of the watch time and the later steps.

    A freeze, a pause and an analysis that does not pass refuse it. Open break-glass passes these guards, which the
    audit event records.

    Parameters
    ----------
    acting_user, rollout
        A user with the right to operate the fleet, and a canary.
    reason
        Why it is promoted, 1 to 4,000 characters without outer blanks.
    expected_version
        Version of the rollout that the caller has read; None skips the check.

    Returns
    -------
    Rollout
        The active rollout.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    Invalid
        When the reason is blank or too long.
    StaleVersion
        When the rollout has another version than the expected one.
    Conflict
        When it is not in canary, frozen or held, or its approval is not valid.
    ArtifactLost
        When the table of the plan cannot be read.
    Busy
        When the active plan changes faster than its files can be read.
    """
    rights.require(acting_user, rights.OPERATE, rollout.fleet)
    reason = needed_reason(reason)
    return with_preloaded(
        rollout.plan_id, lambda stored: _promote(acting_user, rollout, reason, expected_version, stored)
    )


def _promote(
    acting_user: User, rollout: Rollout, reason: str, expected_version: int | None, stored: Preloaded
) -> Rollout:
    fleet, rollout = _locked(acting_user, rollout, expected_version, with_plan=True)
    _require_canary(rollout)
    passage = Passage(acting_user, fleet)
    passage.not_frozen()
    evaluation = require_approved(rollout.plan, stored)
    passage.not_held(rollout, but=("watching",))
    before = _rollout_facts(rollout)
    rollout.evidence_digest = evaluation.evidence_digest
    _activate(fleet, rollout, acting_user)
    _published("rollout.promoted", fleet, rollout, evaluation,
               acting_user=acting_user, before=before, marks=passage.marks, reason=reason)  # fmt: skip
    return rollout


def _rollout_facts(rollout: Rollout) -> JsonObject:
    return {**audit_facts(rollout), "step": step_number(rollout)}


def _activate(fleet: Fleet, rollout: Rollout, acting_user: User | None) -> None:
    """End the rollout that was active first: a fleet never has two."""
    end(active_of(fleet), Rollout.State.SUPERSEDED, f"superseded by {rollout.plan}")
    rollout.state, rollout.weight, rollout.activated_at = Rollout.State.ACTIVE, 1.0, timezone.now()
    rollout.paused_at, rollout.paused_by, rollout.pause_reason = None, None, ""
    enter_step(
        rollout, acting_user, "state", "activated_at", "evidence_digest", "paused_at", "paused_by", "pause_reason"
    )


def _published(
    action: str,
    fleet: Fleet,
    rollout: Rollout,
    evaluation: GateEvaluation,
    *,
    acting_user: User | None,
    before: JsonObject,
    marks: JsonObject,
    reason: str = "",
    system: str = "monitor",
) -> None:
    """Publish the change and record it."""
    publish(fleet)
    record_event(
        action,
        acting_user=acting_user,
        system=system,
        fleet=fleet,
        subject=rollout,
        before=before,
        after={**audit_facts(rollout), "table_version": fleet.table_version, **marks},
        reason=reason,
        evidence_digest=evaluation.evidence_digest,
    )


@transaction.atomic
def pause_rollout(
    *, acting_user: User, rollout: Rollout, reason: str = "", expected_version: int | None = None
) -> Rollout:
    """Keep a canary in its step until it is resumed. It keeps its keys and is still judged.

    Parameters
    ----------
    acting_user, rollout
        A user with the right to operate the fleet, and a canary.
    reason
        Optional; shown with the canary and in the audit trail.
    expected_version
        Version of the rollout that the caller has read; None skips the check.

    Returns
    -------
    Rollout
        The paused canary.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    StaleVersion
        When the rollout has another version than the expected one.
    Conflict
        When it is not in canary, or paused already.
    """
    rights.require(acting_user, rights.OPERATE, rollout.fleet)
    fleet, rollout = _locked(acting_user, rollout, expected_version)
    _require_canary(rollout)
    if rollout.paused_at is not None:
        raise Conflict(f"{rollout.paused_by} paused it already")
    rollout.paused_at, rollout.paused_by, rollout.pause_reason = timezone.now(), acting_user, reason
    rollout.bump("paused_at", "paused_by", "pause_reason")
    _written_down("rollout.paused", fleet, rollout, acting_user, {"paused": False}, {"paused": True}, reason)
    return rollout


@transaction.atomic
def resume_rollout(*, acting_user: User, rollout: Rollout, expected_version: int | None = None) -> Rollout:
    """Resume a paused canary. Resuming alone moves nothing.

    Parameters
    ----------
    acting_user, rollout
        A user with the right to operate the fleet, and a paused canary.
    expected_version
        Version of the rollout that the caller has read; None skips the check.

    Returns
    -------
    Rollout
        The canary.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    StaleVersion
        When the rollout has another version than the expected one.
    Conflict
        When it is not in canary, not paused, or frozen; open break-glass of the user passes the freeze.
    """
    rights.require(acting_user, rights.OPERATE, rollout.fleet)
    fleet, rollout = _locked(acting_user, rollout, expected_version)
    _require_canary(rollout)
    if rollout.paused_at is None:
        raise Conflict("the canary is not paused")
    passage = Passage(acting_user, fleet)
    passage.not_frozen()
    before = {"paused": True, "paused_by": str(rollout.paused_by)}
    rollout.paused_at, rollout.paused_by, rollout.pause_reason = None, None, ""
    rollout.bump("paused_at", "paused_by", "pause_reason")
    _written_down("rollout.resumed", fleet, rollout, acting_user, before, {"paused": False, **passage.marks})
    return rollout


def _written_down(
    action: str,
    fleet: Fleet,
    rollout: Rollout,
    acting_user: User,
    before: JsonObject,
    after: JsonObject,
    reason: str = "",
) -> None:
    record_event(
        action,
        acting_user=acting_user,
        fleet=fleet,
        subject=rollout,
        before={**audit_facts(rollout), **before},
        after={**audit_facts(rollout), **after},
        reason=reason,
        evidence_digest=rollout.evidence_digest,
    )


@transaction.atomic
def abort_rollout(
    *,
    acting_user: User | None,
    rollout: Rollout,
    reason: str = "",
    expected_version: int | None = None,
    system: str = "monitor",
) -> Rollout:
    """Abort a canary in any step, or cancel a schedule. The active plan stays active, and no freeze stops it.

    Parameters
    ----------
    acting_user
        A user with the right to operate the fleet; None for the console itself, named by `system`.
    rollout
        A canary or a scheduled rollout.
    reason
        Optional; kept with the rollout and in the audit trail.
    expected_version
        Version of the rollout that the caller has read; None skips the check.
    system
        Name of the acting part of the console.

    Returns
    -------
    Rollout
        The ended rollout. Only the end of a canary publishes a table.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    StaleVersion
        When the rollout has another version than the expected one.
    Conflict
        When the rollout is active or has ended.
    """
    _may(acting_user, rollout)
    fleet, rollout = _locked(acting_user, rollout, expected_version)
    if rollout.state == Rollout.State.ACTIVE:
        raise Conflict(
            f"{rollout.plan} is active and not in canary: roll back to an earlier plan, or fall back to Flat-LB",
            code="active",
        )
    if rollout.state not in Rollout.AHEAD:
        raise Conflict(f"the rollout is {rollout.get_state_display()} already")
    before, carried = audit_facts(rollout), rollout.state == Rollout.State.CANARY
    end(rollout, Rollout.State.ABORTED, reason or ("aborted" if carried else "called off"))
    after = audit_facts(rollout)
    if carried:
        publish(fleet)
        after["table_version"] = fleet.table_version
    record_event(
        "rollout.aborted",
        acting_user=acting_user,
        system=system,
        fleet=fleet,
        subject=rollout,
        before=before,
        after=after,
        reason=reason,
        evidence_digest=rollout.evidence_digest,
    )
    return rollout
