"""Options of a replay, checked and with their defaults filled in; they are stored as JSON with the replay.

Times are shares of the arrivals' span: 0 is the first arrival, 1 the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from planner.records import Record

__all__ = ["FaultOption", "OtherPlan", "ReplayOptions", "ReplayParameters", "SwitchOption", "SyntheticRequests"]

# Median, sigma of the logarithm, lowest and highest value of a log-normal length in tokens.
LengthsOption = tuple[float, float, int, int]


@dataclass(frozen=True, kw_only=True)
class FaultOption(Record):
    """A destination that dies (down), takes no new requests (drain) or is slow (its steps take ``factor`` as long).

    ``position`` is the place of the destination in the table; ``end`` None is the end of the replay.
    """

    kind: Literal["down", "drain", "slow"]
    destination: str
    position: int
    start: float
    end: float | None
    factor: float | UnsetType = UNSET

    @property
    def ends_at(self) -> float:
        """End of the fault; infinite without one."""
        return float("inf") if self.end is None else self.end


@dataclass(frozen=True, kw_only=True)
class OtherPlan(Record):
    """Another plan of the fleet that is replayed: number, id and digest of its table.

    ``keys`` is the number of its keys and ``unknown`` the number of its keys that the workload lacks; both are
    unset until the tables were read. ``live`` marks the plan that was added because it is active.
    """

    plan: int
    id: int | UnsetType = UNSET
    table: str
    live: bool | UnsetType = UNSET
    keys: int | UnsetType = UNSET
    unknown: int | UnsetType = UNSET


@dataclass(frozen=True, kw_only=True)
class SwitchOption(OtherPlan):
    """A switch of plans: this other plan is active until ``at``, the plan of the replay afterwards."""

    at: float


@dataclass(frozen=True, kw_only=True)
class SyntheticRequests(Record):
    """How requests are made from rates: number, keys, load (requests/s), seed and log-normal lengths in tokens."""

    requests: int
    active_keys: int
    load_rps: float
    seed: int
    prefix_tokens: LengthsOption
    suffix_tokens: LengthsOption
    output_tokens: LengthsOption


@dataclass(frozen=True, kw_only=True)
class ReplayParameters(Record):
    """Options of a replay that have no column of their own. Replays of earlier releases lack some."""

    policy_parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    cv: float | None = None
    run_length: int | None = None
    requests: int
    warmup: float
    faults: tuple[FaultOption, ...] = ()
    switch: SwitchOption | None = None
    also: tuple[OtherPlan, ...] = ()
    refine: int = 0
    extend: bool = False
    what_if: tuple[str, ...] = ()
    synthetic_trace: SyntheticRequests | None = None

    @property
    def returns(self) -> list[float]:
        """Moments at which destinations that were down return with empty caches; not at the very end."""
        return [fault.end for fault in self.faults if fault.kind == "down" and fault.end is not None and fault.end < 1]


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(ReplayParameters):
    """All options of a replay: policies (with other plans as ``cacheroute@<number>``), loads, seeds and the rest."""

    policies: tuple[str, ...]
    loads_rps: tuple[float, ...]
    seeds: tuple[int, ...]
    arrivals: str
