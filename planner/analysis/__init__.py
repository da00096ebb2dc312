"""What judges a workload and a replay: rate shape, available reuse, confidence. Pure; imports no other room."""

from planner.analysis.confidence import Interval, paired_difference, t_interval
from planner.analysis.reuse import AvailableHit, reuse
from planner.analysis.shape import RateShape, gini, rate_shape

__all__ = [
    "AvailableHit",
    "Interval",
    "RateShape",
    "gini",
    "paired_difference",
    "rate_shape",
    "reuse",
    "t_interval",
]
