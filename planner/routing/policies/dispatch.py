"""The compiled switch from a policy's code to its rule."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.policies.base import DispatchTables
from planner.routing.policies.cacheroute import CacheRoute, lightest_member
from planner.routing.policies.flat_lb import FlatLB, lighter_of_two
from planner.routing.policies.references import RoundRobin

__all__ = ["choose"]

_FLAT_LB = FlatLB.code
_CACHEROUTE = CacheRoute.code
_ROUND_ROBIN = RoundRobin.code


@njit(cache=True)
def choose(
    tables: DispatchTables,
    request: int,
    key: int,
    outstanding: NDArray[np.int64],
    rng: NDArray[np.uint64],
) -> np.int64:
    """Return the destination of a request.

    Parameters
    ----------
    tables : DispatchTables
        From :meth:`Policy.prepare`.
    request : int
        Number of the request in order of dispatch, from 0.
    key : int
        Dense key number, see :class:`KeySpace`.
    outstanding : int64[R]
        Requests sent to each destination and not finished.
    rng : uint64[1]
        State of the random draws; advanced by the rules that draw.
    """
    if tables.code == _FLAT_LB:
        return lighter_of_two(outstanding, rng)
    if tables.code == _CACHEROUTE:
        row = tables.row[key]
        if row < 0:
            return lighter_of_two(outstanding, rng)
        return np.int64(lightest_member(tables.members[tables.offsets[row] : tables.offsets[row + 1]], outstanding))
    if tables.code == _ROUND_ROBIN:
        return np.int64(request % len(outstanding))
    return np.int64(tables.home[key])  # Sticky and HashMod: one destination a key
