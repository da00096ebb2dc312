"""Telemetry added up by arm and by fleet over a stretch of time."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db.models import QuerySet
from numpy.typing import NDArray

from planner.analysis.arms import Arm
from planner.analysis.latency import LatencySketch, merge
from planner.models import Destination, Fleet, TelemetryWindow

# Highest number of windows that are read, the newest first: a long step is judged on its last part, and the judgement
# says so.
MAX_WINDOWS = 2_000
_PARTS = ("latency", "destinations", "prompt_tokens", "cached_tokens", "active_keys")
_COLUMNS = (
    "id", "plan_id", "arm", "source", "table_version", "started_at", "ended_at", "requests", "errors", "simulated",
)  # fmt: skip
Row = dict[str, Any]


def acceptable(fleet: Fleet) -> QuerySet[TelemetryWindow]:
    """Return the windows that may be judged; simulated ones only where the policy accepts them."""
    windows = TelemetryWindow.objects.filter(fleet=fleet)
    return windows if fleet.accept_simulated else windows.filter(simulated=False)


def rows_of(windows: QuerySet[TelemetryWindow]) -> list[Row]:
    """Return rows with the figures that are added up, oldest first, without counts of keys."""
    parts = [f"figures__{part}" for part in _PARTS]
    newest = windows.order_by("-ended_at", "-id").values(*_COLUMNS, *parts)[:MAX_WINDOWS]
    return [{name.removeprefix("figures__"): value for name, value in row.items()} for row in newest][::-1]


def one_kind(rows: Sequence[Row]) -> list[Row]:
    """Return measured windows where there are any, else simulated ones: never both in one figure."""
    measured = [row for row in rows if not row["simulated"]]
    return measured or list(rows)


def newest_end(windows: QuerySet[TelemetryWindow]) -> dt.datetime | None:
    """Return the end of the newest window."""
    return windows.order_by("-ended_at").values_list("ended_at", flat=True).first()


@dataclass(frozen=True)
class Places:
    """Destinations that take traffic, in the order of counts.

    Attributes
    ----------
    indices : tuple of int
        Indices in the fleet.
    names : tuple of str
        Names.
    capacity : float64[R]
        Relative speeds.
    """

    indices: tuple[int, ...]
    names: tuple[str, ...]
    capacity: NDArray[np.float64]


def places_of(fleet: Fleet) -> Places:
    """Return the destinations that are up."""
    up = list(
        fleet.destinations.filter(state=Destination.State.UP).order_by("index").values_list("index", "name", "weight")
    )
    return Places(tuple(r[0] for r in up), tuple(r[1] for r in up), np.array([r[2] for r in up], dtype=np.float64))


def latency_of(rows: Iterable[Row]) -> LatencySketch:
    """Return one sketch of all latencies."""
    return merge(LatencySketch.from_payload(row["latency"]) for row in rows if row["latency"])


def arm_of(rows: Sequence[Row], places: Places) -> Arm:
    """Return the sum of windows; requests of destinations that are not up are in the totals only."""
    at = {index: position for position, index in enumerate(places.indices)}
    counts = np.zeros(len(places.indices), dtype=np.int64)
    for row in rows:
        for destination in row["destinations"] or ():
            if destination["index"] in at:
                counts[at[destination["index"]]] += destination["requests"]
    return Arm(
        requests=sum(row["requests"] for row in rows),
        errors=sum(row["errors"] for row in rows),
        latency=latency_of(rows),
        prompt_tokens=sum(row["prompt_tokens"] or 0 for row in rows),
        cached_tokens=sum(row["cached_tokens"] or 0 for row in rows),
        per_destination=counts,
    )


@dataclass(frozen=True)
class Load:
    """Load of a fleet in requests/s, and the lower end of its Poisson interval (two deviations)."""

    rps: float
    low: float


def load_of(rows: Sequence[Row]) -> Load:
    """Return requests/s over the reported time of each router, all routers together; both arms of a router share its
    time.

    Windows with different bounds are added up: each router serves its part.
    """
    spans: dict[str, set[tuple[dt.datetime, dt.datetime]]] = {}
    requests: dict[str, int] = {}
    for row in rows:
        spans.setdefault(row["source"], set()).add((row["started_at"], row["ended_at"]))
        requests[row["source"]] = requests.get(row["source"], 0) + row["requests"]
    rps = low = 0.0
    for source, its in spans.items():
        seconds = sum((end - start).total_seconds() for start, end in its)
        count = requests[source]
        rps += count / seconds
        low += max(0.0, count - 2 * math.sqrt(count)) / seconds
    return Load(rps, low)


def active_keys_of(rows: Iterable[Row]) -> int | None:
    """Return the highest number of keys that one router counted in one window, a lower bound of active keys; None
    without
    counts.
    """
    return max((row["active_keys"] for row in rows if row["active_keys"] is not None), default=None)
