"""Pages of a fleet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from django.db.models import F, Q

from planner.artifacts import load_rates
from planner.models import Artifact, Fleet, Freeze, Plan, Rollout, Workload
from planner.selectors.audit.page import newest_events
from planner.selectors.fleets.home_page import recent_jobs
from planner.selectors.rollouts.queries import freeze_of

ROWS = 25
SHOWN_DESTINATIONS = 100
LONG = ("summary", "parameters")  # Of plans: they grow with destinations and tenants.


@dataclass(frozen=True)
class Arm:
    """A rollout that carries traffic, and its share of keys."""

    rollout: Rollout
    share: float


@dataclass(frozen=True)
class FleetHeader:
    """The header of every page of a fleet: live rollouts with their shares, schedules and freezes."""

    fleet: Fleet
    arms: list[Arm]
    canary: Rollout | None
    only_flat: bool
    scheduled: Rollout | None
    open_freeze: Freeze | None


def header(fleet: Fleet) -> FleetHeader:
    """Read the header of the pages of a fleet."""
    rows = Rollout.objects.filter(fleet=fleet, state__in=Rollout.OPEN)
    found = list(rows.select_related("plan", "paused_by").defer("plan__summary", "plan__parameters").order_by("state"))
    live = [r for r in found if r.state in Rollout.LIVE]
    canary = next((r for r in live if r.state == Rollout.State.CANARY), None)
    share = canary.weight if canary else 0.0
    return FleetHeader(
        fleet=fleet,
        arms=[Arm(r, 1.0 - share if r.state == Rollout.State.ACTIVE else share) for r in live],
        canary=canary,
        only_flat=len(live) == 1 and live[0].plan.kind == Plan.Kind.FLAT,
        scheduled=next((r for r in found if r.state == Rollout.State.SCHEDULED), None),
        open_freeze=freeze_of(fleet),
    )


def destinations_part(fleet: Fleet, named: str = "", start: int = 0) -> dict[str, object]:
    """Return the destinations whose name or URL contains a text, a hundred at a time, and their count.

    Parameters
    ----------
    fleet
        The fleet.
    named
        The text, in any case; empty for all destinations.
    start
        Position of the first destination among those found, from 0.

    Returns
    -------
    dict
        `previous` and `next` are the positions where the neighbouring parts begin, None where there is none.
    """
    rows = fleet.destinations.order_by("index")
    total = rows.count()
    found = rows.filter(Q(name__icontains=named) | Q(url__icontains=named)) if named else rows
    count = found.count() if named else total
    shown = list(found[start : start + SHOWN_DESTINATIONS])
    return {
        "rows": shown,
        "total": total,
        "count": count,
        "named": named,
        "first": start + 1,
        "last": start + len(shown),
        "previous": max(0, start - SHOWN_DESTINATIONS) if start else None,
        "next": start + SHOWN_DESTINATIONS if start + SHOWN_DESTINATIONS < count else None,
        "search": total > SHOWN_DESTINATIONS,
    }


def fleet_page(fleet: Fleet, named: str = "", start: int = 0) -> dict[str, object]:
    """Return the data of the page of the fleet, except its header.

    Parameters
    ----------
    fleet, named, start
        As in `destinations_part`.

    Returns
    -------
    dict
        Destinations, and the newest workloads, calibrations, plans, jobs and events.
    """
    return {
        "destinations": destinations_part(fleet, named, start),
        "workloads": list(fleet.workloads.select_related("created_by")[:ROWS]),
        "calibrations": list(fleet.calibrations.select_related("created_by", "serving_profile")[:ROWS]),
        "plans": list(
            fleet.plans.select_related("workload", "author")
            .defer("workload__shape", "workload__notices", *LONG)
            .annotate(
                admitted=F("summary__admitted"),
                planned_imbalance=F("summary__imbalance"),
                slots_used=F("summary__slots_used"),
            )[:ROWS]
        ),
        "jobs": recent_jobs(fleet),
        "events": newest_events(fleet, 10),
        "rows": ROWS,
    }


def workload_page(workload: Workload) -> dict[str, Any]:
    """Figures of a workload; the heaviest notices first."""
    curve = _curve(workload.rates.digest)
    return {
        "workload": workload,
        "curve": curve,
        "dominant": [n for n in workload.notices if n["code"] == "one-key-dominates"],
        "plans": list(workload.plans.select_related("author").defer(*LONG).order_by("-id")[:ROWS]),
    }


@lru_cache(maxsize=32)
def _curve(digest: str) -> dict[str, object]:
    """The share of traffic of the keys of highest rate: (rank, share of requests) at about 60 ranks, log-spaced."""
    names, rates = load_rates(Artifact.objects.get(digest=digest))
    order = np.argsort(-rates, kind="stable")
    total = float(rates.sum())
    if total <= 0:
        return {"points": [], "top": []}
    cumulated = np.cumsum(rates[order]) / total
    ranks = np.unique(np.geomspace(1, len(rates), 60).round().astype(int))
    return {
        "points": [(int(k), float(cumulated[k - 1])) for k in ranks],
        "top": [(names[i], float(rates[i]), float(rates[i]) / total) for i in order[:10].tolist()],
    }
