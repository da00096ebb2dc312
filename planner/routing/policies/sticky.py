"""Sticky: consistent hashing, blind to load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.routing.hashing import hash_indices
from planner.routing.policies.base import DispatchTables, KeySpace, Policy
from planner.routing.table import RoutingTable
from planner.routing.validation import whole

__all__ = ["Sticky", "ring_owners", "ring_points"]


def ring_points(destinations: int, vnodes: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Return the points of a hash ring in ascending order and the destination of each.

    A point depends on its destination and vnode number alone, so adding a destination moves only the keys
    that the new one takes.
    """
    owner = np.repeat(np.arange(destinations, dtype=np.int64), vnodes)
    vnode = np.tile(np.arange(vnodes, dtype=np.int64), destinations)
    points = hash_indices(hash_indices(owner, salt=1) ^ hash_indices(vnode, salt=2), salt=3)
    order = np.argsort(points, kind="stable")
    return points[order], owner[order].astype(np.int32)


def ring_owners(hashes: NDArray[np.uint64], destinations: int, vnodes: int) -> NDArray[np.int32]:
    """Return the destination of each key hash: the owner of the first point clockwise; int32[len(hashes)]."""
    points, owners = ring_points(destinations, vnodes)
    at = np.searchsorted(points, hashes, side="left")
    return owners[at % len(points)]


@dataclass(frozen=True)
class Sticky(Policy):
    """The clockwise successor of the key's hash on a ring of virtual nodes.

    Source: Karger et al., *Consistent hashing and random trees*, STOC 1997.

    Parameters
    ----------
    vnodes : int
        Points of each destination on the ring, default 160 (as libketama).
    """

    vnodes: int = 160

    name = "sticky"
    code = 1

    def __post_init__(self) -> None:
        whole("vnodes", self.vnodes, 1)

    def prepare(self, keys: KeySpace, destinations: int, table: RoutingTable | None) -> DispatchTables:
        return self._tables(home=ring_owners(keys.hashes, destinations, self.vnodes))
