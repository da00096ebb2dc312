"""What the pages of a fleet show."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from planner.artifacts import load_rates
from planner.models import Artifact, Fleet, Plan, Workload
from planner.selectors.audit_page import newest_events
from planner.selectors.home_page import live_rollouts, recent_jobs

ROWS = 25


def header(fleet: Fleet) -> dict[str, Any]:
    """What stands on top of every page of a fleet: what is live, and at which share of keys."""
    live = list(live_rollouts().filter(fleet=fleet))
    canary = next((r for r in live if r.state == "canary"), None)
    share = canary.weight if canary else 0.0
    arms = [{"rollout": r, "share": 1.0 - share if r.state == "active" else share} for r in live]
    only_flat = len(live) == 1 and live[0].plan.kind == Plan.Kind.FLAT
    return {"fleet": fleet, "arms": arms, "canary": canary, "only_flat": only_flat}


def fleet_page(fleet: Fleet) -> dict[str, Any]:
    """Everything of the fleet's own page but its header."""
    return {
        "destinations": list(fleet.destinations.order_by("index")),
        "workloads": list(fleet.workloads.select_related("created_by")[:ROWS]),
        "calibrations": list(fleet.calibrations.select_related("created_by", "serving_profile")[:ROWS]),
        "plans": list(
            fleet.plans.select_related("workload", "author").defer("workload__shape", "workload__notices")[:ROWS]
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
        "plans": list(workload.plans.select_related("author").order_by("-id")[:ROWS]),
    }


@lru_cache(maxsize=32)
def _curve(digest: str) -> dict[str, Any]:
    """How much of the traffic the busiest keys carry: (rank, share of requests) at about 60 ranks, log-spaced."""
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
