"""Compiled search for the fewest rate-weighted moves that bring every destination under a ceiling.

The planned load of a key that sits on k destinations is k *units* of ``rate / k``. A unit has a home (where it is
warm) and a place; moving one away from home costs its weight, taking it back costs nothing, and units that were
never warm are free to go anywhere.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["keep_members", "lost_members", "place_new", "rebalance"]

NOWHERE = -1


@njit(cache=True, nogil=True)
def keep_members(
    admitted: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old_row: NDArray[np.int64],
    old_offsets: NDArray[np.int64],
    old_members: NDArray[np.int32],
    old_load: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Home of each unit: the incumbent's members of the key, the most loaded ones dropped when it needs fewer."""
    home = np.full(offsets[-1], NOWHERE, dtype=np.int32)
    for row in range(len(admitted)):
        key = admitted[row]
        old = old_row[key] if key < len(old_row) else NOWHERE
        if old < 0:
            continue
        start, size = offsets[row], offsets[row + 1] - offsets[row]
        first, last = old_offsets[old], old_offsets[old + 1]
        kept = 0
        if last - first <= size:
            for at in range(first, last):
                home[start + kept] = old_members[at]
                kept += 1
            continue
        taken = np.zeros(last - first, dtype=np.bool_)
        while kept < size:
            best = NOWHERE
            for at in range(last - first):
                if not taken[at] and (
                    best < 0 or old_load[old_members[first + at]] < old_load[old_members[first + best]]
                ):
                    best = at
            taken[best] = True
            home[start + kept] = old_members[first + best]
            kept += 1
    return home


@njit(cache=True, nogil=True)
def lost_members(
    admitted: NDArray[np.int64],
    offsets: NDArray[np.int64],
    members: NDArray[np.int32],
    old_row: NDArray[np.int64],
    old_offsets: NDArray[np.int64],
    old_members: NDArray[np.int32],
) -> NDArray[np.int64]:
    """How many warm destinations each row lost that it still needed; both members ascend within a key."""
    lost = np.zeros(len(admitted), dtype=np.int64)
    for row in range(len(admitted)):
        key = admitted[row]
        old = old_row[key] if key < len(old_row) else NOWHERE
        if old < 0:
            continue
        a, a_end = offsets[row], offsets[row + 1]
        b, b_end = old_offsets[old], old_offsets[old + 1]
        needed = min(a_end - a, b_end - b)
        while a < a_end and b < b_end:
            if members[a] == old_members[b]:
                needed -= 1
                a += 1
                b += 1
            elif members[a] < old_members[b]:
                a += 1
            else:
                b += 1
        lost[row] = needed
    return lost


@njit(cache=True, nogil=True)
def _holds(place: NDArray[np.int32], offsets: NDArray[np.int64], row: int, destination: int) -> bool:
    for unit in range(offsets[row], offsets[row + 1]):  # noqa: SIM110 - compiled: no generators
        if place[unit] == destination:
            return True
    return False


@njit(cache=True, nogil=True)
def place_new(
    place: NDArray[np.int32],
    offsets: NDArray[np.int64],
    row_of: NDArray[np.int64],
    weight: NDArray[np.float64],
    load: NDArray[np.float64],
) -> None:
    """Put units without a place on the lightest destination that does not hold their key, heaviest rows first."""
    for unit in range(len(place)):
        if place[unit] >= 0:
            continue
        best = NOWHERE
        for r in range(len(load)):
            if (best < 0 or load[r] < load[best]) and not _holds(place, offsets, row_of[unit], r):
                best = r
        place[unit] = best
        load[best] += weight[unit]


@njit(cache=True, nogil=True)
def _cost(weight: float, home: int, place: int, target: int) -> float:
    """Change of the moved weight when a unit goes from `place` to `target`."""
    if home < 0 or place == target:
        return 0.0
    return (0.0 if target == home else weight) - (0.0 if place == home else weight)


