"""What every dispatch policy offers: a name, its parameters, and tables that a compiled rule reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.routing.table import RoutingTable

__all__ = ["DispatchTables", "KeySpace", "Policy"]


class KeySpace(NamedTuple):
    """The distinct keys of a trace; dense number u stands for key index ``indices[u]``."""

    indices: NDArray[np.int64]  # [U], ascending
    hashes: NDArray[np.uint64]  # [U], see planner.routing.hashing.key_hashes


class DispatchTables(NamedTuple):
    """What the compiled rules read. A policy fills the arrays it needs and leaves the others empty."""

    code: int
    home: NDArray[np.int32]  # [U] the one destination of each key
    row: NDArray[np.int64]  # [U] row of each key in the routing table, -1 for a cold key
    offsets: NDArray[np.int64]  # [A + 1] as in RoutingTable
    members: NDArray[np.int32]  # [sum k] as in RoutingTable


class Policy(ABC):
    """One dispatch policy. Subclasses are frozen dataclasses whose fields are the policy's parameters.

    Attributes
    ----------
    name : str
        Registry name.
    code : int
        Number by which :func:`planner.routing.policies.dispatch.choose` finds the rule.
    needs_table : bool
        Whether a routing table must be given.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    needs_table: ClassVar[bool] = False

    @abstractmethod
    def prepare(self, keys: KeySpace, destinations: int, table: RoutingTable | None) -> DispatchTables:
        """Compute the arrays that the rule reads, once per replay.

        Raises
        ------
        ValueError
            When a needed table is missing or is for another number of destinations.
        """

    def _tables(
        self,
        home: NDArray[np.int32] | None = None,
        row: NDArray[np.int64] | None = None,
        offsets: NDArray[np.int64] | None = None,
        members: NDArray[np.int32] | None = None,
    ) -> DispatchTables:
        # Copies: the arrays of a table are read-only, which is another type to the compiled kernel.
        return DispatchTables(
            self.code,
            np.empty(0, dtype=np.int32) if home is None else np.array(home, dtype=np.int32),
            np.empty(0, dtype=np.int64) if row is None else np.array(row, dtype=np.int64),
            np.zeros(1, dtype=np.int64) if offsets is None else np.array(offsets, dtype=np.int64),
            np.empty(0, dtype=np.int32) if members is None else np.array(members, dtype=np.int32),
        )
