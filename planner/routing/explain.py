"""Figures that explain one key, or one destination, of a table.

The rules behind the figures are those of Algorithm 1 of CacheRoute (arXiv 2608.19677): eq. 2 sizes the keys, eq. 3
admits them within the slots, and LPT places them in descending rate on the least loaded destinations.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from planner.routing.build import replicas_needed
from planner.routing.explain_destination import DestinationExplanation, HeldKey, Receiver, explain_destination
from planner.routing.explain_inputs import Inputs, checked, cold_of, shares
from planner.routing.problem import KeyInputs
from planner.routing.reasons import Reason, planned_sizes, why_not
from planner.routing.table import RoutingTable

__all__ = [
    "DestinationExplanation",
    "HeldKey",
    "KeyExplanation",
    "Placement",
    "Reason",
    "Receiver",
    "explain_destination",
    "explain_key",
]

COUNTABLE = 2**53  # whole numbers up to here are exact in float64


@dataclass(frozen=True)
class Placement:
    """One destination of a key, and its load before the key was placed; loads in requests/s.

    Attributes
    ----------
    destination : int
        Index of the destination.
    share : float
        Load that the key adds: rate / k.
    cold : float
        Load of the destination by traffic that is not planned.
    heavier_keys, heavier_load : int, float
        Keys on the same destination that come earlier in the table (descending rate, ties on the lower index), and
        the load of their shares.
    load_before, load_after : float
        ``cold + heavier_load``, without and with the share.
    rank : int
        1 for the lightest destination at that time. Destinations that were not available, or had no room for the
        tokens of the key, do not count. Where capacities differ, the order is that of ``(load + share) / capacity``.
    among : int
        Destinations that count.
    capacity, level : float
        Relative speed, and ``load_after / capacity``, which the rule compares where speeds differ.
    kept : bool
        Whether the incumbent held the key there.
    """

    destination: int
    share: float
    cold: float
    heavier_keys: int
    heavier_load: float
    load_before: float
    load_after: float
    rank: int
    among: int
    capacity: float
    level: float
    kept: bool


@dataclass(frozen=True)
class KeyExplanation:
    """The decision of the table on one key.

    Attributes
    ----------
    key, keys : int
        Its index, and the number of keys.
    rate, share_of_total : float
        Requests/s, and their share of all keys' rate; 0 when there is no load.
    rank : int
        1 is the busiest key; ties on the lower index.
    wanted : int
        k by eq. 2, not clamped.
    planned : int
        k as the planner counts it: clamped to the available destinations, raised by a balance target.
    cannot_fit : bool
        Whether it needs more destinations at ``q_cap`` than are available.
    admitted : bool
        Whether the table keeps it warm.
    reason : Reason
        Why it is admitted or not.
    figures : dict
        Figures that prove the reason, see `planner.routing.reasons.why_not`; empty for an admitted key.
    members : tuple of Placement
        Ascending destinations; empty for a key that is not admitted.
    next_destination, next_load, next_level : int or None, float or None, float or None
        The lightest destination that was not chosen, its load at that time, and its level with the share; None
        where all destinations took the key or no other could.
    uneven : bool
        Whether the available destinations differ in speed.
    backup : int or None
        Destination when all its members are lost; None without a backup.
    was, lost, gained : tuple of int, or None
        Its destinations in the incumbent, the ones that it left, and the new ones; None without an incumbent.
    """

    key: int
    keys: int
    rate: float
    share_of_total: float
    rank: int
    wanted: int
    planned: int
    cannot_fit: bool
    admitted: bool
    reason: Reason
    figures: dict[str, Any] = field(default_factory=dict)
    members: tuple[Placement, ...] = ()
    next_destination: int | None = None
    next_load: float | None = None
    next_level: float | None = None
    uneven: bool = False
    backup: int | None = None
    was: tuple[int, ...] | None = None
    lost: tuple[int, ...] | None = None
    gained: tuple[int, ...] | None = None


def explain_key(
    table: RoutingTable,
    rates: ArrayLike,
    key: int,
    *,
    incumbent: RoutingTable | Collection[int] | None = None,
    **inputs: Unpack[KeyInputs],
) -> KeyExplanation:
    """Explain the placement of a key, or why it is not admitted.

    Parameters
    ----------
    table : RoutingTable
        Result of `build_table` or `replan`.
    rates : float64[B]
        The rates of the plan, requests/s.
    key : int
        Index of the key.
    incumbent : RoutingTable or collection of int, optional
        The table before, its keys and destinations numbered as in ``table``; or the destinations where it held the
        key.
    **inputs
        The arguments of the plan, as in `build_table`: ``balance_target``, ``cold_load``, ``prefix_tokens``,
        ``slot_tokens``, ``token_budget``, ``tenants``, ``tenant_quota``, ``tenant_floor``. Where they contradict the
        table, the reason is `Reason.UNKNOWN`.

    Returns
    -------
    KeyExplanation
        The decision and its figures.

    Raises
    ------
    IndexError
        When ``key`` is not the index of a key of the table.
    ValueError
        Naming the argument, the index and the value.
    """
    if not 0 <= key < table.keys:
        raise IndexError(f"key = {key}: the table has {table.keys} keys")
    given = checked(table, rates, **inputs)
    rate = float(given.rates[key])
    row = int(table.row[key])
    admitted = row >= 0
    reason, figures = (Reason.ADMITTED, {}) if admitted else why_not(table, given, key)
    now = table.members_of(key).tolist()
    was = _held(incumbent, key)
    placed, following = ((), None) if not admitted else _placements(table, given, row, was or ())
    return KeyExplanation(
        key=key,
        keys=table.keys,
        rate=rate,
        share_of_total=rate / table.total_rate if table.total_rate > 0 else 0.0,
        rank=1 + int(np.count_nonzero(given.rates > rate)) + int(np.count_nonzero(given.rates[:key] == rate)),
        wanted=int(replicas_needed(given.rates[key : key + 1], table.q_cap, COUNTABLE)[0]),
        planned=len(now) if admitted else int(planned_sizes(table, given, given.rates[key : key + 1])[0]),
        cannot_fit=bool((table.cannot_fit == key).any()),
        admitted=admitted,
        reason=reason,
        figures=figures,
        members=placed,
        next_destination=following[0] if following else None,
        next_load=following[1] if following else None,
        next_level=following[2] if following else None,
        uneven=len(set(given.capacity[given.available].tolist())) > 1,
        backup=int(table.backup[row]) if admitted and table.backup[row] >= 0 else None,
        was=was,
        lost=None if was is None else tuple(r for r in was if r not in now),
        gained=None if was is None else tuple(r for r in now if r not in was),
    )


def _held(incumbent: RoutingTable | Collection[int] | None, key: int) -> tuple[int, ...] | None:
    if incumbent is None:
        return None
    if isinstance(incumbent, RoutingTable):
        return tuple(incumbent.members_of(key).tolist()) if key < incumbent.keys else ()
    return tuple(sorted(incumbent))


def _placements(
    table: RoutingTable, given: Inputs, row: int, was: Collection[int]
) -> tuple[tuple[Placement, ...], tuple[int, float, float] | None]:
    """Return each member of a row with its load before; and the lightest destination that was not chosen."""
    first, last = int(table.offsets[row]), int(table.offsets[row + 1])
    earlier = table.members[:first]
    cold = cold_of(table, given)
    load = cold.copy()
    np.add.at(load, earlier, shares(table, given.rates)[:first])  # one by one, in the order of placement
    count = np.bincount(earlier, minlength=table.destinations)
    share = float(given.rates[table.admitted[row]]) / (last - first)
    counts = given.available.copy()
    if given.room is not None and given.slot_tokens is not None:
        held = np.repeat(given.slot_tokens[table.admitted[:row]], table.replicas[:row])
        used = np.bincount(earlier, weights=held, minlength=table.destinations)
        counts &= given.room - used >= given.slot_tokens[table.admitted[row]]
    speeds = given.capacity[given.available]
    height = load if speeds.min() == speeds.max() else (load + share) / given.capacity
    members = table.members[first:last].tolist()
    counts[members] = True
    order = np.flatnonzero(counts)
    order = order[np.argsort(height[order], kind="stable")]
    rank = {int(r): at + 1 for at, r in enumerate(order)}
    placed = tuple(
        Placement(
            destination=r,
            share=share,
            cold=float(cold[r]),
            heavier_keys=int(count[r]),
            heavier_load=float(load[r] - cold[r]),
            load_before=float(load[r]),
            load_after=float(load[r] + share),
            rank=rank[r],
            among=len(order),
            capacity=float(given.capacity[r]),
            level=float((load[r] + share) / given.capacity[r]),
            kept=r in was,
        )
        for r in members
    )
    left = [int(r) for r in order if r not in members]
    if not left:
        return placed, None
    return placed, (left[0], float(load[left[0]]), float((load[left[0]] + share) / given.capacity[left[0]]))
