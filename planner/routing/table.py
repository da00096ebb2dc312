"""The routing table: which destinations hold which keys for one control interval."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["RoutingTable"]


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """Result of :func:`planner.routing.build_table`; arrays are read-only.

    Attributes
    ----------
    admitted : int64[A]
        Indices of the admitted keys in descending rate, ties on the lower index.
    offsets : int64[A + 1]
        ``members[offsets[i]:offsets[i + 1]]`` are the destinations of ``admitted[i]``.
    members : int32[sum k]
        Destination indices, ascending within a key, distinct within a key.
    replicas : int64[A]
        Number of destinations k_b of each admitted key.
    load : float64[R]
        Planned load of each destination in requests/s, the cold baseline included.
    imbalance : float
        ``max(load) / mean(load)``; 1.0 when there is no load at all.
    slots_used, slots : int
        Warm slots taken by the admitted keys, and the fleet's budget C = R * W.
    admitted_rate, total_rate : float
        Requests/s of the admitted keys and of all keys.
    backup : int32[A]
        Where a key goes when none of its members is up; -1 when every destination is a member.
    destinations, keys : int
        R, and the number of keys in the rate vector.
    q_cap : float
        Requests/s that one destination serves before its p99 takes off.
    cannot_fit : int64[]
        Ascending indices of keys that need more than R destinations at ``q_cap``; clamped to R.
    warm_tokens : float or None
        KV tokens that the admitted prefixes occupy over all members; None without ``prefix_tokens``.
    moved : int
        Keys that lost a warm destination which they still needed; 0 for a plan from scratch (see `replan`).
    moved_rate : float
        Requests/s of the shares that moved with them.
    moved_keys : int64[moved]
        Their indices, ascending.
    """

    admitted: NDArray[np.int64]
    offsets: NDArray[np.int64]
    members: NDArray[np.int32]
    replicas: NDArray[np.int64]
    load: NDArray[np.float64]
    imbalance: float
    slots_used: int
    admitted_rate: float
    backup: NDArray[np.int32]
    destinations: int
    q_cap: float
    slots: int
    cannot_fit: NDArray[np.int64]
    total_rate: float
    keys: int
    warm_tokens: float | None = None
    moved: int = 0
    moved_rate: float = 0.0
    moved_keys: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @cached_property
    def row(self) -> NDArray[np.int64]:
        """Position of each key in ``admitted``, -1 for a key that is not admitted; int64[keys]."""
        row = np.full(self.keys, -1, dtype=np.int64)
        row[self.admitted] = np.arange(len(self.admitted))
        row.setflags(write=False)
        return row

    def members_of(self, key_index: int) -> NDArray[np.int32]:
        """Return the destinations of a key, ascending; empty when the key is not admitted.

        Raises
        ------
        IndexError
            When ``key_index`` is not the index of a key of this table.
        """
        if not 0 <= key_index < self.keys:
            raise IndexError(f"key_index = {key_index}: the table has {self.keys} keys")
        at = int(self.row[key_index])
        if at < 0:
            return self.members[:0]
        return self.members[self.offsets[at] : self.offsets[at + 1]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoutingTable):
            return NotImplemented
        return all(
            np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
            for a, b in ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        )

    __hash__ = None  # type: ignore[assignment]  # holds arrays
