"""CacheRoute: admitted keys go by the plan, the rest by power of two choices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.policies.base import DispatchTables, KeySpace, Policy
from planner.routing.table import RoutingTable

__all__ = ["CacheRoute", "lightest_member"]


@njit(cache=True)
def lightest_member(members: NDArray[np.int32], outstanding: NDArray[np.int64]) -> np.int32:
    """Return the member with fewest outstanding; members ascend, so ties go to the lower index."""
    best = members[0]
    for at in range(1, len(members)):
        if outstanding[members[at]] < outstanding[best]:
            best = members[at]
    return best


@dataclass(frozen=True)
class CacheRoute(Policy):
    """An admitted key goes to the member of T(b) with fewest outstanding; any other key as in Flat-LB.

    Source: Algorithm 1, dispatch (arXiv 2608.19677). No parameters: the routing table holds them.
    """

    name = "cacheroute"
    code = 2
    needs_table = True

    def prepare(self, keys: KeySpace, destinations: int, table: RoutingTable | None) -> DispatchTables:
        if table is None:
            raise ValueError("table: policy 'cacheroute' needs a routing table")
        if table.destinations != destinations:
            raise ValueError(f"table: planned for {table.destinations} destinations, replayed on {destinations}")
        row = np.full(len(keys.indices), -1, dtype=np.int64)
        known = keys.indices < table.keys  # a key that the plan never saw is cold
        row[known] = table.row[keys.indices[known]]
        return self._tables(row=row, offsets=table.offsets, members=table.members)
