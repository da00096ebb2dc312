"""What is live on a fleet, as the plan that a candidate is held against."""

from __future__ import annotations

from planner.errors import Invalid
from planner.models import Plan, Rollout
from planner.selectors.replays.other_plans import other_plan


def incumbent_of(plan: Plan) -> Plan | None:
    """The plan that `plan` takes traffic from: the active one, or, once it is active itself, the one before it.

    None where that is Flat-LB, with which every plan is compared anyhow.
    """
    related = ("plan__table", "incumbent__table")
    active = (
        Rollout.objects.filter(fleet=plan.fleet_id, state=Rollout.State.ACTIVE)
        .select_related(*related)
        .defer("plan__summary", "incumbent__summary")
        .first()
    )
    if active is None:
        return None
    found = active.incumbent if active.plan_id == plan.pk else active.plan
    return None if found is None or found.kind == Plan.Kind.FLAT or found.pk == plan.pk else found


def why_apart(plan: Plan, incumbent: Plan) -> str:
    """Why the incumbent's table cannot be replayed in the plan's place; empty when it can."""
    try:
        other_plan(plan, incumbent.number, field="also")
    except Invalid as refusal:
        # "plan 3 is for other destinations than this one": the caller has named it already.
        return refusal.message.removeprefix(f"plan {incumbent.number} ").replace("is for", "it is for", 1)
    return ""
