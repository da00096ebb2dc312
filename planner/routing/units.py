"""Compiled passes over the units of a plan: home, first place, and comparison with the incumbent.

The planned load of a key on k destinations is k *units* of ``rate / k``. A unit has a home (where it is warm) and a
place. Units are in the order of their rows, so their rates descend.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.kernels import ascend

__all__ = ["NOWHERE", "Fleet", "Held", "Rows", "Units", "holds", "keep_members", "place_new", "recount", "top_of"]

NOWHERE = -1


class Units(NamedTuple):
    """Constant part of a search; U units of A rows.

    ``offsets`` int64[A + 1], ``row_of`` int32[U], ``weight`` float64[U] in requests/s, ``home`` int32[U] (-1: no home),
    ``tokens`` float64[A]: KV tokens of one warm copy, 0 without a limit of tokens.
    """

    offsets: NDArray[np.int64]
    row_of: NDArray[np.int32]
    weight: NDArray[np.float64]
    home: NDArray[np.int32]
    tokens: NDArray[np.float64]


class Fleet(NamedTuple):
    """State of R destinations; ``load`` in requests/s and ``room`` in KV tokens change with every move.

    ``capacity`` is 0 for a destination that is not available.
    """

    capacity: NDArray[np.float64]
    load: NDArray[np.float64]
    room: NDArray[np.float64]


class Rows(NamedTuple):
    """Admitted keys: ``admitted`` int64[A] key indices, ``offsets`` int64[A + 1], ``rates`` float64[A], requests/s."""

    admitted: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rates: NDArray[np.float64]


class Held(NamedTuple):
    """The incumbent's assignment: ``row`` int64[B], ``offsets``, ``members`` and ``load`` as in `RoutingTable`."""

    row: NDArray[np.int64]
    offsets: NDArray[np.int64]
    members: NDArray[np.int32]
    load: NDArray[np.float64]


@njit(cache=True, nogil=True)
def holds(place: NDArray[np.int32], offsets: NDArray[np.int64], row: int, destination: int) -> bool:
    """Return whether a unit of the row is at ``destination``.

    Parameters
    ----------
    place : int32[U]
        Destination of each unit, -1 for none.
    offsets : int64[A + 1]
        First unit of each row.
    row, destination : int
        Indices.

    Returns
    -------
    bool
        True when the destination holds a unit of the row.
    """
    for unit in range(offsets[row], offsets[row + 1]):  # noqa: SIM110 - compiled: no generators
        if place[unit] == destination:
            return True
    return False


@njit(cache=True, nogil=True)
def top_of(fleet: Fleet) -> float:
    """Return the highest load / capacity."""
    capacity, load = fleet.capacity, fleet.load
    top = 0.0
    for r in range(len(load)):
        if capacity[r] > 0:
            top = max(top, load[r] / capacity[r])
    return top


@njit(cache=True, nogil=True)
def keep_members(rows: Rows, tokens: NDArray[np.float64], held: Held, fleet: Fleet) -> tuple[Units, float]:
    """Give each unit its home: an available member of the key in the incumbent; add the load of the homes to ``fleet``.

    A key that needs fewer destinations drops the most loaded. Where the homes need more room than a destination has
    (prefixes grew), units of the lowest rate leave first.

    Parameters
    ----------
    rows : Rows
        Admitted keys of the new plan.
    tokens : float64[A]
        KV tokens of one warm copy of each row.
    held : Held
        The incumbent's assignment.
    fleet : Fleet
        State of the destinations; changes in place.

    Returns
    -------
    units : Units
        The units with their homes.
    forced : float
        Requests/s of the shares that must move in any case.
    """
    # Local names: compiled code counts a reference at each use of a tuple's array.
    admitted, offsets, rates = rows.admitted, rows.offsets, rows.rates
    old_row, old_offsets, old_members, old_load = held.row, held.offsets, held.members, held.load
    capacity, load, room = fleet.capacity, fleet.load, fleet.room
    count = offsets[-1]
    home = np.full(count, NOWHERE, dtype=np.int32)
    row_of = np.empty(count, dtype=np.int32)
    weight = np.empty(count, dtype=np.float64)
    taken = np.zeros(len(load), dtype=np.bool_)
    forced = 0.0
    for row in range(len(admitted)):
        start, size = offsets[row], offsets[row + 1] - offsets[row]
        key = admitted[row]
        share = rates[row] / size
        for unit in range(start, start + size):
            row_of[unit] = row
            weight[unit] = share
        old = old_row[key] if key < len(old_row) else NOWHERE
        if old < 0:
            continue
        first, last = old_offsets[old], old_offsets[old + 1]
        if size == 1 and last == first + 1 and capacity[old_members[first]] > 0:  # the usual case
            best = old_members[first]
            home[start] = best
            load[best] += share
            room[best] -= tokens[row]
            continue
        alive = 0
        for at in range(first, last):
            taken[old_members[at]] = capacity[old_members[at]] <= 0
            alive += not taken[old_members[at]]
        kept = min(size, alive)
        forced += share * (min(size, last - first) - kept)
        for unit in range(start, start + kept):
            best = NOWHERE
            for at in range(first, last):
                r = old_members[at]
                if not taken[r] and (
                    best < 0 or (alive > size and old_load[r] / capacity[r] < old_load[best] / capacity[best])
                ):
                    best = r
            taken[best] = True
            home[unit] = best
            load[best] += share
            room[best] -= tokens[row]
    if len(room) and room.min() < 0:
        for unit in range(count - 1, -1, -1):
            r = home[unit]
            if r >= 0 and room[r] < 0 and tokens[row_of[unit]] > 0:
                home[unit] = NOWHERE
                load[r] -= weight[unit]
                room[r] += tokens[row_of[unit]]
                forced += weight[unit]
    return Units(offsets, row_of, weight, home, tokens), forced


