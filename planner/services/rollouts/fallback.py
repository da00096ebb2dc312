"""Immediate fallback to Flat-LB."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.models import Fleet, Plan, Rollout
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.fleets.publishing import publish
from planner.services.rollouts.guards import MAX_REASON_CHARS, audit_facts, end, enter_step


@transaction.atomic
def fall_back(*, acting_user: User | None, fleet: Fleet, reason: str = "", system: str = "monitor") -> Rollout:
    """Route all traffic by Flat-LB now. It works in every state; with Flat-LB live it changes nothing.

    It needs no replay, second person, worker or broker, and no freeze stops it: the routing table changes in this
    transaction. It aborts a canary and cancels a schedule.

    Parameters
    ----------
    acting_user : User or None
        Who falls back; None for the console itself, named by `system`.
    fleet : Fleet
        The fleet.
    reason : str
        Why. Characters that cannot be stored are removed; a reason is never refused.
    system : str
        Name of the acting part of the console.

    Returns
    -------
    Rollout
        The active rollout of Flat-LB.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    """
    if acting_user is not None:
        rights.require(acting_user, rights.OPERATE, fleet)
    reason = storable_text(reason)
    fleet = lock(Fleet, fleet.pk)
    if acting_user is not None:
        rights.require_now(acting_user, rights.OPERATE, fleet)
    open_ones = list(fleet.rollouts.select_for_update(no_key=True, of=("self",)).filter(state__in=Rollout.OPEN))
    flat = fleet.plans.get(kind=Plan.Kind.FLAT)
    active = next(r for r in open_ones if r.state == Rollout.State.ACTIVE)
    if open_ones == [active] and active.plan_id == flat.pk:
        return active
    before = [audit_facts(r) for r in open_ones]
    routed = any(r.state == Rollout.State.CANARY for r in open_ones) or active.plan_id != flat.pk
    why = f"fell back to Flat-LB: {reason}" if reason else "fell back to Flat-LB"
    for rollout in open_ones:
        if rollout.state in Rollout.AHEAD:
            end(rollout, Rollout.State.ABORTED, why)
    digest = active.evidence_digest
    if active.plan_id != flat.pk:
        end(active, Rollout.State.ROLLED_BACK, why)
        active = _flat_rollout(fleet, flat, acting_user, incumbent=active.plan)
    after: JsonObject = {"live": [audit_facts(active)]}
    if routed:
        publish(fleet)
        after["table_version"] = fleet.table_version
    record_event(
        "fleet.fell_back",
        acting_user=acting_user,
        system=system,
        fleet=fleet,
        subject=fleet,
        before={"live": before},
        after=after,
        reason=reason,
        evidence_digest=digest,
    )
    return active


def _flat_rollout(fleet: Fleet, flat: Plan, acting_user: User | None, *, incumbent: Plan) -> Rollout:
    rollout = Rollout.objects.create(
        fleet=fleet,
        plan=flat,
        state=Rollout.State.ACTIVE,
        kind=Rollout.Kind.FALLBACK,
        weight=1.0,
        incumbent=incumbent,
        started_by=acting_user,
        activated_at=timezone.now(),
    )
    enter_step(rollout, acting_user)
    return rollout


def storable_text(reason: str) -> str:
    """Return the text without NUL and surrogates, cut to the length that is stored."""
    return reason.replace("\0", "").encode(errors="ignore").decode().strip()[:MAX_REASON_CHARS]
