"""The same table under other indices, after keys or destinations were added or removed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.places import offsets_of
from planner.routing.table import RoutingTable
from planner.routing.validation import index_vector, whole

__all__ = ["with_destinations", "with_keys"]


def with_keys(table: RoutingTable, new_index_of_old: ArrayLike, keys: int) -> RoutingTable:
    """Return the table with its keys numbered as in another rate vector.

    Admitted keys that the other vector lacks leave the table. Loads, rates and losses keep the values of the plan;
    tokens, value and tenants are cleared. The result states where keys are warm, as the incumbent of a `replan`.
    Keys of equal rate keep their order.

    Parameters
    ----------
    table : RoutingTable
        The table to renumber.
    new_index_of_old : int64[table.keys]
        The new index of each key, -1 for a removed key; no two keys share an index.
    keys : int
        Length of the other rate vector.

    Returns
    -------
    RoutingTable
        The renumbered table.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    count = whole("keys", keys, 0)
    new = index_vector("new_index_of_old", new_index_of_old, table.keys, least=-1, most=count - 1)
    taken = np.bincount(new[new >= 0], minlength=count)
    if (taken > 1).any():
        index = int(np.argmax(taken > 1))
        raise ValueError(f"new_index_of_old: {taken[index]} keys share the new index {index}")
    admitted = new[table.admitted].astype(np.int64)
    stays = admitted >= 0
    replicas = table.replicas[stays]
    return replace(
        table,
        admitted=admitted[stays],
        offsets=offsets_of(replicas),
        members=table.members[np.repeat(stays, table.replicas)],
        replicas=replicas,
        backup=table.backup[stays],
        slots_used=int(replicas.sum()),
        cannot_fit=_known(new, table.cannot_fit),
        moved_keys=_known(new, table.moved_keys),
        keys=count,
        warm_tokens=None,
        rewarm_tokens=None,
        admitted_value=0.0,
        value_bound=0.0,
        tenant_slots=np.zeros(0, dtype=np.int64),
        tenant_rate=np.zeros(0),
    )


def with_destinations(table: RoutingTable, positions: ArrayLike) -> RoutingTable:
    """Return the table over some of its destinations, in another order; the others must have no load and no keys.

    Parameters
    ----------
    positions : int64[R']
        Old index of each new destination; distinct.

    Returns
    -------
    RoutingTable
        The renumbered table.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value; also where an omitted destination holds a key, is a backup or
        carries load.
    """
    old = np.asarray(positions)
    if old.ndim != 1 or len(old) == 0 or old.dtype.kind not in "iu":
        raise ValueError(f"positions: expected a vector of whole numbers that is not empty, got {old!r}")
    bad = (old < 0) | (old >= table.destinations)
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"positions[{at}] = {old[at]}: the table has {table.destinations} destinations")
    new_of_old = np.full(table.destinations, -1, dtype=np.int32)
    new_of_old[old] = np.arange(len(old), dtype=np.int32)
    if (new_of_old[old] != np.arange(len(old))).any():
        at = int(np.argmax(new_of_old[old] != np.arange(len(old))))
        raise ValueError(f"positions[{at}] = {old[at]}: the destination is given twice")
    members = new_of_old[table.members]
    backup = np.where(table.backup >= 0, new_of_old[table.backup], np.int32(-1)).astype(np.int32)
    _none_omitted("member", table.members, members)
    _none_omitted("backup", table.backup, np.where(table.backup >= 0, backup, 0))
    loaded = np.flatnonzero((new_of_old < 0) & (table.load > 0))
    if len(loaded):
        raise ValueError(
            f"positions: destination {loaded[0]} is omitted, but carries {table.load[loaded[0]]} requests/s"
        )
    row_of = np.repeat(np.arange(len(table.admitted)), table.replicas)
    return replace(
        table,
        members=members[np.lexsort((members, row_of))],  # ascending within a key
        backup=backup,
        destinations=len(old),
        load=table.load[old],
        **{
            name: values[old]
            for name in ("capacity", "available", "after_loss")
            if len(values := getattr(table, name))  # empty in tables of early versions
        },
    )


def _known(new: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    found = new[indices].astype(np.int64)
    return np.sort(found[found >= 0])


def _none_omitted(role: str, old: NDArray[np.int32], new: NDArray[np.int32]) -> None:
    if (new < 0).any():
        raise ValueError(f"positions: destination {old[int(np.argmax(new < 0))]} is omitted, but is a {role} of a key")
