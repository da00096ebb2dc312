"""Dispatch policies, one file each, and the registry that the replay and the console choose from."""

from __future__ import annotations

from planner.routing.policies.base import DispatchTables, KeySpace, Policy
from planner.routing.policies.cacheroute import CacheRoute
from planner.routing.policies.dispatch import choose
from planner.routing.policies.flat_lb import FlatLB
from planner.routing.policies.references import HashMod, RoundRobin
from planner.routing.policies.sticky import Sticky

__all__ = [
    "POLICIES",
    "CacheRoute",
    "DispatchTables",
    "FlatLB",
    "HashMod",
    "KeySpace",
    "Policy",
    "RoundRobin",
    "Sticky",
    "choose",
]

POLICIES: dict[str, Policy] = {
    policy.name: policy for policy in (FlatLB(), Sticky(), CacheRoute(), RoundRobin(), HashMod())
}
