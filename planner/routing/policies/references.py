"""Two references that bound a replay from below: round robin, and a plain hash of the key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.routing.policies.base import DispatchTables, KeySpace, Policy
from planner.routing.table import RoutingTable

__all__ = ["HashMod", "RoundRobin"]


@dataclass(frozen=True)
class RoundRobin(Policy):
    """Request i goes to destination ``i mod R``. Perfectly even and blind to keys. No parameters."""

    name = "round-robin"
    code = 3

    def prepare(self, keys: KeySpace, destinations: int, table: RoutingTable | None) -> DispatchTables:
        return self._tables()


@dataclass(frozen=True)
class HashMod(Policy):
    """The key's 64-bit hash mod R: strict affinity with no ring. No parameters."""

    name = "hash"
    code = 4

    def prepare(self, keys: KeySpace, destinations: int, table: RoutingTable | None) -> DispatchTables:
        return self._tables(home=(keys.hashes % np.uint64(destinations)).astype(np.int32))
