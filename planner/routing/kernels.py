"""Compiled inner loops of the planner; destinations are ordered by (load, index), so ties are settled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["admit_in_order", "choose_backups", "place_lpt"]


@njit(cache=True)
def _lighter(load: NDArray[np.float64], a: int, b: int) -> bool:
    return load[a] < load[b] or (load[a] == load[b] and a < b)


@njit(cache=True)
def _sift_down(heap: NDArray[np.int32], size: int, at: int, load: NDArray[np.float64]) -> None:
    item = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _lighter(load, heap[child + 1], heap[child]):
            child += 1
        if not _lighter(load, heap[child], item):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = item


@njit(cache=True)
def _sift_up(heap: NDArray[np.int32], at: int, load: NDArray[np.float64]) -> None:
    item = heap[at]
    while at > 0:
        parent = (at - 1) // 2
        if not _lighter(load, item, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item


@njit(cache=True)
def _heap_of(load: NDArray[np.float64]) -> NDArray[np.int32]:
    heap = np.arange(len(load)).astype(np.int32)
    for at in range(len(load) // 2 - 1, -1, -1):
        _sift_down(heap, len(load), at, load)
    return heap


@njit(cache=True)
def admit_in_order(order: NDArray[np.int64], sizes: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Admit keys in ``order`` while the budget holds; one that does not fit is skipped (eq. 3)."""
    admitted = np.empty(min(len(order), slots), dtype=np.int64)
    used = 0
    count = 0
    for key in order:
        if used == slots:
            break
        if sizes[key] <= slots - used:
            admitted[count] = key
            used += sizes[key]
            count += 1
    return admitted[:count].copy()


@njit(cache=True)
def place_lpt(rates: NDArray[np.float64], offsets: NDArray[np.int64], load: NDArray[np.float64]) -> NDArray[np.int32]:
    """Give each row its least-loaded distinct destinations; adds to ``load`` in place, returns members."""
    heap = _heap_of(load)
    size = len(heap)
    members = np.empty(offsets[-1], dtype=np.int32)
    for row in range(len(rates)):
        start, stop = offsets[row], offsets[row + 1]
        share = rates[row] / (stop - start)
        if stop - start == 1:
            members[start] = heap[0]
            load[heap[0]] += share
            _sift_down(heap, size, 0, load)
            continue
        left = size
        for at in range(start, stop):
            members[at] = heap[0]
            left -= 1
            heap[0] = heap[left]
            _sift_down(heap, left, 0, load)
        for at in range(start, stop):
            load[members[at]] += share
            heap[left] = members[at]
            _sift_up(heap, left, load)
            left += 1
        members[start:stop].sort()
    return members


@njit(cache=True)
def choose_backups(
    rates: NDArray[np.float64],
    offsets: NDArray[np.int64],
    members: NDArray[np.int32],
    load: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Pick the lightest non-member of each row; ``load`` (a copy) also counts the backups given so far."""
    heap = _heap_of(load)
    size = len(heap)
    backup = np.full(len(rates), -1, dtype=np.int32)
    held = np.empty(size, dtype=np.int32)
    is_member = np.zeros(size, dtype=np.bool_)
    for row in range(len(rates)):
        start, stop = offsets[row], offsets[row + 1]
        if stop - start >= size:
            continue
        for at in range(start, stop):
            is_member[members[at]] = True
        left = size
        count = 0
        while is_member[heap[0]]:
            held[count] = heap[0]
            count += 1
            left -= 1
            heap[0] = heap[left]
            _sift_down(heap, left, 0, load)
        backup[row] = heap[0]
        load[heap[0]] += rates[row] / (stop - start)
        _sift_down(heap, left, 0, load)
        for at in range(count):
            heap[left] = held[at]
            _sift_up(heap, left, load)
            left += 1
        for at in range(start, stop):
            is_member[members[at]] = False
    return backup
