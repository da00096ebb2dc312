"""Lock a plan or replay and change its state; every service uses these functions for both."""

from __future__ import annotations

from planner.errors import Conflict
from planner.models import Plan, PlanState, Replay
from planner.services.base.locking import lock


def lock_plan(pk: int, expected_version: int | None = None) -> Plan:
    """Return the plan's row, locked."""
    plan: Plan = lock(Plan, pk, expected_version)
    return plan


def move_plan(plan: Plan, state: PlanState, *fields: str) -> None:
    """Change the state of a locked plan.

    Parameters
    ----------
    plan, state
        The plan, and its next state.
    *fields
        Other changed columns, stored with the state.

    Raises
    ------
    Conflict
        When the present state does not allow the transition.
    """
    if not PlanState(plan.state).may_become(state):
        raise Conflict(f"{plan} is {plan.get_state_display()}; it cannot become {state.label}")
    plan.state = state
    plan.bump("state", *fields)


def lock_replay(pk: int) -> Replay:
    """Return the replay's plan and the replay, locked in that order."""
    plan_id = Replay.objects.values_list("plan_id", flat=True).get(pk=pk)
    lock_plan(plan_id)
    found: Replay = lock(Replay, pk)
    return found
