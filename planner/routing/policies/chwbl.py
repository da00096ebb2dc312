"""CHWBL: consistent hashing with bounded loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.routing.policies.base import EVERYTHING, Costs, DispatchTables, Index, KeySpace, Policy, Signals, compiled
from planner.routing.policies.ring import check_vnodes, clockwise, ring_places, ring_points
from planner.routing.table import RoutingTable
from planner.routing.validation import positive

__all__ = ["CHWBL"]


@compiled
def _first_within_bound(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    total = 0
    for at in range(signals.counts[0]):
        total += signals.outstanding[signals.open[at]]
    bound = tables.parameters[0] * (total + 1) / signals.counts[0]
    first = clockwise(tables, signals, tables.start[key])
    for step in range(len(tables.ring)):
        owner = tables.ring[(first + step) % len(tables.ring)]
        if signals.is_open[owner] and signals.outstanding[owner] <= bound:
            return np.int64(owner)
    return np.int64(tables.ring[first])


@dataclass(frozen=True)
class CHWBL(Policy):
    """Go clockwise from the hash of the key to the first with ``outstanding <= load_factor * (sum + 1) / n``.

    When no destination passes, take the first on the ring. ``n`` counts the destinations that are up.
    Source: Mirrokni, Thorup, Zadimoghaddam, *Consistent hashing with bounded loads*, SODA 2018; the bound and the
    defaults are those of KubeAI's prefix-hash load balancer.

    Parameters
    ----------
    vnodes : int
        Points of each destination on the ring, default 256.
    load_factor : float
        Highest outstanding requests of a destination in units of the mean, from 1; default 1.25.
    """

    vnodes: int = 256
    load_factor: float = 1.25

    name = "chwbl"
    rank = 3
    looks = EVERYTHING
    rule = staticmethod(_first_within_bound)

    def __post_init__(self) -> None:
        check_vnodes(self.vnodes)
        if positive("load_factor", self.load_factor) < 1:
            raise ValueError(f"load_factor = {self.load_factor}: expected at least 1")

    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        points, owners = ring_points(destinations, self.vnodes)
        start = ring_places(keys.hashes, points)
        return self._tables(parameters=[self.load_factor], start=start, ring=owners)