@njit(cache=True, nogil=True)
def _next_random(state: NDArray[np.uint64]) -> float:
    """Uniform in [0, 1): xorshift64*, the same on every machine."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


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
def _go_home(
    place: NDArray[np.int32],
    home: NDArray[np.int32],
    offsets: NDArray[np.int64],
    row_of: NDArray[np.int64],
    weight: NDArray[np.float64],
    load: NDArray[np.float64],
    ceiling: float,
) -> None:
    """Take back every move that is not needed any more, heaviest first."""
    changed = True
    while changed:
        changed = False
        for unit in range(len(place)):
            r = home[unit]
            if r < 0 or place[unit] == r or load[r] + weight[unit] > ceiling:
                continue
            if _holds(place, offsets, row_of[unit], r):
                continue
            load[place[unit]] -= weight[unit]
            load[r] += weight[unit]
            place[unit] = r
            changed = True


@njit(cache=True, nogil=True)
def _one_that_fits(
    head: NDArray[np.int64],
    after: NDArray[np.int64],
    place: NDArray[np.int32],
    offsets: NDArray[np.int64],
    row_of: NDArray[np.int64],
    weight: NDArray[np.float64],
    load: NDArray[np.float64],
    ceiling: float,
    r: int,
) -> tuple[int, int]:
    """A unit of ``r`` for the lightest destination: the first no heavier than the excess, else the lightest heavier.

    Among thousands of units such a one moves no more than what is too much, without a look at all pairs.
    """
    to = 0
    for d in range(len(load)):
        if load[d] < load[to]:
            to = d
    excess = load[r] - ceiling
    heavier = NOWHERE
    unit = head[r]
    while unit >= 0:
        a = weight[unit]
        if a > 0 and load[to] + a <= ceiling and not _holds(place, offsets, row_of[unit], to):
            if a <= excess:
                return unit, to
            heavier = unit
        unit = after[unit]
    return heavier, to


@njit(cache=True, nogil=True)
def rebalance(
    place: NDArray[np.int32],
    home: NDArray[np.int32],
    offsets: NDArray[np.int64],
    row_of: NDArray[np.int64],
    weight: NDArray[np.float64],
    load: NDArray[np.float64],
    ceiling: float,
    swaps: bool,
    noise: float,
    seed: int,
) -> bool:
    """Move units until no destination is above ``ceiling``; ``place`` and ``load`` are changed in place.

    Always from the most overloaded destination, the move or swap with the least moved weight for the load that it
    takes off. ``noise`` shuffles near-equal choices, so that several runs search different ways.

    Returns
    -------
    bool
        Whether every destination is under the ceiling; False when the search got stuck.
    """
    destinations = len(load)
    units = len(place)
    head = np.full(destinations, NOWHERE, dtype=np.int64)
    after = np.empty(units, dtype=np.int64)
    before = np.empty(units, dtype=np.int64)
    for unit in range(units - 1, -1, -1):  # heaviest first in each list
        _link(head, after, before, unit, place[unit])
    state = np.array([np.uint64(seed) * np.uint64(2) + np.uint64(1)], dtype=np.uint64)
    for _ in range(8):
        _next_random(state)
    for _ in range(4 * units + 4 * destinations):
        r = 0
        for other in range(destinations):
            if load[other] > load[r]:
                r = other
        excess = load[r] - ceiling
        if excess <= 0:
            _go_home(place, home, offsets, row_of, weight, load, ceiling)
            return True
        best_score = np.inf
        best_gain = 0.0
        best_unit = NOWHERE
        best_to = NOWHERE
        best_back = NOWHERE
        if not swaps:
            best_unit, best_to = _one_that_fits(head, after, place, offsets, row_of, weight, load, ceiling, r)
        unit = head[r] if best_unit < 0 else NOWHERE
        while unit >= 0:
            a = weight[unit]
            if a > 0:
                for d in range(destinations):
                    if d == r or _holds(place, offsets, row_of[unit], d):
                        continue
                    if load[d] + a <= ceiling:
                        gain = min(a, excess)
                        score = _cost(a, home[unit], r, d) / gain
                        score += 1e-9 * (load[d] + a) / ceiling  # of equal ones the lightest destination
                        if noise > 0:
                            score *= 1.0 + noise * _next_random(state)
                        if score < best_score or (score == best_score and gain > best_gain):
                            best_score, best_gain = score, gain
                            best_unit, best_to, best_back = unit, d, NOWHERE
                    elif swaps:
                        other = head[d]
                        while other >= 0:
                            b = weight[other]
                            if b < a and load[d] + a - b <= ceiling and not _holds(place, offsets, row_of[other], r):
                                gain = min(a - b, excess)
                                score = (_cost(a, home[unit], r, d) + _cost(b, home[other], d, r)) / gain
                                if noise > 0:
                                    score *= 1.0 + noise * _next_random(state)
                                if score < best_score:
                                    best_score, best_gain = score, gain
                                    best_unit, best_to, best_back = unit, d, other
                            other = after[other]
            unit = after[unit]
        if best_unit < 0:
            return False
        a = weight[best_unit]
        _unlink(head, after, before, best_unit, r)
        _link(head, after, before, best_unit, best_to)
        place[best_unit] = best_to
        load[r] -= a
        load[best_to] += a
        if best_back >= 0:
            b = weight[best_back]
            _unlink(head, after, before, best_back, best_to)
            _link(head, after, before, best_back, r)
            place[best_back] = r
            load[best_to] -= b
            load[r] += b
    return False
