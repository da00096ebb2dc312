"""N-1: where keys go when a destination is lost, and how loaded the survivors are then."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.kernels import max_over_mean, tree_of, tree_update

__all__ = ["plan_losses"]


@njit(cache=True, nogil=True)
def _units_by_destination(
    offsets: NDArray[np.int64], members: NDArray[np.int32], destinations: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows on each destination, in row order: ``rows[first[r]:first[r + 1]]``."""
    first = np.zeros(destinations + 1, dtype=np.int64)
    for r in members:
        first[r + 1] += 1
    for r in range(destinations):
        first[r + 1] += first[r]
    at = first[:-1].copy()
    rows = np.empty(len(members), dtype=np.int64)
    for row in range(len(offsets) - 1):
        for unit in range(offsets[row], offsets[row + 1]):
            r = members[unit]
            rows[at[r]] = row
            at[r] += 1
    return first, rows


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
    """Backups of keys on several destinations, which no single loss takes: the lightest that is no member."""
    uniform = capacity.min() == capacity.max()
    extra = np.where(available, load, np.inf)
    size = 1
    while size < len(load):
        size *= 2
    leaf, win = np.empty(size), np.empty(2 * size, dtype=np.int32)
    tree_of(extra, leaf, win)
    for row in range(len(rates)):
        start, stop = offsets[row], offsets[row + 1]
        if stop - start < 2:
            continue
        for at in range(start, stop):
            tree_update(leaf, win, members[at], np.inf)
        best = win[1]
        if not uniform:
            least = np.inf
            for r in range(len(load)):
                if leaf[r] / capacity[r] < least:
                    best, least = r, leaf[r] / capacity[r]
        if leaf[best] < np.inf:
            backup[row] = best
            extra[best] += rates[row] / (stop - start)
            tree_update(leaf, win, best, extra[best])
        for at in range(start, stop):
            tree_update(leaf, win, members[at], extra[members[at]])


@njit(cache=True, nogil=True)
def plan_losses(
    rates: NDArray[np.float64],
    offsets: NDArray[np.int64],
    members: NDArray[np.int32],
    available: NDArray[np.bool_],
    capacity: NDArray[np.float64],
    cold: NDArray[np.float64],
    load: NDArray[np.float64],
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Choose the backup of each row, and tell max/mean of the survivors after each single loss.

    For each destination f, as if it were lost alone: its cold load spreads over the survivors in proportion to
    capacity, as Flat-LB would do; its share of a key on several destinations goes to the others evenly; and its
    other keys are placed by LPT (Algorithm 1) on the survivors, which gives their backups. So the backups of one
    destination's keys are spread, and whichever one is lost, the survivors stay as even as LPT makes them. The
    paper leaves a destination that dies inside an interval open.

    Rows stand in descending rate. Cost: O(sum k log R + R^2 + sum k^2).

    Returns
    -------
    int32[A], float64[R]
        Backup of each row, -1 where there is none; imbalance after each loss, NaN where not available.
    """
    destinations = len(load)
    backup = np.full(len(rates), -1, dtype=np.int32)
    after_loss = np.full(destinations, np.nan)
    first, rows = _units_by_destination(offsets, members, destinations)
    uniform = capacity.min() == capacity.max()
    size = 1
    while size < destinations:
        size *= 2
    leaf, win = np.empty(size), np.empty(2 * size, dtype=np.int32)
    survives = available.copy()
    for lost in range(destinations):
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
            else:
                after[r] = np.inf
        for unit in range(first[lost], first[lost + 1]):
            row = rows[unit]
            start, stop = offsets[row], offsets[row + 1]
            if stop - start > 1:
                part = rates[row] / (stop - start) / (stop - start - 1)
                for at in range(start, stop):
                    if members[at] != lost:
                        after[members[at]] += part
        tree_of(after, leaf, win)
        for unit in range(first[lost], first[lost + 1]):
            row = rows[unit]
            if offsets[row + 1] - offsets[row] > 1:
                continue
            best = win[1]
            if not uniform:
                least = np.inf
                for r in range(destinations):
                    relative = (leaf[r] + rates[row]) / capacity[r]
                    if survives[r] and relative < least:
                        best, least = r, relative
            backup[row] = best
            tree_update(leaf, win, best, leaf[best] + rates[row])
        for r in range(destinations):
            after[r] = leaf[r]
        after_loss[lost] = max_over_mean(after, capacity, survives)
        survives[lost] = True
    _second_choice(rates, offsets, members, available, capacity, load, backup)
    return backup, after_loss
