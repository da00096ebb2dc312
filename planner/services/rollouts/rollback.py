"""Rolling back to a plan that was active before, at once, without a new replay or analysis."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.utils import timezone

from planner.errors import Conflict
from planner.models import Destination, Fleet, GateEvaluation, Plan, Rollout
from planner.selectors.access import rights
from planner.selectors.monitoring.cool_down import aborted_plans, cooling_down_until
from planner.selectors.rollouts.rollback_targets import approvals_stand
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.fleets.publishing import publish
from planner.services.gate.preload import Preloaded, read_table, with_preloaded
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.guards import Passage, active_of, audit_facts, end, enter_step, needed_reason

# Destinations that a refusal lists.
NAMED = 5


def roll_back(*, acting_user: User, fleet: Fleet, plan: Plan, reason: str) -> Rollout:
    """Make a plan active again that was active on this fleet before.

    It was replayed, approved and watched then, so none of that is required again. The serving profile, its
    destinations and the waivers of its approval must still be valid, and the monitor must not have fallen back from it
    within the cool-down. Open break-glass of the user passes these guards and a freeze. A canary is aborted and a
    schedule cancelled. Rolling back to Flat-LB is the same as falling back.

    Parameters
    ----------
    acting_user : User
        Who rolls back; needs the right to operate.
    fleet : Fleet
        The fleet.
    plan : Plan
        The plan to make active.
    reason : str
        Why.

    Returns
    -------
    Rollout
        The active rollout.

    Raises
    ------
    NotAllowed
        Without the right.
    Conflict
        When a guard refuses; its code names the guard.
    """
    rights.require(acting_user, rights.OPERATE, fleet)
    reason = needed_reason(reason)
    if plan.fleet_id != fleet.pk:
        raise Conflict(f"{plan} is not a plan of {fleet}", field="plan")
    if plan.kind == Plan.Kind.FLAT:
        return fall_back(acting_user=acting_user, fleet=fleet, reason=reason)
    return with_preloaded(
        plan.pk, lambda stored: _roll_back(acting_user, fleet, plan, reason, stored), reader=read_table
    )


def _roll_back(acting_user: User, fleet: Fleet, plan: Plan, reason: str, stored: Preloaded) -> Rollout:
    fleet, plan = lock(Fleet, fleet.pk), lock(Plan, plan.pk)
    rights.require_now(acting_user, rights.OPERATE, fleet)
    passage = Passage(acting_user, fleet)
    passage.not_frozen()
    active = active_of(fleet)
    earlier = _earlier(fleet, plan, active)
    stored.require_table(plan)
    _still_fits(fleet, plan, earlier, passage)
    ahead = list(fleet.rollouts.select_for_update(no_key=True, of=("self",)).filter(state__in=Rollout.AHEAD))
    before = [audit_facts(r) for r in (active, *ahead)]
    why = f"rolled back to {plan}: {reason}"
    for rollout in ahead:
        end(rollout, Rollout.State.ABORTED, why)
    end(active, Rollout.State.ROLLED_BACK, why)
    rollout = Rollout.objects.create(
        fleet=fleet,
        plan=plan,
        state=Rollout.State.ACTIVE,
        kind=Rollout.Kind.ROLLBACK,
        weight=1.0,
        incumbent=active.plan,
        evidence_digest=earlier.evidence_digest,
        started_by=acting_user,
        activated_at=timezone.now(),
    )
    enter_step(rollout, acting_user)
    publish(fleet)
    record_event(
        "rollout.rolled_back",
        acting_user=acting_user,
        fleet=fleet,
        subject=rollout,
        before={"live": before},
        after={"live": [audit_facts(rollout)], "table_version": fleet.table_version, **passage.marks},
        reason=reason,
        evidence_digest=rollout.evidence_digest,
    )
    return rollout


def _earlier(fleet: Fleet, plan: Plan, active: Rollout) -> Rollout:
    """Return the rollout in which the plan was last active.

    Raises
    ------
    Conflict
        When it was never active, is active now, was archived, or lost its approval.
    """
    if active.plan_id == plan.pk:
        raise Conflict(f"{plan} is active on this fleet already; abort the canary if there is one")
    earlier = fleet.rollouts.filter(plan=plan, activated_at__isnull=False).order_by("-id").first()
    if earlier is None:
        raise Conflict(f"{plan} was never active on this fleet; start its canary", code="never-active")
    if plan.state not in Plan.RETAINED:
        raise Conflict(f"{plan} is {plan.get_state_display()} and cannot be rolled back to", code="not-retained")
    # Break-glass does not replace the approval of a second person.
    if plan.pk not in approvals_stand(fleet, {plan.pk: earlier.evidence_digest}):
        raise Conflict(f"the approval of {plan} was withdrawn", code="not-approved")
    return earlier


def _still_fits(fleet: Fleet, plan: Plan, earlier: Rollout, passage: Passage) -> None:
    """Check what the plan was approved for, and the cool-down after an automatic fallback."""
    if plan.fingerprint != fleet.serving_profile.fingerprint:
        passage.meet(
            "profile-changed",
            f"{plan} was made for another serving profile than {fleet.serving_profile.name}, which the fleet has "
            "with now",
            "profile",
        )
    if gone := _not_up(fleet, plan):
        passage.meet(
            "destinations-down", f"the table of {plan} routes to destinations that are not up: {gone}", "destinations"
        )
    if revoked := _revoked(plan, earlier):
        passage.meet("waiver-revoked", f"{plan} was approved with a waiver that was revoked later: {revoked}", "waiver")
    until = cooling_down_until(fleet)
    if until is not None and plan.number in aborted_plans(fleet):
        passage.meet(
            "cooling-down",
            f"the monitor fell back from {plan}; it cannot be active before {until:%Y-%m-%d %H:%M:%S} UTC",
            "cool-down",
        )


def _not_up(fleet: Fleet, plan: Plan) -> str:
    """Return names and states of the first destinations of the plan that are not up."""
    rows = fleet.destinations.filter(index__in=plan.parameters["destinations"]).exclude(state=Destination.State.UP)
    names = [f"{name} ({state})" for name, state in rows.order_by("index").values_list("name", "state")]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join(names[:NAMED] + more)


def _revoked(plan: Plan, earlier: Rollout) -> str:
    """Return the checks whose waivers in the approved evidence were revoked later."""
    rows = GateEvaluation.objects.filter(plan=plan, evidence_digest=earlier.evidence_digest)
    evaluation = rows.only("evidence").order_by("-id").first()
    ids = [row["id"] for row in evaluation.evidence.get("waivers", [])] if evaluation is not None else []
    revoked = plan.waivers.filter(pk__in=ids, ended_by__isnull=False).order_by("check_name")
    return ", ".join(revoked.values_list("check_name", flat=True))
