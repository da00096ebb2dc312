"""Events of destinations and plans during a replay: deaths, drains, slow periods, plan switches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.routing import RoutingTable
from planner.routing.validation import positive, whole

__all__ = ["CLOSE", "DIE", "OPEN", "PLAN", "REVIVE", "SPEED", "Fault", "PlanSwitch", "Timeline", "timeline"]

# Kinds of events, in their order at one instant: destinations return before others leave.
REVIVE, OPEN, SPEED, PLAN, CLOSE, DIE = range(6)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and bool(0 <= value < np.inf)


@dataclass(frozen=True)
class Fault:
    """A fault of one destination for a time.

    Parameters
    ----------
    kind : {"down", "drain", "slow"}
        "down": it dies with its cache; its requests in flight are dispatched again from the beginning, and counted;
        it returns with an empty cache. "drain": it takes no new requests, finishes its requests and keeps its cache.
        "slow": its iterations take ``factor`` times as long, from the next one that starts.
    destination : int
        Index.
    start_s, end_s : float
        Seconds on the clock of the trace; without an end, the fault lasts to the end of the replay.
    factor : float
        Of "slow", from 1e-3 to 1e3; default 2.

    Raises
    ------
    ValueError
        Naming the field and its value.
    """

    kind: Literal["down", "drain", "slow"]
    destination: int
    start_s: float
    end_s: float | None = None
    factor: float = 2.0

    def __post_init__(self) -> None:
        if self.kind not in ("down", "drain", "slow"):
            raise ValueError(f"kind = {self.kind!r}: expected down, drain or slow")
        whole("destination", self.destination, 0)
        if not _is_time(self.start_s):
            raise ValueError(f"start_s = {self.start_s}: expected a finite time >= 0")
        if self.end_s is not None and not (_is_time(self.end_s) and self.end_s > self.start_s):
            raise ValueError(f"end_s = {self.end_s}: expected a finite time after start_s = {self.start_s}")
        if not 1e-3 <= positive("factor", self.factor) <= 1e3:
            raise ValueError(f"factor = {self.factor}: expected 1e-3 to 1e3")


@dataclass(frozen=True)
class PlanSwitch:
    """A switch to another routing table at ``at_s`` (seconds on the clock of the trace)."""

    at_s: float
    table: RoutingTable

    def __post_init__(self) -> None:
        if not _is_time(self.at_s):
            raise ValueError(f"at_s = {self.at_s}: expected a finite time >= 0")
        if not isinstance(self.table, RoutingTable):
            raise ValueError(f"table: expected a RoutingTable, got {type(self.table).__name__}")


class Timeline(NamedTuple):
    """Events in order of (time, kind, place in the given sequences)."""

    time: NDArray[np.float64]
    kind: NDArray[np.int64]
    subject: NDArray[np.int64]  # destination, or number of the table
    value: NDArray[np.float64]  # factor of its speed


def timeline(
    faults: Sequence[Fault], switches: Sequence[PlanSwitch], destinations: int, start_s: float = 0.0
) -> Timeline:
    """Return faults and switches in order of time.

    Parameters
    ----------
    faults : sequence of Fault
        Faults of destinations.
    switches : sequence of PlanSwitch
        Switches of tables, in order of time.
    destinations : int
        R.
    start_s : float
        Origin of the times of the result, seconds.

    Returns
    -------
    Timeline
        Events in order of (time, kind, position in the input).

    Raises
    ------
    ValueError
        For a destination that does not exist, for faults of one kind that overlap on a destination, and for switches
        that are not in order of time.
    """
    events: list[tuple[float, int, int, float]] = []
    for number, fault in enumerate(faults):
        if not isinstance(fault, Fault):
            raise ValueError(f"faults[{number}]: expected a Fault, got {type(fault).__name__}")
        if fault.destination >= destinations:
            raise ValueError(f"faults[{number}].destination = {fault.destination}: expected below {destinations}")
        for other in faults[:number]:
            if (other.kind, other.destination) == (fault.kind, fault.destination) and _overlap(other, fault):
                raise ValueError(
                    f"faults[{number}]: destination {fault.destination} has another {fault.kind!r} at that time"
                )
        begin, finish = {"down": (DIE, REVIVE), "drain": (CLOSE, OPEN), "slow": (SPEED, SPEED)}[fault.kind]
        events.append((fault.start_s, begin, fault.destination, 1 / fault.factor))
        if fault.end_s is not None:
            events.append((fault.end_s, finish, fault.destination, fault.factor))
    for number, switch in enumerate(switches):
        if not isinstance(switch, PlanSwitch):
            raise ValueError(f"switches[{number}]: expected a PlanSwitch, got {type(switch).__name__}")
    ordered = sorted(switches, key=lambda switch: switch.at_s)
    if list(switches) != ordered:
        raise ValueError("switches: expected in order of time")
    events += [(switch.at_s, PLAN, 1 + number, 1.0) for number, switch in enumerate(switches)]
    events.sort(key=lambda event: event[:2])
    columns = list(zip(*events, strict=True)) if events else [(), (), (), ()]
    return Timeline(
        np.array(columns[0], dtype=np.float64) - start_s,
        np.array(columns[1], dtype=np.int64),
        np.array(columns[2], dtype=np.int64),
        np.array(columns[3], dtype=np.float64),
    )


def _overlap(a: Fault, b: Fault) -> bool:
    return a.start_s < (np.inf if b.end_s is None else b.end_s) and b.start_s < (np.inf if a.end_s is None else a.end_s)
