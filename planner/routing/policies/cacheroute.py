"""CacheRoute: admitted keys follow the plan, all other keys the power of two choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.routing.policies.base import (
    CANDIDATES,
    Costs,
    DispatchTables,
    KeySpace,
    Policy,
    Signals,
    compiled,
    draw_two,
    fewest_outstanding,
)
from planner.routing.table import RoutingTable

__all__ = ["CacheRoute"]


@compiled
def _members(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> None:
    """Propose the open members of T(b), ascending; without any the backup; for a cold key two drawn at random."""
    signals.counts[1] = 0
    row = tables.row[tables.live[0], key]
    if row >= 0:
        for at in range(tables.offsets[row], tables.offsets[row + 1]):
            if signals.is_open[tables.members[at]]:
                signals.candidates[signals.counts[1]] = tables.members[at]
                signals.counts[1] += 1
        backup = tables.backup[row]
        if signals.counts[1] == 0 and backup >= 0 and signals.is_open[backup]:
            signals.candidates[0] = backup
            signals.counts[1] = 1
    if signals.counts[1] == 0:
        draw_two(tables, signals, key, rng)


@dataclass(frozen=True)
class CacheRoute(Policy):
    """An admitted key goes to the member of T(b) with fewest outstanding (ties: lower index), others as in Flat-LB.

    When all members of a key are down, the key goes to its planned backup; when that is down too, as in Flat-LB.
    Source: Algorithm 1, dispatch (arXiv 2608.19677). No parameters beside the routing table.
    """

    name = "cacheroute"
    rank = 6
    looks = CANDIDATES
    needs_table = True
    propose = staticmethod(_members)
    rule = staticmethod(fewest_outstanding)

    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        if not tables:
            raise ValueError("table: policy 'cacheroute' needs a routing table")
        rows, offsets, rows_before, members_before = [], [np.zeros(1, dtype=np.int64)], 0, 0
        for table in tables:
            if table.destinations != destinations:
                raise ValueError(f"table: planned for {table.destinations} destinations, replayed on {destinations}")
            row = np.full(len(keys.indices), -1, dtype=np.int64)
            known = keys.indices < table.keys  # a key that is not in the plan is cold
            row[known] = table.row[keys.indices[known]]
            rows.append(np.where(row >= 0, row + rows_before, -1))
            offsets.append(table.offsets[1:] + members_before)
            rows_before += len(table.offsets) - 1
            members_before += len(table.members)
        return self._tables(
            row=np.stack(rows),
            offsets=np.concatenate(offsets),
            members=np.concatenate([table.members for table in tables]),
            backup=np.concatenate([table.backup for table in tables]),
        )
