"""What one cell of a replay computes: the same figures whenever and wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from planner import artifacts
from planner.models import CANDIDATE, Artifact, Replay, ReplayCell, ServingProfile
from planner.routing import RoutingTable
from planner.routing.renumber import with_keys
from planner.services.fleets.engines import engine_of
from planner.services.replays.cell_figures import Tenants, figures_of_result
from planner.services.replays.policy_parameters import policy_of
from planner.services.workloads import traces
from planner.simulation import EngineProfile, Fault, PlanSwitch, Trace, replay


def figures_of(cell: ReplayCell, go_on: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Replay the cell.

    Parameters
    ----------
    go_on
        Called at least every few ten milliseconds while requests are replayed, and between the steps before that,
        none of which takes a second; what it raises ends the work, and of its requests nothing is kept.

    Raises
    ------
    ValueError
        For arguments that the engine refuses, and where no request is left to measure.
    """
    try:
        return _figures(cell, go_on)
    except Exception:
        traces.let_go()
        raise


def _figures(cell: ReplayCell, go_on: Callable[[], None]) -> dict[str, Any]:
    row = cell.replay
    # Replays from before an option was known lack it.
    chosen: dict[str, Any] = {"cv": None, "run_length": None, "faults": [], "policy_parameters": {}, **row.parameters}
    trace = _trace(cell, chosen, go_on)
    go_on()
    name, _, _ = cell.policy.partition("@")
    table, switches = _tables(cell, chosen, trace)
    own = _own_table(row)
    go_on()
    faults = [_fault(fault, trace) for fault in chosen["faults"]]
    result = replay(
        trace,
        policy=policy_of(name, chosen["policy_parameters"].get(name, {})),
        destinations=own.destinations,
        profile=_engine(row.fingerprint),
        table=table,
        seed=cell.seed,
        faults=faults,
        warmup=chosen["warmup"],
        speed=row.plan.parameters.get("capacity"),
        switches=switches,
        checkpoint=lambda _done: go_on(),
    )
    go_on()
    at_s = sorted(
        {fault.start_s for fault in faults} | {s.at_s for s in switches} | {moment_s(trace, m) for m in returns(chosen)}
    )
    figures = figures_of_result(result, trace, table, _tenants(row.workload.rates.digest), at_s)
    if figures["p99_s"] is None:
        raise ValueError(f"no request was served after the warm-up ({figures['refused']} refused)")
    return {**figures, "active_keys": len(trace.dense_keys[0])}


def _trace(cell: ReplayCell, chosen: dict[str, Any], go_on: Callable[[], None]) -> Trace:
    given = {name: chosen[name] for name in ("cv", "run_length") if chosen[name] is not None}
    return traces.retimed(
        cell.replay.workload,
        chosen["synthetic_trace"],
        cell.load_rps,
        requests=chosen["requests"],
        arrivals=cell.replay.arrivals,
        seed=cell.seed,
        go_on=go_on,
        **given,
    )


def moment_s(trace: Trace, share: float) -> float:
    """Seconds on the trace's clock of a share of its arrivals' span."""
    first, last = float(trace.arrival_s[0]), float(trace.arrival_s[-1])
    return first + share * (last - first)


def returns(parameters: dict[str, Any]) -> list[float]:
    """When dead destinations come back with empty caches, as shares of the arrivals' span; not at its very end."""
    faults = parameters.get("faults", [])
    return [
        fault["end"] for fault in faults if fault["kind"] == "down" and fault["end"] is not None and fault["end"] < 1
    ]


def _fault(fault: dict[str, Any], trace: Trace) -> Fault:
    end = None if fault["end"] is None else moment_s(trace, fault["end"])
    factor = {"factor": fault["factor"]} if "factor" in fault else {}
    return Fault(fault["kind"], fault["position"], moment_s(trace, fault["start"]), end, **factor)


def _own_table(row: Replay) -> RoutingTable:
    assert row.plan.table is not None  # a replay starts from a built plan only
    return artifacts.load_table(row.plan.table)[0]


def _tables(
    cell: ReplayCell, chosen: dict[str, Any], trace: Trace
) -> tuple[RoutingTable | None, tuple[PlanSwitch, ...]]:
    """The table that the cell's policy starts with, and the one that takes over where plans are switched."""
    row, (name, _, number) = cell.replay, cell.policy.partition("@")
    if name != CANDIDATE:
        return None, ()
    if number:
        (other,) = (other for other in chosen["also"] if str(other["plan"]) == number)
        return _foreign_table(other["table"], row.workload.rates.digest), ()
    switch = chosen.get("switch")
    if not switch:
        return _own_table(row), ()
    before = _foreign_table(switch["table"], row.workload.rates.digest)
    return before, (PlanSwitch(moment_s(trace, switch["at"]), _own_table(row)),)


@lru_cache(maxsize=8)
def _foreign_table(table_digest: str, rates_digest: str) -> RoutingTable:
    """A table whose keys are found by name among those of a workload: plans of other workloads number others."""
    table, names = artifacts.load_table(Artifact.objects.get(digest=table_digest))
    key_names, _ = artifacts.load_rates(Artifact.objects.get(digest=rates_digest))
    place = {name: at for at, name in enumerate(key_names)}
    new_index = np.full(table.keys, -1, dtype=np.int64)
    new_index[table.admitted] = [place.get(name, -1) for name in names]
    return with_keys(table, new_index, len(key_names))


@lru_cache(maxsize=4)
def _tenants(rates_digest: str) -> Tenants | None:
    return artifacts.load_tenants(Artifact.objects.get(digest=rates_digest))


@lru_cache(maxsize=16)
def _engine(fingerprint: str) -> EngineProfile:
    return engine_of(ServingProfile.objects.get(fingerprint=fingerprint))
