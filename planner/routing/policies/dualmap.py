"""DualMap: two hashed candidates, the one with the longer cached prefix unless it is overloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.routing.hashing import hash_indices
from planner.routing.policies.base import CANDIDATES, Costs, DispatchTables, Index, KeySpace, Policy, Signals, compiled
from planner.routing.policies.ring import check_vnodes, clockwise, ring_places, ring_points
from planner.routing.table import RoutingTable
from planner.routing.validation import positive, whole

__all__ = ["DualMap"]


@compiled
def _two_hashed(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> None:
    """Propose the owners of both hashes of the key; where they are equal, the second moves to its neighbour."""
    first = tables.ring[clockwise(tables, signals, tables.start[key])]
    signals.candidates[0] = first
    signals.counts[1] = 1
    for step in range(len(tables.ring)):
        other = tables.ring[(tables.second[key] + step) % len(tables.ring)]
        if other != first and signals.is_open[other]:
            signals.candidates[1] = other
            signals.counts[1] = 2
            return


@compiled
def _longer_prefix(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    a = signals.candidates[0]
    if signals.counts[1] < 2:
        return a
    b = signals.candidates[1]
    lighter = a
    if (signals.pending[b], signals.outstanding[b]) < (signals.pending[a], signals.outstanding[a]):
        lighter = b
    if signals.matched[a] == signals.matched[b]:
        return lighter
    holder = a if signals.matched[a] > signals.matched[b] else b
    return lighter if signals.pending[holder] > tables.budget_tokens else holder


@dataclass(frozen=True)
class DualMap(Policy):
    """Of two hashed candidates take the one with the longer cached prefix, unless it has too much to prefill.

    The limit B is the number of prompt tokens that the engine prefills within the objective. A candidate beyond B
    loses to the less loaded one (fewer pending prefill tokens, then fewer outstanding, then the first hash). Equal
    prefixes: the less loaded. When both are beyond B, requests in their queues move once to their other candidate,
    where that lowers their time to first token and keeps it within the objective.
    Source: DualMap (arXiv 2602.06502), as the paper describes it; not the authors' code.

    Parameters
    ----------
    slo_s : float
        Objective for the time to first token, in seconds, from which B follows; default 3.5.
    vnodes : int
        Points of each destination on the ring, default 160.
    look_back : int
        Waiting requests of each queue that are examined for a move, from its head; 0 for no moves; default 64.
    """

    slo_s: float = 3.5
    vnodes: int = 160
    look_back: int = 64

    name = "dualmap"
    rank = 4
    looks = CANDIDATES
    needs_cache = True
    propose = staticmethod(_two_hashed)
    rule = staticmethod(_longer_prefix)

    def __post_init__(self) -> None:
        positive("slo_s", self.slo_s)
        check_vnodes(self.vnodes)
        if whole("look_back", self.look_back, 0) > 10_000:
            raise ValueError(f"look_back = {self.look_back}: expected at most 10000")

    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        points, owners = ring_points(destinations, self.vnodes)
        budget = self.slo_s / costs.prefill_token_s if costs.prefill_token_s > 0 else np.inf
        return self._tables(
            look_back=self.look_back,
            budget_tokens=budget,
            within_s=self.slo_s,
            start=ring_places(keys.hashes, points),
            second=ring_places(hash_indices(keys.hashes, salt=5), points),
            ring=owners,
        )
