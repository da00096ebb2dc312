"""Reference policies: round robin, random, least outstanding, and a plain hash of the key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.routing.hashing import next_random
from planner.routing.policies.base import EVERYTHING, Costs, DispatchTables, Index, KeySpace, Policy, Signals, compiled
from planner.routing.table import RoutingTable

__all__ = ["HashMod", "LeastOutstanding", "Random", "RoundRobin"]


@compiled
def _next_in_turn(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    return np.int64(signals.open[signals.request[0] % signals.counts[0]])


@compiled
def _any(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    return signals.open[next_random(rng, signals.counts[0])]


@compiled
def _least(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    best = signals.open[0]
    for at in range(1, signals.counts[0]):
        if signals.outstanding[signals.open[at]] < signals.outstanding[best]:
            best = signals.open[at]
    return best


@compiled
def _hashed(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    home = np.int64(tables.start[key])
    while not signals.is_open[home]:
        home = (home + 1) % len(signals.is_open)
    return home


@dataclass(frozen=True)
class _Reference(Policy):
    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        return self._tables()


@dataclass(frozen=True)
class RoundRobin(_Reference):
    """Send request i to the i-th open destination, modulo their number. No parameters."""

    name = "round-robin"
    rule = staticmethod(_next_in_turn)


@dataclass(frozen=True)
class Random(_Reference):
    """Send each request to any open destination with equal chance. No parameters."""

    name = "random"
    rule = staticmethod(_any)


@dataclass(frozen=True)
class LeastOutstanding(_Reference):
    """Send each request to the destination with fewest outstanding requests; ties: the lower index. No parameters."""

    name = "least-outstanding"
    looks = EVERYTHING
    rule = staticmethod(_least)


@dataclass(frozen=True)
class HashMod(Policy):
    """Send each key to its 64-bit hash mod R, strict affinity; when that is down, to the next open. No parameters."""

    name = "hash"
    rule = staticmethod(_hashed)

    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        return self._tables(start=(keys.hashes % np.uint64(destinations)).astype(np.int64))
