"""The live page of a fleet: figures of each arm over the last hour, verdicts, and routers."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from typing import Any

from django.utils import timezone

from planner.analysis.arms import fleet_imbalance
from planner.models import DriftCheck, Fleet, Plan, Publication, Rollout
from planner.selectors.monitoring.queries import envelope_of
from planner.selectors.rollouts.queries import LONG, latest_analysis
from planner.selectors.telemetry.traffic import (
    Places,
    Row,
    acceptable,
    arm_of,
    load_of,
    newest_end,
    one_kind,
    places_of,
    rows_of,
)

SPAN = dt.timedelta(hours=1)
SHOWN_MINUTES = 15
SHOWN_CHECKS = 20
ARMS = ("incumbent", "canary")
ALPHA = 0.05


def live_page(fleet: Fleet, now: dt.datetime | None = None) -> dict[str, object]:
    """Return the context of the page: the present state, and the newest minutes as a table."""
    now = now or timezone.now()
    data = live_data(fleet, now)
    newest = sorted({row["minute"] for row in data["rows"]}, reverse=True)[:SHOWN_MINUTES]
    return {
        **live_state(fleet, now),
        "minutes": [row for minute in newest for row in data["rows"] if row["minute"] == minute],
        "simulated": data["simulated"],
        "span_minutes": int(SPAN.total_seconds() // 60),
    }


def live_state(fleet: Fleet, now: dt.datetime | None = None) -> dict[str, object]:
    """Return routers and their table versions, the validated range, and the verdicts of monitor and analysis."""
    now = now or timezone.now()
    checks = list(DriftCheck.objects.filter(fleet=fleet).select_related("plan").defer(*LONG[:2])[:SHOWN_CHECKS])
    live = {r.state: r for r in _live(fleet)}
    canary = live.get(Rollout.State.CANARY)
    heard = newest_end(acceptable(fleet))
    return {
        "checks": checks,
        "check": checks[0] if checks else None,
        "heard": heard,
        "silent": heard is None or (now - heard).total_seconds() > fleet.telemetry_stale_s,
        "routers": routers(fleet, now),
        "active": live.get(Rollout.State.ACTIVE),
        "envelope": _envelope(live.get(Rollout.State.ACTIVE)),
        "canary": canary,
        "analysis": latest_analysis(canary) if canary is not None else None,
    }


def _live(fleet: Fleet) -> Iterable[Rollout]:
    rollouts = fleet.rollouts.filter(state__in=[Rollout.State.ACTIVE, Rollout.State.CANARY])
    found = list(rollouts.select_related("plan").defer(*LONG[:2]))
    for rollout in found:
        rollout.fleet = fleet
    return found


def _envelope(rollout: Rollout | None) -> dict[str, object] | None:
    return None if rollout is None or rollout.plan.kind == Plan.Kind.FLAT else envelope_of(rollout)


def routers(fleet: Fleet, now: dt.datetime) -> list[dict[str, Any]]:
    """Return each source of the last hour with its table version, its last report, and whether its version is old."""
    newest = (
        acceptable(fleet)
        .filter(ended_at__gt=now - SPAN)
        .order_by("source", "-ended_at")
        .distinct("source")
        .values("source", "table_version", "ended_at", "simulated", "late")
    )
    stale = dt.timedelta(seconds=fleet.telemetry_stale_s)
    return [
        {
            **row,
            "silent": row["ended_at"] < now - stale,
            # A window that ended before the newest table was published cannot have its version.
            "lags": row["table_version"] < fleet.table_version and row["ended_at"] > fleet.table_issued_at,
        }
        for row in newest
    ]


def live_data(fleet: Fleet, now: dt.datetime | None = None) -> dict[str, Any]:
    """What the charts draw.

    Returns
    -------
    dict
        ``rows``: a row for each minute and arm with ``minute``, ``arm``, ``plan`` (number), ``rps``, ``hit_rate``,
        ``p99`` and ``errors`` (value, low, high; None where not known), ``versions``; and for each minute one of the
        fleet (``arm`` is ``fleet``) with ``rps`` and ``imbalance``. ``changes``: when the table changed in this time.
        ``envelope``, ``checks``, ``simulated``.
    """
    now = now or timezone.now()
    since = now - SPAN
    rows = one_kind(rows_of(acceptable(fleet).filter(ended_at__gt=since)))
    numbers = dict(fleet.plans.filter(pk__in={row["plan_id"] for row in rows}).values_list("pk", "number"))
    places = places_of(fleet)
    minutes: dict[dt.datetime, list[Row]] = {}
    for row in rows:
        # By its middle: a window of another router that ends a second later belongs to the same minute.
        middle = row["started_at"] + (row["ended_at"] - row["started_at"]) / 2
        minutes.setdefault(middle.replace(second=0, microsecond=0), []).append(row)
    found = []
    for minute, of_minute in sorted(minutes.items()):
        for arm in ARMS:
            its = [row for row in of_minute if row["arm"] == arm]
            if its:
                found.append(_arm_row(minute, arm, its, numbers, places))
        found.append(_fleet_row(minute, of_minute, places))
    active = next((r for r in _live(fleet) if r.state == Rollout.State.ACTIVE), None)
    return {
        "rows": found,
        "since": since,
        "until": now,
        "changes": list(
            Publication.objects.filter(fleet=fleet, issued_at__gt=since)
            .order_by("version")
            .values_list("issued_at", "version")
        ),
        "envelope": _envelope(active),
        "checks": list(
            DriftCheck.objects.filter(fleet=fleet, created_at__gt=since)
            .order_by("id")
            .values_list("window_end", "verdict")
        ),
        "simulated": any(row["simulated"] for row in rows),
    }


def _arm_row(
    minute: dt.datetime, name: str, rows: Sequence[Row], numbers: dict[int, int], places: Places
) -> dict[str, object]:
    arm = arm_of(rows, places)
    p99 = arm.latency.quantile_interval(0.99, 1 - ALPHA)
    return {
        "minute": minute,
        "arm": name,
        "plans": sorted({numbers[row["plan_id"]] for row in rows}),
        "rps": load_of(rows).rps,
        "requests": arm.requests,
        "errors": arm.errors,
        "hit_rate": arm.hit_rate,
        "p99": p99.as_dict() if arm.latency.n else None,
        "error_rate": arm.errors / arm.requests if arm.requests else None,
        "versions": sorted({row["table_version"] for row in rows}),
        "routers": len({row["source"] for row in rows}),
        "imbalance": None,
    }


def _fleet_row(minute: dt.datetime, rows: Sequence[Row], places: Places) -> dict[str, object]:
    arm = arm_of(rows, places)
    balance = None
    if places.indices and arm.per_destination.any():
        found = fleet_imbalance(arm.per_destination, ALPHA, places.capacity)
        balance = found.value if math.isfinite(found.value) else None
    return {
        "minute": minute,
        "arm": "fleet",
        "plans": [],
        "rps": load_of(rows).rps,
        "requests": arm.requests,
        "errors": arm.errors,
        "hit_rate": arm.hit_rate,
        "p99": None,
        "error_rate": arm.errors / arm.requests if arm.requests else None,
        "versions": sorted({row["table_version"] for row in rows}),
        "routers": len({row["source"] for row in rows}),
        "imbalance": balance,
    }
