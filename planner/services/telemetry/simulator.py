"""Traffic simulator: the replay engine, run against the clock, for fleets without replicas and routers.

For fleets with `simulated_traffic` the requests of a workload are repeated at its rate, minute by minute, under the
tables published meanwhile: a key belongs to the canary when its place (`routing.split`) is below the canary's weight,
and a change of the table shows in its window, cold caches included. Figures are stored like those of routers
(`windows.record_windows`) and marked simulated. They are the same whenever and however often a minute is simulated.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import structlog
from django.utils import timezone
from numpy.typing import NDArray

from planner import artifacts
from planner.analysis.latency import LatencySketch
from planner.models import Destination, DriftCheck, Fleet, Plan, Publication, Rollout, TelemetryWindow, Workload
from planner.records import JsonObject
from planner.routing import RoutingTable
from planner.services.base.locking import SIMULATOR_SPACE, held
from planner.services.fleets.engines import engine_of
from planner.services.telemetry.payload import SHORTEST_S
from planner.services.telemetry.simulated_requests import canary_shares, combined_table, looped
from planner.services.telemetry.windows import SIMULATOR, Recorded, record_windows
from planner.services.workloads import traces
from planner.simulation import Fault, PlanSwitch, ReplayResult, replay

log = structlog.get_logger(__name__)

WINDOW = dt.timedelta(minutes=1)
# Seconds simulated before a window to fill caches and queues, and the highest number of requests for it.
LEAD_S = 300.0
MAX_LEAD_REQUESTS = 60_000
# Minutes that are simulated after a pause; older ones are skipped.
MAX_MINUTES = 5


@dataclass(frozen=True)
class Stretch:
    """A stretch of time with one table version; `since` counts from the first request of the lead-in."""

    publication: Publication
    since: float


@dataclass(frozen=True)
class Played:
    """A replay of the lead-in and the window."""

    result: ReplayResult
    names: Sequence[str]
    key: NDArray[np.int64]  # of each request, an index into names
    share: NDArray[np.float64]  # of each key


def simulate_all(now: dt.datetime | None = None) -> int:
    """Simulate minutes that are over and not simulated yet on every fleet with simulated traffic; return the number of
    windows.
    """
    count = 0
    for fleet in Fleet.objects.filter(simulated_traffic=True).select_related("serving_profile").order_by("pk"):
        try:
            count += simulate_fleet(fleet, now=now)
        except Exception:  # One fleet must not silence the others.
            log.exception("simulation_crashed", fleet=fleet.slug)
    return count


def simulate_fleet(fleet: Fleet, *, now: dt.datetime | None = None, minutes: int | None = None) -> int:
    """Simulate whole minutes up to now that have no window yet: first only the last one, at most five later.

    Parameters
    ----------
    fleet
        A fleet with simulated traffic.
    now
        End of the simulation, rounded down to a minute; by default the present.
    minutes
        Most minutes to simulate. Unless it is given, the simulation waits for the first check of the monitor: the gate
        refuses telemetry that is not monitored.

    Returns
    -------
    int
        Number of stored windows; 0 also when another process simulates the fleet.
    """
    with held(SIMULATOR_SPACE, fleet.pk) as mine:
        if not mine:
            return 0
        until = (now or timezone.now()).replace(second=0, microsecond=0)
        mine_so_far = TelemetryWindow.objects.filter(fleet=fleet, source=SIMULATOR, arm="incumbent")
        last = mine_so_far.order_by("-ended_at").values_list("ended_at", flat=True).first()
        if minutes is None and last is None and not DriftCheck.objects.filter(fleet=fleet).exists():
            return 0
        start = until - WINDOW * (minutes or (1 if last is None else MAX_MINUTES))
        if last is not None:
            start = max(start, last)
        count = 0
        while start < until:
            end = min(start.replace(second=0, microsecond=0) + WINDOW, until)
            count += sum(len(found.windows) for found in simulate_window(fleet, start, end))
            start = end
        return count


def simulate_window(fleet: Fleet, start: dt.datetime, end: dt.datetime) -> list[Recorded]:
    """Simulate and report one window, in parts where the table changed within it.

    Parameters
    ----------
    fleet
        A fleet with simulated traffic.
    start, end
        Start and end of the window, with their time zone. The simulation begins up to 300 s earlier, to warm the
        caches.

    Returns
    -------
    list of Recorded
        One for each part; empty without a workload with a rate above 0, or when no destination is up.
    """
    workload = _workload(fleet)
    if workload is None or not fleet.destinations.filter(state=Destination.State.UP).exists():
        return []
    lead_s = min(LEAD_S, MAX_LEAD_REQUESTS / workload.total_rps)
    begin = start - dt.timedelta(seconds=lead_s)
    stretches = _published(fleet, begin, end)
    played = _play(fleet, workload, stretches, begin, end)
    reports = []
    for since, until, publication in _parts(stretches, begin, start, end):
        report = _report(fleet, played, publication, begin, since, until)
        reports.append(record_windows(acting_user=None, fleet=fleet, payload=report))
    return reports


def _workload(fleet: Fleet) -> Workload | None:
    """Return the workload of the canary, else of the active plan, else the newest."""
    live = fleet.rollouts.filter(state__in=[Rollout.State.ACTIVE, Rollout.State.CANARY]).order_by("-state")
    for rollout in live.select_related("plan__workload").defer("plan__summary"):
        if rollout.plan.workload is not None and rollout.plan.workload.total_rps > 0:
            return rollout.plan.workload
    return fleet.workloads.filter(total_rps__gt=0).order_by("-id").first()


def _published(fleet: Fleet, begin: dt.datetime, end: dt.datetime) -> list[Stretch]:
    """Return the table versions from `begin` to `end`; a fleet counts as having its first version from the start."""
    versions = Publication.objects.filter(fleet=fleet).order_by("version")
    before = versions.filter(issued_at__lte=begin).last() or versions.first()
    assert before is not None  # a fleet publishes when it is created
    within = versions.filter(version__gt=before.version, issued_at__lt=end)
    return [Stretch(before, 0.0), *(Stretch(p, max(0.0, (p.issued_at - begin).total_seconds())) for p in within)]


def _play(fleet: Fleet, workload: Workload, stretches: list[Stretch], begin: dt.datetime, end: dt.datetime) -> Played:
    whole = traces.trace_of(workload, traces.synthetic_settings(workload))
    trace = looped(whole, rate_rps=workload.total_rps, from_s=begin.timestamp(), until_s=end.timestamp())
    distinct, key = trace.dense_keys
    names = artifacts.load(workload.rates, ["key"]).column("key").take(distinct).to_pylist()
    trace = replace(trace, key=key, key_names=names)
    share = canary_shares(fleet.salt, names)
    places = list(fleet.destinations.order_by("index"))
    tables = [_table(stretch.publication, names, share, len(places)) for stretch in stretches]
    result = replay(
        trace,
        policy="cacheroute",
        destinations=len(places),
        profile=engine_of(fleet.serving_profile),
        table=tables[0],
        seed=int(end.timestamp()),
        warmup=0.0,
        speed=[place.weight for place in places],
        faults=_absent(places),
        switches=[PlanSwitch(s.since, table) for s, table in zip(stretches[1:], tables[1:], strict=True)],
    )
    return Played(result, names, trace.key, share)


def _absent(places: Sequence[Destination]) -> list[Fault]:
    """Return destinations that take no requests, as faults from the start."""
    kinds: JsonObject = {Destination.State.DOWN.value: "down", Destination.State.DRAINING.value: "drain"}
    return [Fault(kinds[place.state], at, 0.0) for at, place in enumerate(places) if place.state in kinds]


def _table(
    publication: Publication, names: Sequence[str], share: NDArray[np.float64], destinations: int
) -> RoutingTable:
    """Return the table that a router with this version uses for each key."""
    takes = _canary_keys(publication, share)
    arms = []
    for arm in publication.arms:
        plan = _plan(arm["plan"])
        if plan.table is not None:
            table, its_names = artifacts.load_table(plan.table)
            mine = takes if arm["name"] == "canary" else ~takes
            arms.append((mine, its_names, table, plan.parameters["destinations"]))
    return combined_table(arms, names, destinations)


@lru_cache(maxsize=8)
def _plan(pk: int) -> Plan:
    """Return a plan with its table; neither changes after publication."""
    return Plan.objects.select_related("table").defer("summary").get(pk=pk)


def _canary_keys(publication: Publication, share: NDArray[np.float64]) -> NDArray[np.bool_]:
    weight = next((arm["weight"] for arm in publication.arms if arm["name"] == "canary"), 0.0)
    return share < weight


def _parts(
    stretches: list[Stretch], begin: dt.datetime, start: dt.datetime, end: dt.datetime
) -> list[tuple[dt.datetime, dt.datetime, Publication]]:
    """Cut the window where the table changed; a part that is too short is joined with its neighbour."""
    shortest = dt.timedelta(seconds=SHORTEST_S)
    cuts = [start]
    for stretch in stretches[1:]:
        at = begin + dt.timedelta(seconds=stretch.since)
        if at - cuts[-1] >= shortest and end - at >= shortest:
            cuts.append(at)
    parts = []
    for since, until in zip(cuts, [*cuts[1:], end], strict=True):
        middle = (since + (until - since) / 2 - begin).total_seconds()
        parts.append((since, until, [s for s in stretches if s.since <= middle][-1].publication))
    return parts


def _report(
    fleet: Fleet, played: Played, publication: Publication, begin: dt.datetime, since: dt.datetime, until: dt.datetime
) -> JsonObject:
    """Return the report of the requests that arrived in a part of the window."""
    result = played.result
    at = result.arrival_s
    part = (at >= (since - begin).total_seconds()) & (at < (until - begin).total_seconds())
    canary = _canary_keys(publication, played.share)[played.key]
    counts = np.bincount(played.key[part], minlength=len(played.names))
    return {
        "source": SIMULATOR,
        "simulated": True,
        "table_version": publication.version,
        "started_at": since,
        "ended_at": until,
        "arms": [
            {
                "name": arm["name"],
                "destinations": _destinations(result, part & (canary if arm["name"] == "canary" else ~canary)),
            }
            for arm in publication.arms
        ],
        "keys": {played.names[key]: int(counts[key]) for key in np.flatnonzero(counts).tolist()},
    }


def _destinations(result: ReplayResult, mine: NDArray[np.bool_]) -> list[JsonObject]:
    """Return figures of each destination; requests that no cache holds count as failures of the first one."""
    where = np.where(result.served, result.destination, 0)
    rows = []
    for index in np.unique(where[mine]).tolist():
        here = mine & (where == index)
        answered = here & result.served
        rows.append(
            {
                "index": index,
                "requests": int(here.sum()),
                "errors": int((here & ~result.served).sum()),
                "prompt_tokens": int(result.prompt_tokens[answered].sum()),
                "cached_tokens": int(result.cached_tokens[answered].sum()),
                "latency": LatencySketch.from_samples(result.latency_s[answered]).as_payload(),
            }
        )
    return rows
