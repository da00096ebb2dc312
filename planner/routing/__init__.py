"""From key rates to a routing table, and the policies that dispatch by it. Pure: numpy and numba only."""

from planner.routing.build import build_table, plan_table, replicas_needed
from planner.routing.policies import POLICIES, Policy
from planner.routing.problem import Problem
from planner.routing.replan import replan, replan_table
from planner.routing.split import canary_share
from planner.routing.table import RoutingTable

__all__ = [
    "POLICIES",
    "Policy",
    "Problem",
    "RoutingTable",
    "build_table",
    "canary_share",
    "plan_table",
    "replan",
    "replan_table",
    "replicas_needed",
]
