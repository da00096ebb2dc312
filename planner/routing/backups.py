"""N-1: the backup of each key, and the load of the survivors after the loss of one destination."""

from __future__ import annotations

import os
import threading

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.kernels import heap_of, heap_pop, heap_push, heap_settle, is_uniform, max_over_mean

__all__ = ["plan_losses"]

MANY = 200_000  # from this number of units on, a second thread saves time


@njit(cache=True, nogil=True)
def _units_by_destination(
    rates: NDArray[np.float64], offsets: NDArray[np.int64], members: NDArray[np.int32], destinations: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """List the rows and rates that each destination r holds, in row order, at ``first[r]:first[r + 1]``.

    The rate of a row on several destinations is stored as a negative number (no such row has rate 0).
    """
    first = np.zeros(destinations + 1, dtype=np.int64)
    for r in members:
        first[r + 1] += 1
    for r in range(destinations):
        first[r + 1] += first[r]
    at = first[:-1].copy()
    rows = np.empty(len(members), dtype=np.int32)
    rate = np.empty(len(members))
    for row in range(len(offsets) - 1):
        alone = offsets[row + 1] - offsets[row] == 1
        for unit in range(offsets[row], offsets[row + 1]):
            r = members[unit]
            rows[at[r]] = row
            rate[at[r]] = rates[row] if alone else -rates[row]
            at[r] += 1
    return first, rows, rate


@njit(cache=True, nogil=True)
def _second_choice(
    rates: NDArray[np.float64],
    offsets: NDArray[np.int64],
    members: NDArray[np.int32],
    available: NDArray[np.bool_],
    capacity: NDArray[np.float64],
    load: NDArray[np.float64],
    backup: NDArray[np.int32],
) -> None:
    """Choose backups of keys on several destinations: the lightest destination that is not a member."""
    relative = load / capacity
    is_member = np.zeros(len(load), dtype=np.bool_)
    val, who = np.empty(len(load)), np.empty(len(load), dtype=np.int32)
    held, held_who = np.empty(len(load)), np.empty(len(load), dtype=np.int32)
    size = heap_of(relative, available, val, who)
    for row in range(len(rates)):
        start, stop = offsets[row], offsets[row + 1]
        if stop - start < 2 or stop - start >= size:
            continue
        for at in range(start, stop):
            is_member[members[at]] = True
        count = 0
        while is_member[who[0]]:
            held[count], held_who[count] = val[0], who[0]
            count += 1
            size = heap_pop(val, who, size)
        best = int(who[0])
        backup[row] = best
        heap_settle(val, who, size, 0, val[0] + rates[row] / (stop - start) / capacity[best], best)
        for at in range(count):
            size = heap_push(val, who, size, held[at], int(held_who[at]))
        for at in range(start, stop):
            is_member[members[at]] = False


@njit(cache=True, nogil=True)
def _lose_each(
    begin: int,
    end: int,
    offsets: NDArray[np.int64],
    members: NDArray[np.int32],
    first: NDArray[np.int64],
    rows: NDArray[np.int32],
    rate: NDArray[np.float64],
    available: NDArray[np.bool_],
    capacity: NDArray[np.float64],
    cold: NDArray[np.float64],
    load: NDArray[np.float64],
    backup: NDArray[np.int32],
    after_loss: NDArray[np.float64],
) -> None:
    """Run `plan_losses` for the destinations ``begin`` to ``end - 1``; threads may share it, for their rows differ."""
    destinations = len(load)
    uniform = is_uniform(capacity, available)
    val, who = np.empty(destinations), np.empty(destinations, dtype=np.int32)
    survives = available.copy()
    for lost in range(begin, end):
        if not available[lost]:
            continue
        survives[lost] = False
        others = 0.0
        for r in range(destinations):
            if survives[r]:
                others += capacity[r]
        if others == 0.0:
            after_loss[lost] = np.inf
            survives[lost] = True
            continue
        after = load.copy()
        for r in range(destinations):
            if survives[r]:
                after[r] += cold[lost] * (capacity[r] / others)
        for unit in range(first[lost], first[lost + 1]):
            if rate[unit] < 0.0:
                start, stop = offsets[rows[unit]], offsets[rows[unit] + 1]
                part = -rate[unit] / (stop - start) / (stop - start - 1)
                for at in range(start, stop):
                    if members[at] != lost:
                        after[members[at]] += part
        if uniform:
            size = heap_of(after, survives, val, who)
            for unit in range(first[lost], first[lost + 1]):
                if rate[unit] >= 0.0:
                    backup[rows[unit]] = who[0]
                    heap_settle(val, who, size, 0, val[0] + rate[unit], int(who[0]))
            for at in range(size):
                after[who[at]] = val[at]
        else:
            for unit in range(first[lost], first[lost + 1]):
                if rate[unit] < 0.0:
                    continue
                best = -1
                least = np.inf
                for r in range(destinations):
                    relative = (after[r] + rate[unit]) / capacity[r]
                    if survives[r] and relative < least:
                        best, least = r, relative
                backup[rows[unit]] = best
                after[best] += rate[unit]
        after_loss[lost] = max_over_mean(after, capacity, survives)
        survives[lost] = True


def plan_losses(
    rates: NDArray[np.float64],
    offsets: NDArray[np.int64],
    members: NDArray[np.int32],
    available: NDArray[np.bool_],
    capacity: NDArray[np.float64],
    cold: NDArray[np.float64],
    load: NDArray[np.float64],
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Choose the backup of each row, and compute max/mean of the survivors after each single loss.

    For each destination f, as if it alone were lost: its cold load spreads over the survivors in proportion to
    capacity, as Flat-LB spreads it; its share of a key on several destinations goes to the other members evenly; its
    other keys are placed by LPT (Algorithm 1) on the survivors, and this placement gives their backups. So the backups
    of the keys of one destination are spread, and after any single loss the survivors are as even as LPT makes them.
    The paper has no answer to a destination that dies inside an interval.

    Cost: O(sum k log R + R^2 + sum k^2).

    Parameters
    ----------
    rates : float64[A]
        Requests/s of each row, descending.
    offsets : int64[A + 1]
        ``members[offsets[i]:offsets[i + 1]]`` are the destinations of row ``i``.
    members : int32[sum k]
        Destination indices.
    available : bool[R]
        Whether each destination takes keys.
    capacity : float64[R]
        Relative speed of each destination.
    cold : float64[R]
        Requests/s of not-planned traffic on each destination.
    load : float64[R]
        Requests/s of each destination, the cold load included.

    Returns
    -------
    backup : int32[A]
        Backup of each row, -1 where there is none.
    after_loss : float64[R]
        Imbalance after each loss; NaN where the destination is not available.
    """
    destinations = len(load)
    backup = np.full(len(rates), -1, dtype=np.int32)
    after_loss = np.full(destinations, np.nan)
    held = _units_by_destination(rates, offsets, members, destinations)
    rest = (offsets, members, *held, available, capacity, cold, load, backup, after_loss)
    if len(members) < MANY or (os.cpu_count() or 1) < 2:
        _lose_each(0, destinations, *rest)
    else:
        half = destinations // 2
        other = threading.Thread(target=_lose_each, args=(0, half, *rest))
        other.start()
        _lose_each(half, destinations, *rest)
        other.join()
    _second_choice(rates, offsets, members, available, capacity, load, backup)
    return backup, after_loss
