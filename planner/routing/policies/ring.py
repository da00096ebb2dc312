"""The hash ring that several policies share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.routing.hashing import hash_indices
from planner.routing.policies.base import DispatchTables, Signals, compiled
from planner.routing.validation import whole

__all__ = ["check_vnodes", "clockwise", "ring_owners", "ring_places", "ring_points"]


def check_vnodes(vnodes: int) -> int:
    """Return the points of a destination on a ring, from 1 to 10,000; raise ``ValueError`` for other numbers."""
    if whole("vnodes", vnodes, 1) > 10_000:
        raise ValueError(f"vnodes = {vnodes}: expected at most 10000")
    return vnodes


def ring_points(destinations: int, vnodes: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Return the points of a hash ring in ascending order and the destination of each.

    A point depends only on its destination and vnode number: a new destination moves only the keys that it takes.
    """
    owner = np.repeat(np.arange(destinations, dtype=np.int64), vnodes)
    vnode = np.tile(np.arange(vnodes, dtype=np.int64), destinations)
    points = hash_indices(hash_indices(owner, salt=1) ^ hash_indices(vnode, salt=2), salt=3)
    order = np.argsort(points, kind="stable")
    return points[order], owner[order].astype(np.int32)


def ring_places(hashes: NDArray[np.uint64], points: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the place of the first point clockwise of each key hash; int64[len(hashes)]."""
    return np.searchsorted(points, hashes, side="left") % len(points)


def ring_owners(hashes: NDArray[np.uint64], destinations: int, vnodes: int) -> NDArray[np.int32]:
    """Return the destination of each key hash: the owner of the first point clockwise.

    Parameters
    ----------
    hashes : uint64[n]
        Hash of each key.
    destinations, vnodes : int
        R, and the points of each destination on the ring.

    Returns
    -------
    int32[n]
        Destination of each hash.
    """
    points, owners = ring_points(destinations, vnodes)
    return owners[ring_places(hashes, points)]


@compiled
def clockwise(tables: DispatchTables, signals: Signals, place: int) -> int:
    """Return the place of the first open destination at or clockwise of a place.

    Parameters
    ----------
    tables : DispatchTables
        Holds the ring.
    signals : Signals
        Open destinations; at least one.
    place : int
        Index into the ring.

    Returns
    -------
    int
        Index into the ring.
    """
    while not signals.is_open[tables.ring[place]]:
        place += 1
        if place == len(tables.ring):
            place = 0
    return place
