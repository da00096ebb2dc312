"""Flat-LB: power of two choices, blind to keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.hashing import next_random
from planner.routing.policies.base import DispatchTables, KeySpace, Policy
from planner.routing.table import RoutingTable

__all__ = ["FlatLB", "lighter_of_two"]


@njit(cache=True)
def lighter_of_two(outstanding: NDArray[np.int64], rng: NDArray[np.uint64]) -> np.int64:
    """Draw two distinct destinations; the one with fewer outstanding, on a tie the first drawn."""
    fleet = len(outstanding)
    first = next_random(rng, fleet)
    if fleet == 1:
        return first
    second = next_random(rng, fleet - 1)
    if second >= first:
        second += 1
    return second if outstanding[second] < outstanding[first] else first


@dataclass(frozen=True)
class FlatLB(Policy):
    """Two distinct destinations drawn at random, the one with fewer outstanding requests.

    Source: Mitzenmacher, *The power of two choices in randomized load balancing*, IEEE TPDS 2001; the
    baseline and the cold path of CacheRoute (arXiv 2608.19677). No parameters.
    """

    name = "flat-lb"
    code = 0

    def prepare(self, keys: KeySpace, destinations: int, table: RoutingTable | None) -> DispatchTables:
        return self._tables()
