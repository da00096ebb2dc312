"""Dispatch policies, one file each; the replay and the console choose from `POLICIES`."""

from __future__ import annotations

from planner.routing.policies.base import Costs, DispatchTables, KeySpace, Policy, Signals, quiet_signals
from planner.routing.policies.dispatch import RULES, choose, propose

__all__ = ["POLICIES", "Costs", "DispatchTables", "KeySpace", "Policy", "Signals", "choose", "propose", "quiet_signals"]

POLICIES: dict[str, Policy] = {policy.name: policy for kind in RULES for policy in kind.variants()}
