"""The routing table: which destinations hold which keys for one control interval."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

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
        ``max(load / capacity) * sum(capacity) / sum(load)`` over the available destinations, which is
        max/mean where all capacities are equal; 1.0 when there is no load at all.
    slots_used, slots : int
        Warm slots taken by the admitted keys, and the fleet's budget C = R * W.
    admitted_rate, total_rate : float
        Requests/s of the admitted keys and of all keys.
    backup : int32[A]
        Destination of a key when none of its members is up; -1 when every available destination is a member.
    destinations, keys : int
        R, and the number of keys in the rate vector.
    q_cap : float
        Requests/s that one destination serves before its p99 takes off.
    cannot_fit : int64[]
        Ascending indices of keys that need more destinations at ``q_cap`` than are available; k is clamped.
    warm_tokens : float or None
        KV tokens that the admitted prefixes occupy over all members; None without ``prefix_tokens``.
    moved : int
        Keys that lost a warm destination which they still needed; 0 for a plan from scratch (see `replan`).
    moved_rate : float
        Requests/s of the shares that moved with them.
    moved_keys : int64[moved]
        Their indices, ascending.
    capacity : float64[R]
        Relative speed of each destination; 1 is the one that ``q_cap`` was measured on.
    available : bool[R]
        False for a destination that takes nothing (draining or down).
    after_loss : float64[R]
        Imbalance of the survivors after the loss of each one destination, its keys served by their other
        members or by their backup (the N-1 table); NaN where the destination takes nothing, infinite where
        nothing survives.
    admission : str
        Name of the admission policy.
    admitted_value : float
        Sum of ``rate * prefix_tokens`` (tokens/s of prefill that warm prefixes save) over the admitted keys, or
        of ``rate`` where prefix lengths are not known.
    value_bound : float
        Upper bound of every admission: the fractional knapsack bound of the same budget.
    tenant_slots : int64[T]
        Warm slots that the keys of each tenant take; empty without tenants.
    tenant_rate : float64[T]
        Requests/s of the admitted keys of each tenant.
    cooled : int
        Keys that the incumbent keeps warm and this table does not keep warm; 0 without an incumbent.
    cooled_rate : float
        Requests/s of these keys now.
    target_imbalance : float or None
        The imbalance that the replan had to reach; None without an incumbent.
    rewarm_tokens : float or None
        Prefill tokens to warm the (key, member) pairs that the incumbent does not hold; None without
        ``prefix_tokens`` or without an incumbent.
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
    capacity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    available: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    after_loss: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    admission: str = "top_rate"
    admitted_value: float = 0.0
    value_bound: float = 0.0
    tenant_slots: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    tenant_rate: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    rewarm_tokens: float | None = None
    cooled: int = 0
    cooled_rate: float = 0.0
    target_imbalance: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                value = value.view()  # the caller may keep a writable reference to the array
                value.setflags(write=False)
                object.__setattr__(self, each.name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # pickle forgets that arrays are read-only

    @property
    def worst_loss(self) -> float:
        """The highest imbalance after the loss of one destination; NaN when ``after_loss`` is not known."""
        known = self.after_loss[~np.isnan(self.after_loss)]
        return float(known.max()) if len(known) else float("nan")

    @property
    def value_gap(self) -> float:
        """Share of the bound that was not reached, in [0, 1]; a gap up to 1e-11 is rounding error."""
        return max(0.0, 1.0 - self.admitted_value / self.value_bound) if self.value_bound > 0 else 0.0

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
            np.array_equal(a, b, equal_nan=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a == b
            for a, b in ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        )

    __hash__ = None  # type: ignore[assignment]  # holds arrays
