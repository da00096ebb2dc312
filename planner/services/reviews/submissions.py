"""Submit a plan for review, withdraw it, archive it."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from planner.errors import Conflict, NotAllowed
from planner.models import Plan, Rollout
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.states import lock_plan, move_plan
from planner.services.gate.evidence import waivers_in_force
from planner.services.gate.preload import Preloaded, with_preloaded
from planner.services.reviews.approvals import count_approvals
from planner.services.reviews.evidence_changes import current_evaluation


def submit_plan(*, acting_user: User, plan: Plan, expected_version: int | None = None) -> Plan:
    """Ask for a decision. Only a plan whose latest evaluation passed, with current evidence, can be submitted.

    An approved plan is submitted again when its approvals are for other evidence than the present.

    Parameters
    ----------
    acting_user, plan
        The submitter, and the plan.
    expected_version
        Version of the plan that the caller has read; None skips the check.

    Returns
    -------
    Plan
        The plan in review.

    Raises
    ------
    NotAllowed
        When the user lacks the right to plan, or granted a waiver of the plan that is in force.
    StaleVersion
        When the plan has another version than the expected one.
    Conflict
        When the latest evaluation is missing, not passed or stale, the plan is approved on this evidence already, or
        its state does not allow it.
    Busy
        When the active plan changes faster than its files can be read.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    return with_preloaded(plan.pk, lambda stored: _submit(acting_user, plan, expected_version, stored))


def _submit(acting_user: User, plan: Plan, expected_version: int | None, stored: Preloaded) -> Plan:
    plan = lock_plan(plan.pk, expected_version)
    rights.require_now(acting_user, rights.PLAN, plan.fleet)
    evaluation = current_evaluation(plan, stored)
    if plan.state == Plan.State.APPROVED and count_approvals(plan, evaluation) >= plan.fleet.min_approvals:
        raise Conflict(f"{plan} is already approved on this evidence")
    if acting_user.get_username() in {waiver.granted_by for waiver in waivers_in_force(plan)}:
        raise NotAllowed(
            "You granted a waiver of this plan, as its second person; somebody else must submit it.",
            code="second-person",
        )
    plan.submitted_by = acting_user
    move_plan(plan, Plan.State.IN_REVIEW, "submitted_by")
    record_event("plan.submitted", acting_user=acting_user, fleet=plan.fleet, subject=plan, after={"state": plan.state})
    return plan


@transaction.atomic
def withdraw_plan(*, acting_user: User, plan: Plan, expected_version: int | None = None) -> Plan:
    """Withdraw a plan from review.

    Parameters
    ----------
    acting_user, plan
        A user with the right to plan, and a plan in review.
    expected_version
        Version of the plan that the caller has read; None skips the check.

    Returns
    -------
    Plan
        The plan, in the state "replayed".

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    StaleVersion
        When the plan has another version than the expected one.
    Conflict
        When the plan is not in review.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    plan = lock_plan(plan.pk, expected_version)
    if plan.state != Plan.State.IN_REVIEW:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not in review")
    move_plan(plan, Plan.State.REPLAYED)
    record_event("plan.withdrawn", acting_user=acting_user, fleet=plan.fleet, subject=plan, after={"state": plan.state})
    return plan


@transaction.atomic
def retire_plan(*, acting_user: User, plan: Plan, reason: str = "", expected_version: int | None = None) -> Plan:
    """Archive a plan permanently: an approved one is retired, one that is not approved is cancelled.

    Parameters
    ----------
    acting_user, plan
        A user with the right to plan, and a built, replayed or approved plan.
    reason
        Optional; kept in the audit trail.
    expected_version
        Version of the plan that the caller has read; None skips the check.

    Returns
    -------
    Plan
        The archived plan.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    StaleVersion
        When the plan has another version than the expected one.
    Conflict
        For Flat-LB, a plan that carries traffic or is scheduled, or another state.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    plan = lock_plan(plan.pk, expected_version)
    if plan.kind == Plan.Kind.FLAT:
        raise Conflict("Flat-LB cannot be archived: a fleet falls back to it")
    if plan.rollouts.filter(state__in=Rollout.LIVE).exists():
        raise Conflict(f"{plan} carries traffic; fall back or replace it first", code="live")
    if (ahead := plan.rollouts.filter(state=Rollout.State.SCHEDULED).first()) is not None:
        at = f"{ahead.scheduled_for:%Y-%m-%d %H:%M} UTC"
        raise Conflict(f"the canary of {plan} is scheduled for {at}; cancel the schedule first", code="scheduled")
    if plan.state not in Plan.ARCHIVABLE:
        raise Conflict(f"{plan} is {plan.get_state_display()}; cancel its job or withdraw it first")
    move_plan(plan, Plan.State.RETIRED if plan.state == Plan.State.APPROVED else Plan.State.CANCELLED)
    record_event(
        "plan.archived",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={"state": plan.state},
        reason=reason,
    )
    return plan
