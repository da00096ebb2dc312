"""Placement on destinations that differ in capacity, or that may keep only so many tokens warm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.routing.kernels import place_one_by_one
from planner.routing.problem import Problem
from planner.routing.ranking import top_indices

__all__ = ["Places", "refill"]


@dataclass(frozen=True)
class Places:
    """What is left to be given while keys are placed; every array changes with each placement."""

    load: NDArray[np.float64]  # requests/s of each destination
    room: NDArray[np.float64]  # KV tokens of each destination
    slots: NDArray[np.int64]  # of the fleet, one number
    quota: NDArray[np.int64]  # slots of each tenant

    @classmethod
    def of(cls, problem: Problem, load: NDArray[np.float64]) -> Places:
        """Everything is left."""
        room = np.full(problem.destinations, np.inf) if problem.room is None else problem.room.copy()
        quota = np.full(1, problem.budget)
        if problem.tenants is not None:
            quota = np.full(int(problem.tenants.max(initial=-1)) + 1, problem.budget)
            if problem.tenant_quota is not None:
                known = problem.tenant_quota[: len(quota)]
                quota[: len(known)] = np.where(known < 0, problem.budget, known)
        return cls(load=load.copy(), room=room, slots=np.array([problem.budget]), quota=quota)

    def place(
        self, problem: Problem, keys: NDArray[np.int64], replicas: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Place keys in the order given.

        Returns
        -------
        bool[len(keys)], int32[sum k of the placed]
            Which of them found their k destinations, and the members of those.
        """
        offsets = np.zeros(len(keys) + 1, dtype=np.int64)
        np.cumsum(replicas, out=offsets[1:])
        none = np.zeros(len(keys))
        members = place_one_by_one(
            problem.rates[keys],
            offsets,
            problem.available,
            problem.capacity,
            none if problem.room is None or problem.slot_tokens is None else problem.slot_tokens[keys],
            none.astype(np.int64) if problem.tenants is None else problem.tenants[keys],
            self.load,
            self.room,
            self.slots,
            self.quota,
        )
        placed = np.ones(len(keys), dtype=bool) if len(members) == 0 else members[offsets[:-1]] >= 0
        return placed, members[np.repeat(placed, replicas)]


def refill(
    problem: Problem,
    places: Places,
    sizes: NDArray[np.int64],
    order: NDArray[np.int64],
    placed: NDArray[np.int64],
    refused: NDArray[np.int64],
    members: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Give what the refused keys would have taken to others, in the order in which the policy would take them.

    Parameters
    ----------
    sizes : int64[B]
        k of every key.
    order : int64[]
        Keys in the policy's order.
    placed, refused : int64[]
        Admitted keys that have their destinations, and those that fit on none.
    members : int32[]
        Of the placed.

    Returns
    -------
    int64[A], int64[A], int32[sum k]
        All placed keys in descending rate, ties on the lower index; their k, and their members.
    """
    is_done = np.zeros(len(problem.rates), dtype=bool)
    is_done[placed] = True
    is_done[refused] = True
    more = order[~is_done[order]]
    fits, more_members = places.place(problem, more, sizes[more])
    keys = np.concatenate([placed, more[fits]])
    units = np.concatenate([members, more_members])
    ascending = np.sort(keys)
    admitted = ascending[top_indices(problem.rates[ascending])]
    rank = np.empty(len(problem.rates), dtype=np.int64)
    rank[admitted] = np.arange(len(admitted))
    # Units of one key stay together, and in their order.
    return admitted, sizes[admitted], units[np.argsort(rank[np.repeat(keys, sizes[keys])], kind="stable")]
