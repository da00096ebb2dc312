"""Back to a plan that was active before: at once, without a new replay or analysis."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner import artifacts
from planner.errors import Conflict
from planner.models import Approval, Fleet, Plan, Rollout
from planner.services import audit, fleets, rights
from planner.services.fallback import fall_back
from planner.services.locking import lock
from planner.services.rollout_rules import AHEAD, Passage, active_of, end, enter_step, facts, needed_reason

# A plan that was approved and active may be under another look now: that takes nothing from what it was.
RETAINED = (Plan.State.APPROVED, Plan.State.REPLAYING, Plan.State.IN_REVIEW)


@transaction.atomic
def roll_back(*, acting_user: User, fleet: Fleet, plan: Plan, reason: str) -> Rollout:
    """Make a plan that was active on this fleet before active again, now.

    It was replayed, approved and watched then, so that none of that is asked for again. A canary is aborted with it
    and a schedule called off. Rolling back to Flat-LB is falling back.
    """
    rights.require(acting_user, rights.OPERATE, fleet)
    reason = needed_reason(reason)
    if plan.fleet_id != fleet.pk:
        raise Conflict(f"{plan} is not a plan of {fleet}", field="plan")
    if plan.kind == Plan.Kind.FLAT:
        return fall_back(acting_user=acting_user, fleet=fleet, reason=reason)
    fleet, plan = lock(Fleet, fleet.pk), lock(Plan, plan.pk)
    passage = Passage(acting_user, fleet)
    passage.not_frozen()
    active = active_of(fleet)
    earlier = _earlier(fleet, plan, active)
    ahead = list(fleet.rollouts.select_for_update(no_key=True, of=("self",)).filter(state__in=AHEAD))
    before = [facts(r) for r in (active, *ahead)]
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
    fleets.publish(fleet)
    audit.record(
        "rollout.rolled_back",
        acting_user=acting_user,
        fleet=fleet,
        subject=rollout,
        before={"live": before},
        after={"live": [facts(rollout)], "table_version": fleet.table_version, **passage.marks},
        reason=reason,
        evidence_digest=rollout.evidence_digest,
    )
    return rollout


def _earlier(fleet: Fleet, plan: Plan, active: Rollout) -> Rollout:
    """The rollout under which the plan was active last.

    Raises
    ------
    Conflict
        When it was not, is active now, was put away, lost its approval, or its table cannot be read.
    """
    if active.plan_id == plan.pk:
        raise Conflict(f"{plan} is active on this fleet already; abort the canary if there is one")
    earlier = fleet.rollouts.filter(plan=plan, activated_at__isnull=False).order_by("-id").first()
    if earlier is None:
        raise Conflict(f"{plan} was never active on this fleet: start its canary", code="never-active")
    if plan.state not in RETAINED:
        raise Conflict(f"{plan} is {plan.get_state_display()}, and not kept for a way back", code="not-retained")
    _require_standing(plan, earlier)
    assert plan.table is not None  # approved plans have one
    artifacts.verify(plan.table)
    return earlier


def _require_standing(plan: Plan, earlier: Rollout) -> None:
    """The approvals that it was active on were not withdrawn since.

    A quorum that was raised later does not count: it would leave no way back.
    """
    given = plan.approvals.filter(decision=Approval.Decision.APPROVE)
    if earlier.evidence_digest:
        given = given.filter(evidence_digest=earlier.evidence_digest)
    needed = min(plan.fleet.min_approvals, given.values("approver").distinct().count())
    if not needed or given.filter(withdrawn_at=None).values("approver").distinct().count() < needed:
        raise Conflict(f"the approval that {plan} was active on was withdrawn", code="not-approved")