@njit(cache=True, nogil=True)
def place_new(place: NDArray[np.int32], units: Units, fleet: Fleet) -> NDArray[np.int64]:
    """Put units without a place on the lightest destination that has room and not their key, heaviest rows first.

    A row with a unit that fits nowhere gives up all its places.

    Parameters
    ----------
    place : int32[U]
        Destination of each unit, -1 for none; changes in place.
    units : Units
        The units.
    fleet : Fleet
        State of the destinations; changes in place.

    Returns
    -------
    int64[]
        Rows that fit nowhere, ascending.
    """
    capacity, load, room = fleet.capacity, fleet.load, fleet.room
    offsets, row_of, weight, tokens = units.offsets, units.row_of, units.weight, units.tokens
    relative = np.full(len(load), np.inf)
    for r in range(len(relative)):
        if capacity[r] > 0:
            relative[r] = load[r] / capacity[r]
    refused = np.empty(len(tokens), dtype=np.int64)
    count = 0
    for unit in range(len(place)):
        row = row_of[unit]
        if place[unit] >= 0 or (count and refused[count - 1] == row):
            continue
        best = NOWHERE
        for r in range(len(relative)):
            if (
                capacity[r] > 0
                and (best < 0 or relative[r] < relative[best])
                and room[r] >= tokens[row]
                and not holds(place, offsets, row, r)
            ):
                best = r
        if best < 0:
            refused[count] = row
            count += 1
            for other in range(offsets[row], offsets[row + 1]):
                r = place[other]
                if r >= 0:
                    load[r] -= weight[other]
                    room[r] += tokens[row]
                    relative[r] = load[r] / capacity[r]
                    place[other] = NOWHERE
            continue
        place[unit] = best
        load[best] += weight[unit]
        room[best] -= tokens[row]
        relative[best] = load[best] / capacity[best]
    return refused[:count].copy()


@njit(cache=True, nogil=True)
def recount(
    rows: Rows,
    place: NDArray[np.int32],
    load: NDArray[np.float64],
    held: Held,
    prefix_tokens: NDArray[np.float64],
) -> tuple[NDArray[np.int64], float, float]:
    """Sort the members of each row, add the units to ``load``, and compare with the incumbent's members.

    A member is warm where the incumbent held the key, whichever of its homes a unit came from.

    Parameters
    ----------
    rows : Rows
        Admitted keys of the new plan.
    place : int32[U]
        Destination of each unit; sorted in place within each row.
    load : float64[R]
        Cold load, requests/s; the planned load is added in place.
    held : Held
        The incumbent's assignment.
    prefix_tokens : float64[B]
        Prefill tokens of the warm prefix of each key; empty where they are not known.

    Returns
    -------
    moved : int64[]
        Rows that lost a warm destination that they still need.
    moved_rate : float
        Requests/s of the shares that these rows lost.
    rewarm_tokens : float
        Tokens of the (key, member) pairs that the incumbent does not hold; 0 without ``prefix_tokens``.
    """
    admitted, offsets, rates = rows.admitted, rows.offsets, rows.rates
    old_row, old_offsets, old_members = held.row, held.offsets, held.members
    moved = np.empty(len(admitted), dtype=np.int64)
    count = 0
    moved_rate = 0.0
    rewarm = 0.0
    for row in range(len(admitted)):
        start, stop = offsets[row], offsets[row + 1]
        share = rates[row] / (stop - start)
        for unit in range(start, stop):
            load[place[unit]] += share
        ascend(place, start, stop)
        key = admitted[row]
        old = old_row[key] if key < len(old_row) else NOWHERE
        single = stop - start == 1 and old >= 0 and old_offsets[old + 1] - old_offsets[old] == 1  # the usual case
        if single and place[start] == old_members[old_offsets[old]]:
            continue
        warm = 0
        needed = 0
        if old >= 0:
            a, b, b_end = start, old_offsets[old], old_offsets[old + 1]
            needed = min(stop - start, b_end - b)
            while a < stop and b < b_end:
                if place[a] == old_members[b]:
                    warm += 1
                    a += 1
                    b += 1
                elif place[a] < old_members[b]:
                    a += 1
                else:
                    b += 1
        if needed > warm:
            moved[count] = row
            count += 1
            moved_rate += (needed - warm) * share
        if len(prefix_tokens):
            rewarm += (stop - start - warm) * prefix_tokens[key]
    return moved[:count].copy(), moved_rate, rewarm
