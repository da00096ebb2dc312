"""A new plan that keeps what is warm: the incumbent's homes, and the fewest moves that restore the balance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.build import build_table
from planner.routing.backups import plan_losses
from planner.routing.rebalance import keep_members, lost_members, place_new, rebalance
from planner.routing.table import RoutingTable
from planner.routing.validation import positive, rate_vector

__all__ = ["replan"]

# Units (keys x destinations each) up to which swaps and many shuffled runs are worth their time: with thousands of
# keys the small ones fill every gap, and one greedy run moves hardly more than the excess itself.
SMALL = 4_096
RUNS = 200
NOISE = 0.5


def replan(
    incumbent: RoutingTable,
    rates: ArrayLike,
    *,
    q_cap: float,
    slots: int,
    max_imbalance_factor: float = 1.02,
    cold_load: ArrayLike | None = None,
) -> RoutingTable:
    """Plan for new rates, keeping the incumbent's assignment as far as the balance allows.

    1. Size and admit as `build_table` does (paper, Algorithm 1).
    2. Keys that stay keep their destinations; a key that needs fewer drops the most loaded, one that needs more,
       or is new, takes the lightest.
    3. Keys are moved, fewest by rate, until the imbalance is within ``max_imbalance_factor`` of a fresh plan's.

    The paper measures that LPT from scratch re-assigns 94.5% of keys under drift (section 5.4) and leaves a
    replanner that knows about churn open; this is one.

    Parameters
    ----------
    incumbent : RoutingTable
        What serves now; its destinations are the new plan's.
    rates : float64[B]
        Requests/s; key indices mean the same keys as in the incumbent, new keys stand at the end.
    q_cap, slots, cold_load
        As in `build_table`.
    max_imbalance_factor : float
        At least 1.

    Returns
    -------
    RoutingTable
        With ``moved`` (keys that lost a warm destination they still needed), ``moved_rate`` (requests/s of the
        shares that moved) and ``moved_keys`` (their indices, ascending).

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    vector = rate_vector("rates", rates)
    if len(vector) < incumbent.keys:
        raise ValueError(f"rates: {len(vector)} keys, fewer than the incumbent's {incumbent.keys}")
    factor = positive("max_imbalance_factor", max_imbalance_factor, least=1.0)
    fresh = build_table(vector, destinations=incumbent.destinations, q_cap=q_cap, slots=slots, cold_load=cold_load)
    offsets, replicas = fresh.offsets, fresh.replicas
    row_of = np.repeat(np.arange(len(replicas)), replicas)
    weight = (vector[fresh.admitted] / np.maximum(replicas, 1))[row_of]
    placed = np.bincount(fresh.members, weights=weight, minlength=fresh.destinations)
    cold = np.maximum(fresh.load - placed, 0.0) if cold_load is None else rate_vector("cold_load", cold_load)
    home = keep_members(fresh.admitted, offsets, incumbent.row, incumbent.offsets, incumbent.members, incumbent.load)
    place = home.copy()
    kept = np.bincount(home[home >= 0], weights=weight[home >= 0], minlength=fresh.destinations)
    load = cold + kept.astype(np.float64)
    place_new(place, offsets, row_of, weight, load)
    ceiling = factor * float(fresh.load.max())
    best = _cheapest(place, home, offsets, row_of, weight, load, ceiling)
    if best is None:
        best = _fresh_at_home(fresh, home, weight, uniform=cold_load is None)
    return _table(fresh, incumbent, vector, best, row_of, weight, cold)


def _cheapest(
    place: NDArray[np.int32],
    home: NDArray[np.int32],
    offsets: NDArray[np.int64],
    row_of: NDArray[np.int64],
    weight: NDArray[np.float64],
    load: NDArray[np.float64],
    ceiling: float,
) -> NDArray[np.int32] | None:
    """The placement under the ceiling that moves the least weight, of one run or of many; None when all got stuck."""
    small = len(place) <= SMALL
    best, least = None, np.inf
    for seed in range(RUNS if small else 1):
        trial, trial_load = place.copy(), load.copy()
        noise = NOISE if seed else 0.0
        if not rebalance(trial, home, offsets, row_of, weight, trial_load, ceiling, small, noise, seed):
            continue
        cost = float(weight[(home >= 0) & (trial != home)].sum())
        if cost < least:
            best, least = trial, cost
        if cost == 0:
            break
    return best


def _fresh_at_home(
    fresh: RoutingTable, home: NDArray[np.int32], weight: NDArray[np.float64], *, uniform: bool
) -> NDArray[np.int32]:
    """The fresh plan, its destinations renamed so that most of the rate stays where it is warm.

    Destinations may change names only while they carry equal cold loads.
    """
    if not uniform:
        return fresh.members.copy()
    from scipy.optimize import linear_sum_assignment  # rarely needed, and slow to import

    overlap = np.zeros((fresh.destinations, fresh.destinations))
    known = home >= 0
    np.add.at(overlap, (fresh.members[known], home[known]), weight[known])
    _, name = linear_sum_assignment(overlap, maximize=True)
    return name[fresh.members].astype(np.int32)


def _table(
    fresh: RoutingTable,
    incumbent: RoutingTable,
    rates: NDArray[np.float64],
    place: NDArray[np.int32],
    row_of: NDArray[np.int64],
    weight: NDArray[np.float64],
    cold: NDArray[np.float64],
) -> RoutingTable:
    members = place if len(place) == len(fresh.admitted) else place[np.lexsort((place, row_of))]  # ascending in a key
    load = cold + np.bincount(members, weights=weight, minlength=fresh.destinations)
    # Warm is wherever the incumbent held the key, whichever of its homes a unit came from.
    lost = lost_members(fresh.admitted, fresh.offsets, members, incumbent.row, incumbent.offsets, incumbent.members)
    moved_keys = np.sort(fresh.admitted[lost > 0])
    share = rates[fresh.admitted] / np.maximum(fresh.replicas, 1)
    top = float(load.max())
    admitted_rates = rates[fresh.admitted]
    return replace(
        fresh,
        members=members,
        load=load,
        imbalance=1.0 / float((load / top).mean()) if top > 0 else 1.0,
        backup=plan_losses(
            admitted_rates, fresh.offsets, members, fresh.available, fresh.capacity, cold, load
        )[0],
        moved=len(moved_keys),
        moved_rate=float((lost * share).sum()),
        moved_keys=moved_keys,
    )
