"""Reports of routers for tests: windows of made-up requests, as a router would send them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from django.utils import timezone

from planner.analysis.latency import LatencySketch
from planner.models import Fleet


@contextmanager
def later(**delta: float) -> Iterator[dt.datetime]:
    """The console's clock stands still, so much later than it is."""
    moment = timezone.now() + dt.timedelta(**delta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: moment)
        yield moment


def minute(ago: int = 1) -> dt.datetime:
    """The beginning of a minute, the last whole one by default."""
    return timezone.now().replace(second=0, microsecond=0) - dt.timedelta(minutes=ago)


def arm_report(
    fleet: Fleet,
    name: str = "incumbent",
    *,
    requests: int = 1_200,
    p99_s: float = 2.0,
    errors: int = 0,
    hit_rate: float = 0.8,
    spread: list[int] | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """An arm whose latencies are exponential with that p99, even over destinations unless `spread` says how."""
    names = list(fleet.destinations.order_by("index").values_list("name", flat=True))
    rng = np.random.default_rng(seed)
    even = [requests // len(names) + (at < requests % len(names)) for at in range(len(names))]
    failed, rows = errors, []
    for destination, count in zip(names, spread or even, strict=True):
        latency = np.minimum(rng.exponential(p99_s / -np.log(0.01), size=count), 10 * p99_s)
        mine = min(failed, count)
        failed -= mine
        rows.append(
            {
                "name": destination,
                "requests": count,
                "prompt_tokens": 1_000 * count,
                "cached_tokens": int(1_000 * count * hit_rate),
                "errors": mine,
                "latency": LatencySketch.from_samples(latency[mine:]).as_payload(),
            }
        )
    return {"name": name, "destinations": rows}


def window_report(
    fleet: Fleet,
    *arms: dict[str, Any],
    started_at: dt.datetime | None = None,
    seconds: float = 60.0,
    source: str = "router-1",
    **more: Any,
) -> dict[str, Any]:
    """A window of the last whole minute, of the table that is published now."""
    start = minute() if started_at is None else started_at
    return {
        "source": source,
        "table_version": fleet.table_version,
        "started_at": start,
        "ended_at": start + dt.timedelta(seconds=seconds),
        "arms": list(arms) or [arm_report(fleet)],
        **more,
    }


def as_json(report: dict[str, Any]) -> dict[str, Any]:
    """The report as it goes over the wire."""
    times = {name: report[name].isoformat() for name in ("started_at", "ended_at")}
    return {**report, **times}
