"""Statistics of workloads and replays: rate shape, reuse, confidence, fairness, hit rates and their curves.

Pure; imports no other package of the project.
"""

from planner.analysis.confidence import Interval, paired_difference, t_interval
from planner.analysis.curves import Dip, HitCurve, dip, hit_curve
from planner.analysis.fairness import MIN_REQUESTS_P99, PerTenant, jain_index, per_tenant
from planner.analysis.locality import HitChain, available_tokens, hit_chain
from planner.analysis.reuse import AvailableHit, reuse
from planner.analysis.shape import RateShape, gini, rate_shape
from planner.analysis.switch import Homes, Switch, cold_rate_at, cooling_time, switch

__all__ = [
    "MIN_REQUESTS_P99",
    "AvailableHit",
    "Dip",
    "HitChain",
    "HitCurve",
    "Homes",
    "Interval",
    "PerTenant",
    "RateShape",
    "Switch",
    "available_tokens",
    "cold_rate_at",
    "cooling_time",
    "dip",
    "gini",
    "hit_chain",
    "hit_curve",
    "jain_index",
    "paired_difference",
    "per_tenant",
    "rate_shape",
    "reuse",
    "switch",
    "t_interval",
]
