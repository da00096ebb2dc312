"""The interface of every dispatch policy: a name, parameters, and a compiled rule over the signals of a dispatcher.

A new policy is one frozen dataclass in one file of this package; `dispatch` finds and registers it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit
from numba.core.cpu import CPUTargetOptions
from numpy.typing import NDArray

from planner.routing.hashing import next_random
from planner.routing.table import RoutingTable

__all__ = [
    "CANDIDATES",
    "EVERYTHING",
    "NOTHING",
    "UNCOUNTED",
    "Costs",
    "DispatchTables",
    "Index",
    "KeySpace",
    "Policy",
    "Signals",
    "compiled",
    "draw_two",
    "fewest_outstanding",
    "quiet_signals",
]

# The destinations whose state a rule reads before it decides.
NOTHING, CANDIDATES, EVERYTHING = 0, 1, 2


# A call between compiled functions counts the references of every array argument, which takes longer than the rule
# itself. The kernels of a replay create and keep no arrays, so they are compiled without these counts. The option is
# private: with a compiler that lacks it, the same code runs and is slower.
UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}
# Only compiled code calls rules.
_RULE: dict[str, Any] = {**UNCOUNTED, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
compiled = njit(**_RULE)


Index = Any  # the compiler treats plain ints and array elements alike


class KeySpace(NamedTuple):
    """The distinct keys of a trace; dense number u is key index ``indices[u]``."""

    indices: NDArray[np.int64]  # [U], ascending
    hashes: NDArray[np.uint64]  # [U], see planner.routing.hashing.key_hashes


class Costs(NamedTuple):
    """Facts about the engines that a policy may use: times of one destination in seconds, mean lengths in tokens."""

    prefill_token_s: float
    iteration_s: float
    sequence_s: float
    context_token_s: float
    mean_prompt: float
    mean_output: float


class DispatchTables(NamedTuple):
    """Input of the compiled rules. A policy fills the arrays that it needs; the others stay empty."""

    code: int
    looks: int
    needs_cache: bool
    window_s: float  # above 0: the rule reads known, missed, served and evicted
    look_back: int  # above 0: at two overloaded candidates, up to so many waiting requests of each may move
    budget_tokens: float  # pending tokens beyond which a candidate is overloaded
    within_s: float  # highest time to first token after a move, seconds
    parameters: NDArray[np.float64]
    start: NDArray[np.int32]  # [U] place on the ring, or the destination itself where there is no ring
    second: NDArray[np.int32]  # [U] the other place
    ring: NDArray[np.int32]  # destination of each point
    row: NDArray[np.int64]  # [T, U] row of each key in the concatenated T tables, -1 for a cold key
    offsets: NDArray[np.int64]  # [A + 1] as in RoutingTable, over all tables
    members: NDArray[np.int32]  # [sum k] as in RoutingTable
    backup: NDArray[np.int32]  # [A] -1: none
    live: NDArray[np.int64]  # [1] which of the tables is in force


class Signals(NamedTuple):
    """State that a dispatcher sees when it decides."""

    outstanding: NDArray[np.int64]  # [R] requests sent and not finished
    pending: NDArray[np.int64]  # [R] prompt tokens sent, not cached and not prefilled; where ``needs_cache``
    is_open: NDArray[np.uint8]  # [R] whether it takes requests
    open: NDArray[np.int64]  # [R] the first ``counts[0]`` are the open destinations, ascending
    counts: NDArray[np.int64]  # [2] open destinations; candidates
    candidates: NDArray[np.int64]  # [R, at least 2] the first ``counts[1]`` are the candidates of this request
    request: NDArray[np.int64]  # [2] number in order of dispatch; prompt tokens
    matched: NDArray[np.int64]  # [R] tokens of the prompt that each candidate has cached; where ``needs_cache``
    known: NDArray[np.int64]  # [R] the same by the requests of the window, evicted or not; with a window
    missed: NDArray[np.int64]  # [R] tokens that the window's requests missed; with a window
    served: NDArray[np.int64]  # [R] requests of the window; with a window
    evicted: NDArray[np.float64]  # [R] tokens to evict for it x the window's requests that hold them; with a window


def quiet_signals(destinations: int) -> Signals:
    """Return the signals of an idle fleet with all destinations up."""

    def zeros(length: int = destinations) -> NDArray[np.int64]:
        return np.zeros(length, dtype=np.int64)

    return Signals(
        outstanding=zeros(),
        pending=zeros(),
        is_open=np.ones(destinations, dtype=np.uint8),
        open=np.arange(destinations),
        counts=np.array([destinations, 0]),
        candidates=zeros(max(destinations, 2)),
        request=zeros(2),
        matched=zeros(),
        known=zeros(),
        missed=zeros(),
        served=zeros(),
        evicted=np.zeros(destinations),
    )


Rule = Callable[[DispatchTables, Signals, int, NDArray[np.uint64]], Any]


@compiled
def draw_two(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> None:
    """Make two distinct open destinations, drawn at random, the candidates (one where only one is open).

    Parameters
    ----------
    tables : DispatchTables
        Arrays of the policy; not used.
    signals : Signals
        State of the fleet; the candidates change in place.
    key : int
        Dense number of the key; not used.
    rng : uint64[1]
        State of the random numbers; changes in place.
    """
    fleet = signals.counts[0]
    first = next_random(rng, fleet)
    signals.candidates[0] = signals.open[first]
    signals.counts[1] = 1
    if fleet > 1:
        second = next_random(rng, fleet - 1)
        signals.candidates[1] = signals.open[second + 1 if second >= first else second]
        signals.counts[1] = 2


@compiled
def fewest_outstanding(tables: DispatchTables, signals: Signals, key: int, rng: NDArray[np.uint64]) -> Index:
    """Return the candidate with fewest outstanding requests; on a tie the first of them.

    Parameters
    ----------
    tables : DispatchTables
        Arrays of the policy; not used.
    signals : Signals
        State of the fleet, its candidates included.
    key : int
        Dense number of the key; not used.
    rng : uint64[1]
        State of the random numbers; not used.

    Returns
    -------
    int
        Index of the destination.
    """
    best = signals.candidates[0]
    for at in range(1, signals.counts[1]):
        if signals.outstanding[signals.candidates[at]] < signals.outstanding[best]:
            best = signals.candidates[at]
    return best


class Policy(ABC):
    """One dispatch policy. Subclasses are frozen dataclasses whose fields are the policy's parameters.

    Attributes
    ----------
    name : str
        Registry name.
    looks : int
        Destinations whose state must be current for the rule: NOTHING, CANDIDATES (as ``propose`` names them) or
        EVERYTHING.
    needs_cache : bool
        Whether the rule reads ``matched`` and ``pending``.
    needs_table : bool
        Whether a routing table must be given.
    rank : int
        Place in the registry: the six policies of the paper first, then references.
    code : int
        Number of the class in the compiled switch. `dispatch` sets it when it registers the class.
    rule, propose : compiled functions of (tables, signals, key, rng)
        ``rule`` returns the destination of a request; at least one destination is open. ``propose`` writes the
        candidates into the signals, for policies with ``looks = CANDIDATES``.
    variants : tuple of Policy
        Instances in the registry.
    """

    name: str
    looks: ClassVar[int] = NOTHING
    needs_cache: ClassVar[bool] = False
    needs_table: ClassVar[bool] = False
    rank: ClassVar[int] = 9
    code: ClassVar[int]
    rule: ClassVar[Rule]
    propose: ClassVar[Rule]

    @classmethod
    def variants(cls) -> tuple[Policy, ...]:
        """Return the instances of the registry: one with the defaults, and named variants."""
        return (cls(),)

    def prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        """Compute the arrays that the rule reads, once per replay.

        Parameters
        ----------
        keys : KeySpace
            The distinct keys of the trace and their hashes.
        destinations : int
            R.
        tables : sequence of RoutingTable
            The table in force at the start, then the tables of later switches; empty without a plan.
        costs : Costs
            Facts about the engines.

        Returns
        -------
        DispatchTables
            Input of the compiled rules.

        Raises
        ------
        ValueError
            When a needed table is missing or is for another number of destinations.
        """
        return self._prepare(keys, destinations, tables, costs)

    @abstractmethod
    def _prepare(
        self, keys: KeySpace, destinations: int, tables: Sequence[RoutingTable], costs: Costs
    ) -> DispatchTables:
        """Do the work of `prepare` for this policy."""

    def _tables(
        self,
        *,
        parameters: Sequence[float] = (),
        window_s: float = 0.0,
        look_back: int = 0,
        budget_tokens: float = np.inf,
        within_s: float = np.inf,
        start: NDArray[np.integer] | None = None,
        second: NDArray[np.integer] | None = None,
        ring: NDArray[np.integer] | None = None,
        row: NDArray[np.int64] | None = None,
        offsets: NDArray[np.int64] | None = None,
        members: NDArray[np.int32] | None = None,
        backup: NDArray[np.int32] | None = None,
    ) -> DispatchTables:
        if look_back and (self.looks != CANDIDATES or not self.needs_cache):
            raise ValueError(f"policy {self.name!r}: moves need candidates and the state of their caches")
        if window_s > 0 and (self.looks != EVERYTHING or not self.needs_cache):
            raise ValueError(f"policy {self.name!r}: a window needs the state of every cache")
        if self.needs_cache and self.looks == NOTHING:
            raise ValueError(f"policy {self.name!r}: needs_cache requires looks = CANDIDATES or EVERYTHING")

        def plain(array: NDArray[Any] | None, dtype: type) -> NDArray[Any]:
            # A copy: the arrays of a table are read-only, which is another type for the compiled kernel.
            return np.empty(0, dtype=dtype) if array is None else np.array(array, dtype=dtype)

        return DispatchTables(
            code=self._registered_code(),
            looks=self.looks,
            needs_cache=self.needs_cache,
            window_s=float(window_s),
            look_back=int(look_back),
            budget_tokens=float(budget_tokens),
            within_s=float(within_s),
            parameters=np.array(parameters, dtype=np.float64),
            start=plain(start, np.int32),
            second=plain(second, np.int32),
            ring=plain(ring, np.int32),
            row=np.empty((1, 0), dtype=np.int64) if row is None else np.array(row, dtype=np.int64),
            offsets=np.zeros(1, dtype=np.int64) if offsets is None else plain(offsets, np.int64),
            members=plain(members, np.int32),
            backup=plain(backup, np.int32),
            live=np.zeros(1, dtype=np.int64),
        )

    def _registered_code(self) -> int:
        """Return the code that the registry gave to this class; a subclass does not inherit it."""
        code = vars(type(self)).get("code")
        if code is None:
            raise ValueError(f"policy {type(self).__name__}: its class must be in a file of planner.routing.policies")
        return int(code)
