"""Drift check: the comparison of recent telemetry with the validated range of the active plan.

The range covers p99, error rate, max/mean of requests, load and active keys (paper, section 5.7, item 5). A figure is
outside only when the near end of its interval is outside, so that a minute with few requests does not count against a
plan. A load below the lowest replayed one is reported, but is not a breach: fewer requests leave more room, and a
fleet that fell back every night would be of no use.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, field, replace

from django.db.models import Q, QuerySet

from planner.analysis.arms import error_share, fleet_imbalance
from planner.models import DriftCheck, Fleet, Plan, Rollout, TelemetryWindow
from planner.records import JsonObject
from planner.selectors.monitoring.queries import envelope_of
from planner.selectors.telemetry.traffic import (
    Row,
    acceptable,
    active_keys_of,
    arm_of,
    load_of,
    newest_end,
    one_kind,
    places_of,
    rows_of,
)

# Error probability of each interval. Several checks in a row must be outside before the console acts.
ALPHA = 0.05
# Windows that ended less than this long ago may still arrive; the next check judges them.
GRACE_S = 15.0
# Longest time that one check covers after a pause: older telemetry needs no action. Late windows are judged up to
# this long after their end, or `telemetry_stale_s` where that is longer.
LONGEST_S = 600.0
FIRST_S = 60.0

Verdict = DriftCheck.Verdict


@dataclass(frozen=True)
class Drift:
    """Result of a check; `breaches` names the figures outside the range."""

    verdict: str
    explanation: str
    since: dt.datetime
    until: dt.datetime
    simulated: bool = False
    breaches: tuple[str, ...] = ()
    figures: JsonObject = field(default_factory=dict)


def judge(fleet: Fleet, active: Rollout, last: DriftCheck | None, now: dt.datetime) -> Drift:
    """Judge the telemetry since the last check. The caller ensures that no report is stored meanwhile.

    Parameters
    ----------
    fleet, active
        The fleet, and its active rollout.
    last
        The newest check of the fleet; None before the first, which covers 60 seconds.
    now
        Time of the check. Windows that ended less than 15 seconds before it are left to the next check.

    Returns
    -------
    Drift
        Verdict, explanation, period and figures. A period covers at most 600 seconds.
    """
    until = now - dt.timedelta(seconds=GRACE_S)
    since = until - dt.timedelta(seconds=FIRST_S)
    if last is not None and last.window_end is not None:
        since = max(last.window_end, until - dt.timedelta(seconds=LONGEST_S))
    newest = TelemetryWindow.objects.order_by("-id").values_list("id", flat=True).first() or 0
    drift = _look(fleet, active, _unjudged(fleet, last, since, until), since, until, now)
    if drift.verdict == Verdict.SILENT:  # nothing was judged
        newest = newest if last is None else last.figures.get("newest_window", newest)
    return replace(drift, figures={**drift.figures, "newest_window": newest})


def _unjudged(
    fleet: Fleet, last: DriftCheck | None, since: dt.datetime, until: dt.datetime
) -> QuerySet[TelemetryWindow]:
    """Return windows that ended since the last check, and windows that arrived since and ended before: each is judged
    once.
    """
    windows = acceptable(fleet).filter(ended_at__lte=until)
    seen = None if last is None else last.figures.get("newest_window")
    if seen is None:
        return windows.filter(ended_at__gt=since)
    reach = until - dt.timedelta(seconds=max(LONGEST_S, fleet.telemetry_stale_s))
    return windows.filter(Q(ended_at__gt=since) | Q(pk__gt=seen), ended_at__gt=min(since, reach))


def _look(
    fleet: Fleet,
    active: Rollout,
    unjudged: QuerySet[TelemetryWindow],
    since: dt.datetime,
    until: dt.datetime,
    now: dt.datetime,
) -> Drift:
    heard = newest_end(acceptable(fleet))
    if heard is None or heard < now - dt.timedelta(seconds=fleet.telemetry_stale_s):
        words = "No router telemetry yet" if heard is None else f"No router telemetry since {_moment(heard)}"
        return Drift(Verdict.SILENT, f"{words}. Breaches cannot be detected.", since, until)
    rows = one_kind(rows_of(unjudged))
    if not any(row["requests"] for row in rows):
        return Drift(Verdict.MISSING, "No requests were reported since the last check.", since, until)
    simulated = any(row["simulated"] for row in rows)
    figures = _figures(fleet, active, rows)
    figures["late_windows"] = sum(row["ended_at"] <= since for row in rows)
    if active.plan.kind == Plan.Kind.FLAT:
        return Drift(
            Verdict.WITHIN, "Flat-LB is live. No limits apply.", since, until, simulated,
            figures=figures,
        )  # fmt: skip
    return _against_range(fleet, active, figures, since, until, simulated)


def _against_range(
    fleet: Fleet, active: Rollout, figures: JsonObject, since: dt.datetime, until: dt.datetime, simulated: bool
) -> Drift:
    envelope = envelope_of(active)
    if envelope is None:
        return Drift(
            Verdict.MISSING, f"{active.plan} has no validated range.", since, until, simulated, figures=figures
        )
    figures["limits"] = envelope
    if not figures["requests"]:
        warm = f"{fleet.canary_warmup_s:g} s of warm-up"
        return Drift(
            Verdict.MISSING, f"No requests of {active.plan} were reported yet after {warm}.", since, until, simulated,
            figures=figures,
        )  # fmt: skip
    outside = _outside(figures, envelope)
    if outside:
        words = " ".join(outside.values())
        return Drift(Verdict.OUT_OF_RANGE, words, since, until, simulated, tuple(outside), figures)
    low = figures["load"]["rps"] < envelope["load_low_rps"]
    note = f" The load is below the lowest replayed load, {envelope['load_low_rps']:g} requests/s." if low else ""
    return Drift(
        Verdict.WITHIN,
        f"p99 {figures['p99_s']['value']:.3g} s, {figures['error_rate']['value']:.2%} errors and "
        f"{figures['load']['rps']:.4g} requests/s are within the validated range.{note}",
        since,
        until,
        simulated,
        figures=figures,
    )


def _figures(fleet: Fleet, active: Rollout, rows: list[Row]) -> JsonObject:
    """Return figures of the active plan (requests, failures, latency) and of the fleet (load, balance, active keys)."""
    warm = (active.activated_at or active.created_at) + dt.timedelta(seconds=fleet.canary_warmup_s)
    flat = active.plan.kind == Plan.Kind.FLAT
    mine = [row for row in rows if row["plan_id"] == active.plan_id and (flat or row["started_at"] >= warm)]
    places = places_of(fleet)
    arm, everything = arm_of(mine, places), arm_of(rows, places)
    p99 = arm.latency.quantile_interval(0.99, 1 - ALPHA)
    load = load_of(rows)
    balance = fleet_imbalance(everything.per_destination, ALPHA, places.capacity) if places.indices else None
    return {
        "requests": arm.requests,
        "errors": arm.errors,
        "p99_s": p99.as_dict(),
        "error_rate": error_share(arm.errors, arm.requests, ALPHA).as_dict(),
        "hit_rate": arm.hit_rate,
        "imbalance": None if balance is None else {k: v for k, v in balance.as_dict().items() if math.isfinite(v)},
        "load": {"rps": load.rps, "low": load.low},
        "active_keys": active_keys_of(rows),
        "versions": {row["source"]: row["table_version"] for row in rows},
    }


def _outside(figures: JsonObject, envelope: JsonObject) -> dict[str, str]:
    """Return a sentence for each figure outside the range."""
    p99, errors, balance = figures["p99_s"], figures["error_rate"], figures["imbalance"]
    load, keys = figures["load"], figures["active_keys"]
    found = {}
    if p99["low"] > envelope["p99_limit_s"]:
        found["p99"] = f"p99 {p99['value']:.3g} s (at least {p99['low']:.3g}) is above {envelope['p99_limit_s']:g} s."
    if errors["low"] > envelope["max_error_rate"]:
        found["errors"] = (
            f"{errors['value']:.2%} of requests failed (at least {errors['low']:.2%}), above "
            f"{envelope['max_error_rate']:.2%}."
        )
    if balance is not None and balance["low"] > envelope["max_imbalance"]:
        found["imbalance"] = (
            f"max/mean of requests {balance['value']:.3f} (at least {balance['low']:.3f}) is above "
            f"{envelope['max_imbalance']:.3g}."
        )
    if load["low"] > envelope["load_high_rps"]:
        found["load"] = (
            f"{load['rps']:.4g} requests/s are above the validated {envelope['load_high_rps']:g} requests/s."
        )
    if keys is not None and keys > envelope["active_keys"]:
        found["active_keys"] = f"{keys:,} active keys are above the validated {envelope['active_keys']:,}."
    return found


def _moment(value: dt.datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC"
