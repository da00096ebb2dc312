"""Plans that a fleet can be rolled back to."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from planner.models import Approval, Fleet, GateEvaluation, Plan, Rollout


def retained_plans(fleet: Fleet) -> list[Plan]:
    """Return retained plans that were active on the fleet before, the latest first, without Flat-LB.

    A plan whose approval was withdrawn is left out. Three queries for any number of plans.
    """
    ended = fleet.rollouts.filter(activated_at__isnull=False).exclude(plan__kind=Plan.Kind.FLAT).order_by("-ended_at")
    active = fleet.rollouts.filter(state=Rollout.State.ACTIVE).values("plan_id")
    last: dict[int, Any] = {}
    newest: dict[int, tuple[int, str]] = {}
    rows = ended.exclude(plan_id__in=active).values_list("plan_id", "ended_at", "pk", "evidence_digest")
    for plan_id, at, pk, evidence_digest in rows:
        last.setdefault(plan_id, at)
        newest[plan_id] = max(newest.get(plan_id, (0, "")), (pk, evidence_digest))
    kept = fleet.plans.filter(pk__in=last, state__in=Plan.RETAINED).defer("summary", "parameters")
    found = {plan.pk: plan for plan in kept}
    stand = approvals_stand(fleet, {pk: newest[pk][1] for pk in found})
    plans = [found[pk] for pk in last if pk in stand]
    for plan in plans:
        plan.active_until = last[plan.pk]  # type: ignore[attr-defined]
    return plans


def approvals_stand(fleet: Fleet, digest_of: dict[int, str]) -> set[int]:
    """Return the ids of plans whose approvals of that evidence are not withdrawn; an empty digest means any evidence.

    The quorum is that of the evidence: a quorum raised later would block every rollback, and one lowered later would
    need fewer people than the first time.
    """
    given: dict[int, set[int]] = defaultdict(set)
    kept: dict[int, set[int]] = defaultdict(set)
    rows = Approval.objects.filter(plan__in=digest_of, decision=Approval.Decision.APPROVE)
    for plan_id, evidence_digest, approver, withdrawn_at, expires_at in rows.values_list(
        "plan_id", "evidence_digest", "approver_id", "withdrawn_at", "expires_at"
    ):
        if digest_of[plan_id] and evidence_digest != digest_of[plan_id]:
            continue
        given[plan_id].add(approver)
        # An expired approval was closed to make room for a new one; that withdraws nothing.
        if withdrawn_at is None or (expires_at is not None and withdrawn_at >= expires_at):
            kept[plan_id].add(approver)
    quorums = GateEvaluation.objects.filter(plan__in=digest_of, evidence_digest__in=digest_of.values())
    quorum_of = {
        plan_id: quorum
        for plan_id, evidence_digest, quorum in quorums.values_list(
            "plan_id", "evidence_digest", "evidence__policy__min_approvals"
        )
        if evidence_digest == digest_of[plan_id]
    }
    needed = {pk: quorum_of.get(pk) or min(fleet.min_approvals, len(given[pk])) for pk in digest_of}
    return {pk for pk in digest_of if needed[pk] and len(kept[pk]) >= needed[pk]}
