"""Sticky: consistent hashing, blind to load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.routing.policies.base import Costs, DispatchTables, Index, KeySpace, Policy, Signals, compiled
from planner.routing.policies.ring import check_vnodes, clockwise, ring_places, ring_points
from planner.routing.table import RoutingTable

__all__ = ["Sticky"]


@compiled
def _successor(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    return np.int64(tables.ring[clockwise(tables, signals, tables.start[key])])


@dataclass(frozen=True)
class Sticky(Policy):
    """Send each key to the first open destination clockwise of its hash on a ring of virtual nodes.

    Source: Karger et al., *Consistent hashing and random trees*, STOC 1997.

    Parameters
    ----------
    vnodes : int
        Points of each destination on the ring, default 160 (as libketama).
    """

    vnodes: int = 160

    name = "sticky"
    rank = 2
    rule = staticmethod(_successor)

    def __post_init__(self) -> None:
        check_vnodes(self.vnodes)

    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        points, owners = ring_points(destinations, self.vnodes)
        return self._tables(start=ring_places(keys.hashes, points), ring=owners)
