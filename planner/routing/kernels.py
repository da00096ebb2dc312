"""Compiled inner loops of admission and placement; ties go to the lower index.

The lightest destination is kept by a winner tree: leaf r holds the load of destination r, each inner node the
index of the lighter of its two children. A changed load costs one comparison a level on its way to the root.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["admit_in_order", "max_over_mean", "place_lpt", "place_one_by_one", "tree_of", "tree_update"]


@njit(cache=True, nogil=True)
def tree_of(load: NDArray[np.float64], leaf: NDArray[np.float64], win: NDArray[np.int32]) -> None:
    """Fill ``leaf`` (float64[P], P a power of two >= R, infinite beyond R) and ``win`` (int32[2 P]) from loads."""
    size = len(leaf)
    for r in range(size):
        leaf[r] = load[r] if r < len(load) else np.inf
        win[size + r] = r
    for node in range(size - 1, 0, -1):
        a, b = win[2 * node], win[2 * node + 1]
        win[node] = b if leaf[b] < leaf[a] else a


@njit(cache=True, nogil=True, inline="always")
def tree_update(leaf: NDArray[np.float64], win: NDArray[np.int32], r: int, load: float) -> None:
    """Set the load of one destination; ``win[1]`` is the lightest afterwards."""
    leaf[r] = load
    node = (len(leaf) + r) >> 1
    while node > 0:
        a, b = win[2 * node], win[2 * node + 1]
        win[node] = b if leaf[b] < leaf[a] else a
        node >>= 1


@njit(cache=True, nogil=True)
def admit_in_order(order: NDArray[np.int64], sizes: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Admit keys in ``order`` while the budget holds; one that does not fit is skipped (eq. 3).

    ``sizes[i]`` is k of ``order[i]``.
    """
    admitted = np.empty(min(len(order), slots), dtype=np.int64)
    used = 0
    count = 0
    for at in range(len(order)):
        if used == slots:
            break
        if sizes[at] <= slots - used:
            admitted[count] = at
            used += sizes[at]
            count += 1
    return admitted[:count]


@njit(cache=True, nogil=True)
def place_lpt(
    rates: NDArray[np.float64],
    offsets: NDArray[np.int64],
    available: NDArray[np.bool_],
    load: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Give each row its least-loaded distinct destinations; adds to ``load`` in place, returns members.

    For destinations of one capacity. A row needs no more destinations than are available.
    """
    size = 1
    while size < len(load):
        size *= 2
    leaf, win = np.empty(size), np.empty(2 * size, dtype=np.int32)
    tree_of(np.where(available, load, np.inf), leaf, win)
    members = np.empty(offsets[-1], dtype=np.int32)
    for row in range(len(rates)):
        start, stop = offsets[row], offsets[row + 1]
        if stop - start == 1:
            r = win[1]
            members[start] = r
            tree_update(leaf, win, r, leaf[r] + rates[row])
            continue
        share = rates[row] / (stop - start)
        for at in range(start, stop):
            r = win[1]
            members[at] = r
            load[r] = leaf[r] + share  # remembered here while the tree holds it out
            tree_update(leaf, win, r, np.inf)
        for at in range(start, stop):
            tree_update(leaf, win, members[at], load[members[at]])
        members[start:stop].sort()
    for r in range(len(load)):
        if available[r]:
            load[r] = leaf[r]
    return members


@njit(cache=True, nogil=True)
def place_one_by_one(
    rates: NDArray[np.float64],
    offsets: NDArray[np.int64],
    available: NDArray[np.bool_],
    capacity: NDArray[np.float64],
    tokens: NDArray[np.float64],
    owner: NDArray[np.int64],
    load: NDArray[np.float64],
    room: NDArray[np.float64],
    slots: NDArray[np.int64],
    quota: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Place rows where destinations differ; a row that has no place gets members -1.

    Each share goes where ``(load + share) / capacity`` ends lowest, which for one capacity is the least-loaded,
    among the destinations with ``tokens[row]`` of room. ``load`` and what is left of the ``room`` of each
    destination (tokens), of the ``slots`` of the fleet (int64[1]) and of the ``quota`` of each owner (slots)
    change in place.
    """
    uniform = capacity.min() == capacity.max()
    members = np.full(offsets[-1], -1, dtype=np.int32)
    taken = np.zeros(len(load), dtype=np.bool_)
    for row in range(len(rates)):
        start, stop = offsets[row], offsets[row + 1]
        size = stop - start
        if size > slots[0] or size > quota[owner[row]]:
            continue
        share = rates[row] / size
        count = 0
        for at in range(start, stop):
            best = -1
            least = np.inf
            for r in range(len(load)):
                if available[r] and not taken[r] and room[r] >= tokens[row]:
                    after = load[r] if uniform else (load[r] + share) / capacity[r]
                    if after < least:
                        best, least = r, after
            if best < 0:
                break
            taken[best] = True
            members[at] = best
            count += 1
        for at in range(start, start + count):
            taken[members[at]] = False
        if start + count < stop:
            members[start:stop] = -1
            continue
        for at in range(start, stop):
            load[members[at]] += share
            room[members[at]] -= tokens[row]
        slots[0] -= size
        quota[owner[row]] -= size
        members[start:stop].sort()
    return members


@njit(cache=True, nogil=True)
def max_over_mean(load: NDArray[np.float64], capacity: NDArray[np.float64], available: NDArray[np.bool_]) -> float:
    """``max(load / capacity) * sum(capacity) / sum(load)`` over the available; 1 without load, infinite without any.

    Loads are scaled by the maximum first: plain sums near 1e-300 or 1e308 lose their digits or overflow.
    """
    top = 0.0
    count = 0
    for r in range(len(load)):
        if available[r]:
            count += 1
            top = max(top, load[r] / capacity[r])
    if count == 0:
        return np.inf
    if top == 0.0:
        return 1.0
    whole = 0.0
    scaled = 0.0
    for r in range(len(load)):
        if available[r]:
            whole += capacity[r]
            scaled += load[r] / top
    return max(1.0, whole / scaled)
