"""Figures that explain one destination of a table: its load, and the receivers of its load after a loss (N-1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.explain_inputs import Inputs, checked, cold_of
from planner.routing.table import RoutingTable

__all__ = ["DestinationExplanation", "HeldKey", "Receiver", "explain_destination"]


@dataclass(frozen=True)
class HeldKey:
    """A key of a destination: its index, its rate, its share on this destination (requests/s), and its k."""

    key: int
    rate: float
    share: float
    replicas: int


@dataclass(frozen=True)
class Receiver:
    """Load that one destination takes over when another is lost; rates in requests/s.

    ``backup_keys`` and ``backup_rate`` count the keys whose backup it is; ``member_keys`` and ``member_rate`` the
    keys that it holds as a member; ``cold_rate`` is its part of the cold load of the lost destination.
    """

    destination: int
    backup_keys: int
    backup_rate: float
    member_keys: int
    member_rate: float
    cold_rate: float
    load_after: float


@dataclass(frozen=True)
class DestinationExplanation:
    """Load of one destination, and the effect of its loss.

    Attributes
    ----------
    destination : int
        Index of the destination.
    available : bool
        Whether it takes keys.
    capacity, load, cold : float
        Relative speed; total load, and the part of it that is not planned, in requests/s.
    keys : int
        Warm keys on it; each takes one slot.
    slots_of_all : int
        Slots taken on all destinations together.
    warm_tokens : float or None
        KV tokens of its keys; None without token lengths.
    relative_load : float
        ``load / capacity`` over that of all available destinations together; 1 without load.
    busiest : tuple of HeldKey
        In descending share, ties on the lower key.
    imbalance_after : float or None
        Max/mean of the survivors after its loss; infinite without survivors, None where it is not available.
    receivers : tuple of Receiver
        All survivors by the load that they take over, descending; empty without survivors or where it is not
        available.
    """

    destination: int
    available: bool
    capacity: float
    load: float
    cold: float
    keys: int
    slots_of_all: int
    warm_tokens: float | None
    relative_load: float
    busiest: tuple[HeldKey, ...]
    imbalance_after: float | None
    receivers: tuple[Receiver, ...]


def explain_destination(
    table: RoutingTable,
    rates: ArrayLike,
    r: int,
    *,
    top: int = 20,
    cold_load: ArrayLike | None = None,
    slot_tokens: ArrayLike | None = None,
) -> DestinationExplanation:
    """Explain the load of a destination, and the receivers of this load after a loss.

    The planner counts a loss in the same way: the cold load goes to the survivors in proportion to capacity, the
    share of a key on several destinations to its other members evenly, and every other key to its backup.

    Parameters
    ----------
    table : RoutingTable
        Result of `build_table` or `replan`.
    rates : float64[B]
        The rates of the plan, requests/s.
    r : int
        Index of the destination.
    top : int
        Number of keys to list.
    cold_load, slot_tokens
        The arguments of the plan, as in `build_table`.

    Returns
    -------
    DestinationExplanation
        Load, keys and receivers.

    Raises
    ------
    IndexError
        When ``r`` is not the index of a destination of the table.
    ValueError
        Naming the argument, the index and the value.
    """
    if not 0 <= r < table.destinations:
        raise IndexError(f"r = {r}: the table has {table.destinations} destinations")
    given = checked(table, rates, cold_load=cold_load, slot_tokens=slot_tokens)
    rows = np.repeat(np.arange(len(table.admitted)), table.replicas)[table.members == r]
    k = table.replicas[rows]
    share = given.rates[table.admitted[rows]] / k
    heaviest = np.lexsort((table.admitted[rows], -share))[:top]
    cold = cold_of(table, given)
    whole = float(table.load[given.available].sum()) / float(given.capacity[given.available].sum())
    relative = float(table.load[r] / given.capacity[r])
    return DestinationExplanation(
        destination=r,
        available=bool(given.available[r]),
        capacity=float(given.capacity[r]),
        load=float(table.load[r]),
        cold=float(cold[r]),
        keys=len(rows),
        slots_of_all=table.slots_used,
        warm_tokens=None if given.slot_tokens is None else float(given.slot_tokens[table.admitted[rows]].sum()),
        relative_load=relative / whole if whole > 0 else 1.0,
        busiest=tuple(
            HeldKey(int(table.admitted[rows[i]]), float(share[i] * k[i]), float(share[i]), int(k[i])) for i in heaviest
        ),
        imbalance_after=_after(table, r),
        receivers=_receivers(table, given, r, rows, cold),
    )


def _after(table: RoutingTable, r: int) -> float | None:
    if len(table.after_loss) == 0 or np.isnan(table.after_loss[r]):
        return None
    return float(table.after_loss[r])


def _receivers(
    table: RoutingTable, given: Inputs, lost: int, rows: NDArray[np.int64], cold: NDArray[np.float64]
) -> tuple[Receiver, ...]:
    survives = given.available.copy()
    survives[lost] = False
    if not given.available[lost] or not survives.any():
        return ()
    count = table.destinations
    alone = rows[table.replicas[rows] == 1]
    to = table.backup[alone]
    backup_keys = np.bincount(to, minlength=count)
    backup_rate = np.bincount(to, weights=given.rates[table.admitted[alone]], minlength=count)
    several = np.zeros(len(table.admitted), dtype=bool)
    several[rows[table.replicas[rows] > 1]] = True
    each = given.rates[table.admitted] / np.maximum(table.replicas, 1)
    units = np.repeat(several, table.replicas) & (table.members != lost)
    parts = np.repeat(each / np.maximum(table.replicas - 1, 1), table.replicas)[units]
    member_keys = np.bincount(table.members[units], minlength=count)
    member_rate = np.bincount(table.members[units], weights=parts, minlength=count)
    speeds = np.where(survives, given.capacity, 0.0)
    cold_rate = cold[lost] * (speeds / speeds.sum())
    gained = backup_rate + member_rate + cold_rate
    return tuple(
        Receiver(
            destination=int(r),
            backup_keys=int(backup_keys[r]),
            backup_rate=float(backup_rate[r]),
            member_keys=int(member_keys[r]),
            member_rate=float(member_rate[r]),
            cold_rate=float(cold_rate[r]),
            load_after=float(table.load[r] + gained[r]),
        )
        for r in np.argsort(-gained, kind="stable")
        if survives[r]
    )
