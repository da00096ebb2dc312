"""Locking a plan or replay and moving it to another state; every service that does either calls these."""

from __future__ import annotations

from planner.errors import Conflict
from planner.models import Plan, PlanState, Replay
from planner.services.base.locking import lock


def lock_plan(pk: int, expected_version: int | None = None) -> Plan:
    """The plan's row, locked."""
    plan: Plan = lock(Plan, pk, expected_version)
    return plan


def move_plan(plan: Plan, state: PlanState, *fields: str) -> None:
    """Change the state of a locked plan, refusing what its transitions do not allow."""
    if not PlanState(plan.state).may_become(state):
        raise Conflict(f"{plan} is {plan.get_state_display()}; it cannot become {state.label}")
    plan.state = state
    plan.bump("state", *fields)


def lock_replay(pk: int) -> Replay:
    """The replay's plan and the replay, locked in that order."""
    plan_id = Replay.objects.values_list("plan_id", flat=True).get(pk=pk)
    lock_plan(plan_id)
    found: Replay = lock(Replay, pk)
    return found
