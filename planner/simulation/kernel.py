"""The event loop: arrivals in order, replicas played forward to each of them."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.policies import DispatchTables, choose
from planner.simulation.scheduler import advance, enqueue, interrupt_leap
from planner.simulation.state import Cache, Engine, Fleet, Requests

__all__ = ["run"]


@njit(cache=True, nogil=True)
def run(
    requests: Requests,
    cache: Cache,
    fleet: Fleet,
    engine: Engine,
    tables: DispatchTables,
    rng: NDArray[np.uint64],
    measure_from: float,
) -> int:
    """Play the whole trace; results are left in the state arrays.

    Replicas touch each other only through dispatch, so each is played forward to an arrival on its own. Order
    of events at one instant: ends of iterations, arrivals in trace order, starts of iterations.

    Returns
    -------
    int
        Requests refused because their KV exceeds a whole replica's cache.
    """
    replicas = len(fleet.now)
    refused = 0
    dispatched = 0
    for q in range(len(requests.arrival)):
        time = requests.arrival[q]
        if -(-(requests.prompt[q] + requests.output[q] - 1) // engine.block_tokens) > engine.capacity:
            refused += 1
            continue
        for other in range(replicas):
            if not fleet.busy[other] or fleet.end[other] <= time:
                advance(requests, cache, fleet, engine, other, time, measure_from)
        r = choose(tables, dispatched, requests.key[q], fleet.outstanding, rng)
        dispatched += 1
        requests.destination[q] = r
        if not fleet.busy[r] and fleet.outstanding[r] == 0:
            fleet.now[r] = time
        fleet.outstanding[r] += 1
        enqueue(requests, fleet, r, q, time >= measure_from)
        if fleet.busy[r]:
            interrupt_leap(fleet, engine, r, time)
    for other in range(replicas):
        advance(requests, cache, fleet, engine, other, np.inf, measure_from)
    return refused
