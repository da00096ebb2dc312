"""Compiled search for the fewest rate-weighted moves that bring every destination under its limit.

To move a unit away from its home costs its weight; to move it back costs nothing; a unit without a home may go anywhere
at no cost. No search exceeds its budget of cost or its number of examined pairs.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.hashing import next_uniform
from planner.routing.units import NOWHERE, Fleet, Units, holds, top_of

__all__ = ["level", "moved_weight", "search", "swap"]


@njit(cache=True, nogil=True)
def moved_weight(place: NDArray[np.int32], units: Units) -> float:
    """Return the weight of the units that are away from home, in requests/s."""
    weight, home = units.weight, units.home
    moved = 0.0
    for unit in range(len(place)):
        if home[unit] >= 0 and place[unit] != home[unit]:
            moved += weight[unit]
    return moved


@njit(cache=True, nogil=True)
def _cost(weight: float, home: int, place: int, target: int) -> float:
    """Return the change of the moved weight when a unit moves from `place` to `target`."""
    if home < 0 or place == target:
        return 0.0
    return (0.0 if target == home else weight) - (0.0 if place == home else weight)


@njit(cache=True, nogil=True)
def _link(head: NDArray[np.int64], after: NDArray[np.int64], before: NDArray[np.int64], unit: int, r: int) -> None:
    after[unit] = head[r]
    before[unit] = NOWHERE
    if head[r] >= 0:
        before[head[r]] = unit
    head[r] = unit


@njit(cache=True, nogil=True)
def _unlink(head: NDArray[np.int64], after: NDArray[np.int64], before: NDArray[np.int64], unit: int, r: int) -> None:
    if before[unit] >= 0:
        after[before[unit]] = after[unit]
    else:
        head[r] = after[unit]
    if after[unit] >= 0:
        before[after[unit]] = before[unit]


@njit(cache=True, nogil=True)
def _move(place: NDArray[np.int32], units: Units, fleet: Fleet, unit: int, to: int) -> None:
    weight, tokens = units.weight[unit], units.tokens[units.row_of[unit]]
    fleet.load[place[unit]] -= weight
    fleet.room[place[unit]] += tokens
    fleet.load[to] += weight
    fleet.room[to] -= tokens
    place[unit] = to


@njit(cache=True, nogil=True)
def _go_home(place: NDArray[np.int32], units: Units, fleet: Fleet, limit: NDArray[np.float64]) -> None:
    """Undo every move that is no longer needed, heaviest first."""
    home, weight, load = units.home, units.weight, fleet.load
    changed = True
    while changed:
        changed = False
        for unit in range(len(place)):
            r = home[unit]
            if r < 0 or place[unit] == r or load[r] + weight[unit] > limit[r]:
                continue
            row = units.row_of[unit]
            if fleet.room[r] < units.tokens[row] or holds(place, units.offsets, row, r):
                continue
            _move(place, units, fleet, unit, r)
            changed = True


@njit(cache=True, nogil=True)
def _widest(place: NDArray[np.int32], units: Units, fleet: Fleet, limit: NDArray[np.float64], unit: int) -> int:
    """Return the destination with the most space under its limit that can take the unit; -1 when none can."""
    load, room, offsets, need = fleet.load, fleet.room, units.offsets, units.tokens[units.row_of[unit]]
    row = units.row_of[unit]
    single = offsets[row + 1] - offsets[row] == 1
    best, most = NOWHERE, units.weight[unit]
    for r in range(len(limit)):
        if limit[r] - load[r] >= most and room[r] >= need and (single or not holds(place, offsets, row, r)):
            best, most = r, limit[r] - load[r]
    return best


@njit(cache=True, nogil=True)
def level(place: NDArray[np.int32], units: Units, fleet: Fleet, limit: NDArray[np.float64], budget: float) -> bool:
    """Bring every destination under its limit with single moves, in a few passes over the units.

    A unit that is no heavier than the excess moves first, heaviest first, so that hardly more moves than the excess.
    For a rest that is smaller than all units, the lightest unit that covers it moves. Units away from home move before
    units at home. This suits thousands of units, where small units fill every gap.

    Parameters
    ----------
    place : int32[U]
        Destination of each unit; changes in place.
    units : Units
        The units.
    fleet : Fleet
        State of the destinations; changes in place.
    limit : float64[R]
        Highest load of each destination, requests/s.
    budget : float
        Highest weight of the units away from home, requests/s.

    Returns
    -------
    bool
        Whether every destination is under its limit; ``place`` and ``fleet`` hold the state that was reached.
    """
    weights, home, load = units.weight, units.home, fleet.load
    over = 0
    for r in range(len(limit)):
        over += load[r] > limit[r]
    spent = moved_weight(place, units) if over else 0.0
    count = len(place)
    for step in range(4 if over else 0):
        for at in range(count):
            unit = at if step % 2 == 0 else count - 1 - at
            r = place[unit]
            excess = load[r] - limit[r]
            if not excess > 0:
                continue
            weight = weights[unit]
            if weight <= 0 or (weight > excess if step % 2 == 0 else weight < excess):
                continue
            cost = weight if home[unit] == r else 0.0
            if cost > 0 and (step < 2 or spent + cost > budget):
                continue
            to = _widest(place, units, fleet, limit, unit)
            if to < 0:
                continue
            cost = _cost(weight, home[unit], r, to)
            _move(place, units, fleet, unit, to)
            spent += cost
            over -= load[r] <= limit[r]
            if over == 0:
                break
        if over == 0:
            break
    if spent > 0 and over == 0:
        _go_home(place, units, fleet, limit)
    return over == 0


@njit(cache=True, nogil=True)
def swap(
    place: NDArray[np.int32],
    units: Units,
    fleet: Fleet,
    limit: NDArray[np.float64],
    budget: float,
    noise: float,
    seed: int,
    work: NDArray[np.int64],
) -> bool:
    """Bring every destination under its limit with moves and swaps.

    Each step takes, at the most overloaded destination, the move or swap with the least moved weight per load removed.

    Parameters
    ----------
    place : int32[U]
        Destination of each unit; changes in place.
    units : Units
        The units.
    fleet : Fleet
        State of the destinations; changes in place.
    limit : float64[R]
        Highest load of each destination, requests/s.
    budget : float
        Highest weight of the units away from home, requests/s.
    noise : float
        Random factor on the score of each choice, so that several runs search in different ways; 0 for none.
    seed : int
        Seed of the random factor.
    work : int64[1]
        Pairs that may still be examined; changes in place.

    Returns
    -------
    bool
        Whether every destination is under its limit; False when no choice, budget or work is left.
    """
    offsets, row_of, weight, home = units.offsets, units.row_of, units.weight, units.home
    load, room, capacity, tokens = fleet.load, fleet.room, fleet.capacity, units.tokens
    destinations = len(load)
    head = np.full(destinations, NOWHERE, dtype=np.int64)
    after = np.empty(len(place), dtype=np.int64)
    before = np.empty(len(place), dtype=np.int64)
    for unit in range(len(place) - 1, -1, -1):  # heaviest first in each list
        if weight[unit] > 0:
            _link(head, after, before, unit, place[unit])
    state = np.array([np.uint64(seed)], dtype=np.uint64)
    left = budget - moved_weight(place, units)
    pairs = work[0]
    done = False
    for _ in range(4 * len(place) + 4 * destinations):
        r = NOWHERE
        top = 0.0
        for other in range(destinations):
            if load[other] > limit[other] and (r < 0 or load[other] / capacity[other] > top):
                r, top = other, load[other] / capacity[other]
        if r < 0:
            done = True
            break
        excess = load[r] - limit[r]
        best_score = np.inf
        best_gain = 0.0
        best_unit = NOWHERE
        best_to = NOWHERE
        best_back = NOWHERE
        unit = head[r]
        while unit >= 0 and pairs > 0:
            a = weight[unit]
            need = tokens[row_of[unit]]
            pairs -= destinations * (offsets[row_of[unit] + 1] - offsets[row_of[unit]])  # `holds` examines a whole row
            for d in range(destinations):
                if d == r or capacity[d] <= 0 or holds(place, offsets, row_of[unit], d):
                    continue
                cost = _cost(a, home[unit], r, d)
                if load[d] + a <= limit[d] and room[d] >= need:
                    if cost > left:
                        continue
                    gain = min(a, excess)
                    score = cost / gain
                    score += 1e-9 * (load[d] + a) / limit[d]  # among equal scores, the lightest destination
                    if noise > 0:
                        score *= 1.0 + noise * next_uniform(state)
                    if score < best_score or (score == best_score and gain > best_gain):
                        best_score, best_gain = score, gain
                        best_unit, best_to, best_back = unit, d, NOWHERE
                    continue
                other = head[d]
                while other >= 0:
                    b = weight[other]
                    pairs -= offsets[row_of[other] + 1] - offsets[row_of[other]]
                    if b < a and load[d] + a - b <= limit[d] and not holds(place, offsets, row_of[other], r):
                        back = tokens[row_of[other]]
                        both = cost + _cost(b, home[other], d, r)
                        if both <= left and room[d] + back >= need and room[r] + need >= back:
                            gain = min(a - b, excess)
                            score = both / gain
                            if noise > 0:
                                score *= 1.0 + noise * next_uniform(state)
                            if score < best_score:
                                best_score, best_gain = score, gain
                                best_unit, best_to, best_back = unit, d, other
                    other = after[other]
            unit = after[unit]
        if best_unit < 0 or pairs <= 0:
            break
        left -= _cost(weight[best_unit], home[best_unit], r, best_to)
        _unlink(head, after, before, best_unit, r)
        _link(head, after, before, best_unit, best_to)
        _move(place, units, fleet, best_unit, best_to)
        if best_back >= 0:
            left -= _cost(weight[best_back], home[best_back], best_to, r)
            _unlink(head, after, before, best_back, best_to)
            _link(head, after, before, best_back, r)
            _move(place, units, fleet, best_back, r)
    work[0] = pairs
    if done:
        _go_home(place, units, fleet, limit)
    return done


@njit(cache=True, nogil=True)
def search(
    start: NDArray[np.int32],
    units: Units,
    state: Fleet,
    ceiling: float,
    budget: float,
    runs: int,
    noise: float,
    work: NDArray[np.int64],
) -> tuple[bool, NDArray[np.int32], float]:
    """Bring load / capacity under ``ceiling`` from ``start``: the best of `level` and ``runs`` runs of `swap`.

    Parameters
    ----------
    start : int32[U]
        Destination of each unit at the start.
    units : Units
        The units.
    state : Fleet
        State of the destinations at the start.
    ceiling : float
        Highest load / capacity, requests/s.
    budget : float
        Highest weight of the units away from home, requests/s.
    runs : int
        Runs of `swap`.
    noise : float
        Random factor of all runs but the first, see `swap`.
    work : int64[1]
        Pairs that may still be examined; changes in place.

    Returns
    -------
    reached : bool
        Whether a placement is under the ceiling.
    place : int32[U]
        Of the placements under the ceiling, the one that moves the least; else the one with the lowest maximum.
    top : float
        Its highest load / capacity.
    """
    limit = np.where(state.capacity > 0, ceiling * state.capacity, 0.0)  # 0: no load there, and nothing fits
    found = False
    best, least, lowest = start.copy(), np.inf, np.inf
    for run in range(runs + 1):
        place = start.copy()
        fleet = Fleet(state.capacity, state.load.copy(), state.room.copy())
        if run == 0:
            reached = level(place, units, fleet, limit, budget)
        else:
            reached = swap(place, units, fleet, limit, budget, noise if run > 1 else 0.0, run - 1, work)
        top = top_of(fleet)
        if reached:
            moved = moved_weight(place, units)
            if not found or moved < least:
                best, least, lowest = place, moved, top
            found = True
            if moved == 0:
                break
        elif not found and top < lowest:
            best, lowest = place, top
        if work[0] <= 0:
            break
    return found, best, lowest
