"""Compiled inner loops of admission and placement; ties go to the lower index.

A binary heap of (load, destination) pairs keeps the lightest destination on top. Two arrays hold it: ``val`` (float64)
and ``who`` (int32). The order of pairs is total, so the result does not depend on the history of the heap.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "admit_in_order",
    "ascend",
    "heap_of",
    "heap_pop",
    "heap_push",
    "heap_settle",
    "is_uniform",
    "max_over_mean",
    "place_lpt",
    "place_one_by_one",
]


@njit(cache=True, nogil=True)
def heap_settle(val: NDArray[np.float64], who: NDArray[np.int32], size: int, at: int, v: float, w: int) -> None:
    """Place the pair (v, w) at or below position ``at``; the pair that was there is dropped.

    Parameters
    ----------
    val : float64[at least size]
        Load of each heap entry; changes in place.
    who : int32[at least size]
        Destination of each heap entry; changes in place.
    size : int
        Entries in the heap.
    at : int
        Position in the heap.
    v : float
        Load of the pair.
    w : int
        Destination of the pair.
    """
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and (
            (val[child + 1] < val[child]) | ((val[child + 1] == val[child]) & (who[child + 1] < who[child]))
        ):
            child += 1
        if (v < val[child]) | ((v == val[child]) & (w < who[child])):
            break
        val[at] = val[child]
        who[at] = who[child]
        at = child
    val[at] = v
    who[at] = w


@njit(cache=True, nogil=True)
def heap_of(
    load: NDArray[np.float64], takes: NDArray[np.bool_], val: NDArray[np.float64], who: NDArray[np.int32]
) -> int:
    """Fill the heap with the available destinations.

    Parameters
    ----------
    load : float64[R]
        Load of each destination, in the unit that the heap compares.
    takes : bool[R]
        Whether each destination is available.
    val : float64[at least size]
        Load of each heap entry; changes in place.
    who : int32[at least size]
        Destination of each heap entry; changes in place.

    Returns
    -------
    int
        Entries in the heap.
    """
    size = 0
    for r in range(len(load)):
        if takes[r]:
            val[size] = load[r]
            who[size] = r
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        heap_settle(val, who, size, at, val[at], int(who[at]))
    return size


@njit(cache=True, nogil=True)
def heap_pop(val: NDArray[np.float64], who: NDArray[np.int32], size: int) -> int:
    """Drop the top pair; read ``val[0]`` and ``who[0]`` before the call.

    Parameters
    ----------
    val : float64[at least size]
        Load of each heap entry; changes in place.
    who : int32[at least size]
        Destination of each heap entry; changes in place.
    size : int
        Entries in the heap.

    Returns
    -------
    int
        Entries that remain.
    """
    size -= 1
    if size:
        heap_settle(val, who, size, 0, val[size], int(who[size]))
    return size


@njit(cache=True, nogil=True)
def heap_push(val: NDArray[np.float64], who: NDArray[np.int32], size: int, v: float, w: int) -> int:
    """Add a pair.

    Parameters
    ----------
    val : float64[at least size]
        Load of each heap entry; changes in place.
    who : int32[at least size]
        Destination of each heap entry; changes in place.
    size : int
        Entries in the heap.
    v : float
        Load of the pair.
    w : int
        Destination of the pair.

    Returns
    -------
    int
        Entries after the addition.
    """
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if (val[parent] < v) | ((val[parent] == v) & (who[parent] < w)):
            break
        val[at] = val[parent]
        who[at] = who[parent]
        at = parent
    val[at] = v
    who[at] = w
    return size + 1


@njit(cache=True, nogil=True)
def is_uniform(capacity: NDArray[np.float64], available: NDArray[np.bool_]) -> bool:
    """Return whether all available destinations have the same speed."""
    speed = 0.0
    for r in range(len(capacity)):
        if available[r]:
            if speed > 0.0 and capacity[r] != speed:
                return False
            speed = capacity[r]
    return True


@njit(cache=True, nogil=True)
def ascend(members: NDArray[np.int32], start: int, stop: int) -> None:
    """Sort the members of one row in ascending order, in place.

    Parameters
    ----------
    members : int32[sum k]
        Members of all rows; changes in place.
    start, stop : int
        The row is ``members[start:stop]``.
    """
    for at in range(start + 1, stop):
        member = members[at]
        back = at
        while back > start and members[back - 1] > member:
            members[back] = members[back - 1]
            back -= 1
        members[back] = member


@njit(cache=True, nogil=True)
def admit_in_order(sizes: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Return the positions of the keys that eq. 3 admits: in turn; a key that does not fit is skipped."""
    admitted = np.empty(min(len(sizes), slots), dtype=np.int64)
    used = 0
    count = 0
    for at in range(len(sizes)):
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
    """Place each row on its least-loaded distinct destinations (LPT, Algorithm 1), which must have equal capacity.

    Parameters
    ----------
    rates : float64[A]
        Requests/s of each row, in the order of placement.
    offsets : int64[A + 1]
        Row ``i`` takes ``offsets[i + 1] - offsets[i]`` destinations, no more than are available.
    available : bool[R]
        Whether each destination takes keys.
    load : float64[R]
        Requests/s of each destination; the placement adds to it in place.

    Returns
    -------
    int32[offsets[A]]
        Members of each row, ascending within a row.
    """
    val, who = np.empty(len(load)), np.empty(len(load), dtype=np.int32)
    size = heap_of(load, available, val, who)
    members = np.empty(offsets[-1], dtype=np.int32)
    for row in range(len(rates)):
        start, stop = offsets[row], offsets[row + 1]
        if stop - start == 1:
            members[start] = who[0]
            heap_settle(val, who, size, 0, val[0] + rates[row], int(who[0]))
            continue
        share = rates[row] / (stop - start)
        for at in range(start, stop):
            members[at] = who[0]
            load[who[0]] = val[0] + share
            size = heap_pop(val, who, size)
        for at in range(start, stop):
            size = heap_push(val, who, size, load[members[at]], int(members[at]))
        ascend(members, start, stop)
    for at in range(size):
        load[who[at]] = val[at]
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
    """Place rows on destinations that differ in capacity or room; a row without a place gets members -1.

    Each share goes to the available destination with ``tokens[row]`` of room where ``(load + share) / capacity`` ends
    lowest; with one capacity this is the least-loaded destination.

    Parameters
    ----------
    rates : float64[A]
        Requests/s of each row, in the order of placement.
    offsets : int64[A + 1]
        Row ``i`` takes ``offsets[i + 1] - offsets[i]`` destinations.
    available : bool[R]
        Whether each destination takes keys.
    capacity : float64[R]
        Relative speed of each destination.
    tokens : float64[A]
        KV tokens of one copy of each row.
    owner : int64[A]
        Tenant of each row, an index into ``quota``.
    load : float64[R]
        Requests/s of each destination; changes in place.
    room : float64[R]
        KV tokens that each destination may still take; changes in place.
    slots : int64[1]
        Slots that the fleet may still take; changes in place.
    quota : int64[T]
        Slots that each tenant may still take; changes in place.

    Returns
    -------
    int32[offsets[A]]
        Members of each row, ascending within a row.
    """
    uniform = is_uniform(capacity, available)
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
        ascend(members, start, stop)
    return members


@njit(cache=True, nogil=True)
def max_over_mean(load: NDArray[np.float64], capacity: NDArray[np.float64], available: NDArray[np.bool_]) -> float:
    """Return ``max(load / capacity) * sum(capacity) / sum(load)`` over the available destinations.

    Loads are scaled by the maximum first: plain sums near 1e-300 or 1e308 lose digits or overflow.

    Parameters
    ----------
    load : float64[R]
        Requests/s of each destination.
    capacity : float64[R]
        Relative speed of each destination.
    available : bool[R]
        Whether each destination takes keys.

    Returns
    -------
    float
        At least 1; 1 without load, infinite without an available destination.
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
