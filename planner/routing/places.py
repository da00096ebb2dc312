"""Placement on destinations that differ in capacity, or that have a token budget."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.routing.kernels import place_one_by_one
from planner.routing.problem import Problem
from planner.routing.ranking import top_indices

__all__ = ["Choice", "Places", "fill", "in_rows", "offsets_of"]


@dataclass(frozen=True)
class Choice:
    """Sizes, and the keys that the budget of the whole fleet admits.

    Attributes
    ----------
    admitted : int64[A]
        Admitted keys in descending rate.
    rates : float64[A]
        Requests/s of these keys.
    replicas : int64[A]
        k of these keys.
    cannot_fit : int64[]
        As in `RoutingTable`.
    order : int64[M]
        Keys in the order in which the policy takes them.
    sizes : int64[B] or int64[M]
        k of every key; where only the M keys of ``order`` can get a slot, k of these (``in_order``).
    reserved : bool[A] or None
        Keys that the floor of a tenant admitted; None when ``in_order``.
    """

    admitted: NDArray[np.int64]
    rates: NDArray[np.float64]
    replicas: NDArray[np.int64]
    cannot_fit: NDArray[np.int64]
    order: NDArray[np.int64]
    sizes: NDArray[np.int64]
    reserved: NDArray[np.bool_] | None = None

    @property
    def in_order(self) -> bool:
        """Whether ``sizes`` has the order of ``order``."""
        return self.reserved is None


@dataclass(frozen=True)
class Places:
    """Remaining budgets during placement; every array changes with each placement."""

    load: NDArray[np.float64]  # requests/s of each destination
    room: NDArray[np.float64]  # KV tokens of each destination
    slots: NDArray[np.int64]  # of the fleet, one number
    quota: NDArray[np.int64]  # slots of each tenant

    @classmethod
    def of(cls, problem: Problem, load: NDArray[np.float64]) -> Places:
        """Return the budgets before the first placement."""
        room = np.full(problem.destinations, np.inf) if problem.room is None else problem.room.copy()
        quota = np.full(max(1, problem.tenant_count), problem.budget)
        if problem.tenant_quota is not None:
            quota = np.where(problem.tenant_quota < 0, problem.budget, problem.tenant_quota)
        return cls(load=load.copy(), room=room, slots=np.array([problem.budget]), quota=quota)

    def place(
        self, problem: Problem, keys: NDArray[np.int64], replicas: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Place keys in the order given.

        Parameters
        ----------
        problem : Problem
            The input of the plan.
        keys : int64[n]
            Key indices.
        replicas : int64[n]
            k of each key; more than the slots of the fleet for a key that is no candidate.

        Returns
        -------
        placed : bool[n]
            Whether each key found k destinations.
        members : int32[sum k of the placed keys]
            Their destinations.
        """
        possible = replicas <= problem.budget  # all others are too long for any destination, and have no k
        offsets = offsets_of(np.where(possible, replicas, 1))
        none = np.zeros(len(keys))
        tokens = none if problem.room is None or problem.slot_tokens is None else problem.slot_tokens[keys]
        members = place_one_by_one(
            problem.rates[keys],
            offsets,
            problem.available,
            problem.capacity,
            np.where(possible, tokens, np.inf),
            none.astype(np.int64) if problem.tenants is None else problem.tenants[keys],
            self.load,
            self.room,
            self.slots,
            self.quota,
        )
        placed = members[offsets[:-1]] >= 0
        return placed, members[np.repeat(placed, np.diff(offsets))]


@dataclass
class _Rows:
    """Placed keys, in the order of placement."""

    problem: Problem
    sizes: NDArray[np.int64]
    keys: list[NDArray[np.int64]] = field(default_factory=list)
    units: list[NDArray[np.int32]] = field(default_factory=list)

    def put(self, places: Places, keys: NDArray[np.int64]) -> None:
        placed, members = places.place(self.problem, keys, self.sizes[keys])
        self.keys.append(keys[placed])
        self.units.append(members)

    def without(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        done = np.zeros(len(self.problem.rates), dtype=bool)
        for some in self.keys:
            done[some] = True
        return keys[~done[keys]]


def fill(
    problem: Problem, choice: Choice, cold: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Place keys under a token budget of each destination, where a key may fit the fleet but no destination.

    Keys that a floor reserved come first; where one of them finds no room, other keys of its tenant get the slots. Then
    come the other admitted keys in descending rate, then all keys that still fit, in the order of the policy.

    Parameters
    ----------
    problem : Problem
        The input of the plan.
    choice : Choice
        Sizes and admitted keys.
    cold : float64[R]
        Cold load of each destination, requests/s.

    Returns
    -------
    admitted : int64[A]
        Keys in descending rate.
    replicas : int64[A]
        Their k.
    members : int32[sum k]
        Their destinations.
    load : float64[R]
        Requests/s of each destination, the cold load included.
    """
    places, rows = Places.of(problem, cold), _Rows(problem, choice.sizes)
    reserved = np.zeros(len(choice.admitted), dtype=bool) if choice.reserved is None else choice.reserved
    rows.put(places, choice.admitted[reserved])
    if problem.tenant_floor is not None and problem.tenants is not None:
        used = np.bincount(
            problem.tenants[rows.keys[0]], weights=choice.sizes[rows.keys[0]], minlength=len(problem.tenant_floor)
        )
        lacking = np.maximum(problem.tenant_floor - used.astype(np.int64), 0)
        more = rows.without(choice.order[problem.rates[choice.order] > 0])
        more = more[lacking[problem.tenants[more]] > 0]
        least = Places(places.load, places.room, places.slots, np.minimum(lacking, places.quota))
        before = least.quota.copy()
        rows.put(least, more)
        places.quota[:] -= before - least.quota
    rows.put(places, rows.without(choice.admitted[~reserved]))
    rows.put(places, rows.without(choice.order))
    members = np.concatenate(rows.units)
    admitted, (units,) = in_rows(problem, choice.sizes, np.concatenate(rows.keys), members)
    return admitted, choice.sizes[admitted], units, places.load


def in_rows(
    problem: Problem, sizes: NDArray[np.int64], keys: NDArray[np.int64], *units: NDArray[np.int32]
) -> tuple[NDArray[np.int64], list[NDArray[np.int32]]]:
    """Order keys by descending rate, ties on the lower index, and each of the ``units`` arrays with them.

    Parameters
    ----------
    problem : Problem
        The input of the plan.
    sizes : int64[B]
        k of every key.
    keys : int64[A]
        Key indices in the order of the units.
    *units : int32[sum k]
        One value for each unit of the keys.

    Returns
    -------
    admitted : int64[A]
        The keys in descending rate.
    units : list of int32[sum k]
        The arrays in the same order.
    """
    ascending = np.sort(keys)
    admitted = ascending[top_indices(problem.rates[ascending])]
    rank = np.empty(len(problem.rates), dtype=np.int64)
    rank[admitted] = np.arange(len(admitted))
    # The units of one key stay together and keep their order.
    at = np.argsort(rank[np.repeat(keys, sizes[keys])], kind="stable")
    return admitted, [each[at] for each in units]


def offsets_of(replicas: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first unit of each row, and the number of units: int64[A + 1]."""
    offsets = np.zeros(len(replicas) + 1, dtype=np.int64)
    np.cumsum(replicas, out=offsets[1:])
    return offsets
