"""The incumbent that a candidate is compared with."""

from __future__ import annotations

from planner.errors import Invalid
from planner.models import Plan, Rollout
from planner.selectors.replays.other_plans import other_plan


def incumbent_of(plan: Plan) -> Plan | None:
    """Return the plan that `plan` would take traffic from: the active one, or its predecessor if `plan` is active.

    None where that is Flat-LB, which every plan is compared with.
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
    """Return why the incumbent cannot be replayed with the plan; empty when it can."""
    try:
        other_plan(plan, incumbent.number, field="also")
    except Invalid as refusal:
        # The caller names the incumbent itself.
        return refusal.message.removeprefix(f"plan {incumbent.number} ").replace("is for", "it is for", 1)
    return ""
