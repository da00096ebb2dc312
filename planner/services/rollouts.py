"""Bringing an approved plan to traffic by steps, and taking it away at once."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.errors import Conflict
from planner.models import Fleet, Plan, Rollout, RolloutState, RolloutStep
from planner.services import audit, fleets, reviews, rights
from planner.services.locking import lock


def _end(rollout: Rollout, state: RolloutState, reason: str) -> None:
    if not RolloutState(rollout.state).may_become(state):
        raise Conflict(f"the rollout is {rollout.get_state_display()} already")
    rollout.state, rollout.ended_at, rollout.end_reason = state, timezone.now(), reason
    rollout.bump("state", "ended_at", "end_reason")


def _step(rollout: Rollout, acting_user: User) -> None:
    RolloutStep.objects.create(
        rollout=rollout, number=rollout.steps.count() + 1, weight=rollout.weight, entered_by=acting_user
    )


@transaction.atomic
def start_rollout(*, acting_user: User, plan: Plan, expected_version: int | None = None) -> Rollout:
    """Start the canary of an approved plan at the fleet's first weight."""
    rights.require(acting_user, rights.OPERATE, plan.fleet)
    fleet = lock(Fleet, plan.fleet_id)
    plan = lock(Plan, plan.pk, expected_version)
    if plan.kind == Plan.Kind.FLAT:
        raise Conflict("Flat-LB takes no canary: fall back to it")
    evaluation = reviews.require_approved(plan)
    live = fleet.rollouts.filter(state__in=["canary", "active"])
    if live.filter(state=Rollout.State.CANARY).exists():
        raise Conflict("another plan is in canary on this fleet; finish or abort it first", code="canary-running")
    if live.filter(plan=plan).exists():
        raise Conflict(f"{plan} is active on this fleet already")
    rollout = Rollout.objects.create(
        fleet=fleet,
        plan=plan,
        state=Rollout.State.CANARY,
        weight=fleet.canary_weights[0],
        started_by=acting_user,
    )
    _step(rollout, acting_user)
    fleets.publish(fleet)
    audit.record(
        "rollout.started",
        acting_user=acting_user,
        fleet=fleet,
        subject=rollout,
        after={"plan": plan.number, "weight": rollout.weight, "table_version": fleet.table_version},
        evidence_digest=evaluation.evidence_digest,
    )
    return rollout


@transaction.atomic
def advance_rollout(*, acting_user: User, rollout: Rollout, expected_version: int | None = None) -> Rollout:
    """Take the canary to its next weight; after the last one the plan becomes active and the old one ends."""
    rights.require(acting_user, rights.OPERATE, rollout.fleet)
    fleet = lock(Fleet, rollout.fleet_id)
    rollout = lock(Rollout, rollout.pk, expected_version)
    if rollout.state != Rollout.State.CANARY:
        raise Conflict(f"the rollout is {rollout.get_state_display()}, not in canary")
    evaluation = reviews.require_approved(rollout.plan)
    before = {"weight": rollout.weight, "state": rollout.state}
    higher = [w for w in fleet.canary_weights if w > rollout.weight]
    if higher:
        rollout.weight = higher[0]
        rollout.bump("weight")
    else:
        active = fleet.rollouts.select_for_update(no_key=True).get(state=Rollout.State.ACTIVE)
        _end(active, Rollout.State.SUPERSEDED, f"superseded by {rollout.plan}")
        rollout.state, rollout.weight, rollout.activated_at = Rollout.State.ACTIVE, 1.0, timezone.now()
        rollout.bump("state", "weight", "activated_at")
    _step(rollout, acting_user)
    fleets.publish(fleet)
    audit.record(
        "rollout.advanced" if higher else "rollout.activated",
        acting_user=acting_user,
        fleet=fleet,
        subject=rollout,
        before=before,
        after={"weight": rollout.weight, "state": rollout.state, "table_version": fleet.table_version},
        evidence_digest=evaluation.evidence_digest,
    )
    return rollout


@transaction.atomic
def abort_rollout(
    *, acting_user: User, rollout: Rollout, reason: str = "", expected_version: int | None = None
) -> Rollout:
    """Take a canary off traffic; what was active stays active."""
    rights.require(acting_user, rights.OPERATE, rollout.fleet)
    fleet = lock(Fleet, rollout.fleet_id)
    rollout = lock(Rollout, rollout.pk, expected_version)
    before = {"weight": rollout.weight, "state": rollout.state}
    if rollout.state != Rollout.State.CANARY:
        raise Conflict(f"the rollout is {rollout.get_state_display()}, not in canary")
    _end(rollout, Rollout.State.ABORTED, reason or "aborted")
    fleets.publish(fleet)
    audit.record(
        "rollout.aborted",
        acting_user=acting_user,
        fleet=fleet,
        subject=rollout,
        before=before,
        after={"state": rollout.state, "table_version": fleet.table_version},
        reason=reason,
    )
    return rollout


@transaction.atomic
def fall_back(*, acting_user: User, fleet: Fleet, reason: str = "") -> Rollout:
    """Send all traffic by Flat-LB, now. Works from every state; nothing to do when it is live already.

    Needs neither replay nor second person nor worker nor broker: the table that routers poll changes in
    this transaction.
    """
    rights.require(acting_user, rights.OPERATE, fleet)
    fleet = lock(Fleet, fleet.pk)
    live = list(fleet.rollouts.select_for_update(no_key=True).filter(state__in=["canary", "active"]))
    flat = fleet.plans.get(kind=Plan.Kind.FLAT)
    active = next((r for r in live if r.state == Rollout.State.ACTIVE), None)
    if active is not None and live == [active] and active.plan_id == flat.pk:
        return active
    before = [{"plan": r.plan.number, "state": r.state, "weight": r.weight} for r in live]
    for rollout in live:
        if rollout.state == Rollout.State.CANARY:
            _end(rollout, Rollout.State.ABORTED, reason or "fell back to Flat-LB")
        elif rollout.plan_id != flat.pk:
            _end(rollout, Rollout.State.ROLLED_BACK, reason or "fell back to Flat-LB")
    if active is None or active.plan_id != flat.pk:
        active = Rollout.objects.create(
            fleet=fleet,
            plan=flat,
            state=Rollout.State.ACTIVE,
            weight=1.0,
            started_by=acting_user,
            activated_at=timezone.now(),
        )
        _step(active, acting_user)
    fleets.publish(fleet)
    audit.record(
        "fleet.fell_back",
        acting_user=acting_user,
        fleet=fleet,
        subject=fleet,
        before={"live": before},
        after={"live": [{"plan": 0, "state": "active", "weight": 1.0}], "table_version": fleet.table_version},
        reason=reason,
    )
    return active
