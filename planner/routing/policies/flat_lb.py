"""Flat-LB: power of two choices, blind to keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.routing.policies.base import (
    CANDIDATES,
    Costs,
    DispatchTables,
    KeySpace,
    Policy,
    draw_two,
    fewest_outstanding,
)
from planner.routing.table import RoutingTable

__all__ = ["FlatLB"]


@dataclass(frozen=True)
class FlatLB(Policy):
    """Of two distinct destinations drawn at random, take the one with fewer outstanding requests; ties: the first.

    Source: Mitzenmacher, *The power of two choices in randomized load balancing*, IEEE TPDS 2001; the
    baseline and the cold path of CacheRoute (arXiv 2608.19677). No parameters.
    """

    name = "flat-lb"
    rank = 1
    looks = CANDIDATES
    propose = staticmethod(draw_two)
    rule = staticmethod(fewest_outstanding)

    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        return self._tables()
