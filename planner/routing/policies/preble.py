"""Preble E2: exploit a cached prefix, or explore for the least total cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.routing.policies.base import EVERYTHING, Costs, DispatchTables, Index, KeySpace, Policy, Signals, compiled
from planner.routing.table import RoutingTable
from planner.routing.validation import positive

__all__ = ["Preble"]


@compiled
def _load(tables: DispatchTables, signals: Signals, r: int) -> float:
    running = signals.outstanding[r]
    decode = tables.parameters[1] + running * tables.parameters[2] if running > 0 else 0.0
    return signals.missed[r] * tables.parameters[0] + decode


@compiled
def _exploit_or_explore(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    prefill_s, by_history = tables.parameters[0], tables.parameters[5] > 0
    prompt = signals.request[1]
    best_match = 0
    heaviest = lightest = best = signals.open[0]
    most = least = least_cost = np.inf
    for at in range(signals.counts[0]):
        r = signals.open[at]
        load = _load(tables, signals, r)
        if at == 0 or load > most:
            most, heaviest = load, r
        if at == 0 or load < least:
            least, lightest = load, r
        best_match = max(best_match, signals.known[r] if by_history else signals.matched[r])
    exploit = best_match > tables.parameters[3] * prompt
    for at in range(signals.counts[0]):
        r = signals.open[at]
        match = signals.known[r] if by_history else signals.matched[r]
        if exploit and match < best_match:
            continue
        cost = _load(tables, signals, r)
        if signals.served[r] > 0:
            cost += prefill_s * signals.evicted[r] / signals.served[r]
        cost += prefill_s * (prompt - signals.matched[r])
        if cost < least_cost:
            least_cost, best = cost, r
    if exploit and best == heaviest and most > tables.parameters[4] * least:
        return lightest
    return best


@dataclass(frozen=True)
class Preble(Policy):
    """Preble E2: exploit the longest cached prefix, or explore for the least total cost.

    Exploit when more than half of the prompt is cached: take the holder of the longest cached prefix, of several
    holders the one of least cost. Explore otherwise: take the destination of least cost ``L + M + P`` in seconds.

    L is the prefill time of the tokens that the requests of the last ``window_s`` missed there, plus the decode time of
    its running requests. M is the prefill time of the blocks that it would have to evict, weighted with the share of
    the window's requests there that hold them (a block that no other request can hit has weight 0). P is the prefill
    time of the tokens missed there. While the heaviest L exceeds ``rebalance`` x the lightest, requests that would
    exploit the heaviest go to the lightest. Ties go to the lower index. Decode time of the running requests: the mean
    output tokens of the workload x the time of an iteration that decodes them all at the mean context of the workload.

    Source: Srivatsa et al., *Preble* (arXiv 2407.00023), E2 as the paper states it. The variant ``preble-50`` exploits
    as the published code does: on a match of more than half of the prompt with the prompts of the window's requests,
    whether or not the engine still holds it.

    Parameters
    ----------
    window_s : float
        H, seconds; default 180.
    exploit_share : float
        Exploit when the match is more than this share of the prompt, in (0, 1]; default .5 (cached > uncached).
    rebalance : float
        At least 1; default 1.5.
    by_history : bool
        Match against the requests of the window instead of the caches.
    """

    window_s: float = 180.0
    exploit_share: float = 0.5
    rebalance: float = 1.5
    by_history: bool = False

    rank = 5
    looks = EVERYTHING
    needs_cache = True
    rule = staticmethod(_exploit_or_explore)

    @property
    def name(self) -> str:  # type: ignore[override]  # the other policies have one name each
        """Registry name."""
        return "preble-50" if self.by_history else "preble"

    @classmethod
    def variants(cls) -> tuple[Policy, ...]:
        """Return the rule of the paper and that of the published code."""
        return cls(), cls(by_history=True)

    def __post_init__(self) -> None:
        positive("window_s", self.window_s)
        if positive("exploit_share", self.exploit_share) > 1:
            raise ValueError(f"exploit_share = {self.exploit_share}: expected at most 1")
        if positive("rebalance", self.rebalance) < 1:
            raise ValueError(f"rebalance = {self.rebalance}: expected at least 1")

    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        own = costs.sequence_s + costs.context_token_s * (costs.mean_prompt + costs.mean_output / 2)
        parameters = [
            *(costs.prefill_token_s, costs.mean_output * costs.iteration_s, costs.mean_output * own),
            *(self.exploit_share, self.rebalance, float(self.by_history)),
        ]
        return self._tables(parameters=parameters, window_s=self.window_s)
