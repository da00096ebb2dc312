"""Compute one cell of a replay. The figures do not depend on when or where it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from msgspec import UnsetType

from planner import artifacts
from planner.analysis.cell import CellFigures
from planner.models import CANDIDATE, Artifact, Replay, ReplayCell, ServingProfile
from planner.routing import RoutingTable
from planner.routing.renumber import with_keys
from planner.services.fleets.engines import engine_of
from planner.services.replays.cell_figures import Tenants, figures_of_result
from planner.services.replays.policy_parameters import policy_of
from planner.services.workloads import traces
from planner.simulation import EngineProfile, Fault, PlanSwitch, Trace, replay
from planner.simulation.options import FaultOption, ReplayParameters


def figures_of(cell: ReplayCell, checkpoint: Callable[[], None] = lambda: None) -> CellFigures:
    """Replay the cell.

    Parameters
    ----------
    checkpoint
        Called at least every few ten milliseconds while requests are replayed, and between the steps before that,
        none of which takes a second; what it raises ends the work, and of its requests nothing is kept.

    Raises
    ------
    ValueError
        If the engine refuses an argument, or no request is left to measure.
    """
    try:
        return _figures(cell, checkpoint)
    except Exception:
        traces.release()
        raise


def _figures(cell: ReplayCell, checkpoint: Callable[[], None]) -> CellFigures:
    row = cell.replay
    chosen = ReplayParameters.from_json(row.parameters)
    trace = _trace(cell, chosen, checkpoint)
    checkpoint()
    name, _, _ = cell.policy.partition("@")
    table, switches = _tables(cell, chosen, trace)
    own = _own_table(row)
    checkpoint()
    faults = [_fault(fault, trace) for fault in chosen.faults]
    result = replay(
        trace,
        policy=policy_of(name, chosen.policy_parameters.get(name, {})),
        destinations=own.destinations,
        profile=_engine(row.fingerprint),
        table=table,
        seed=cell.seed,
        faults=faults,
        warmup=chosen.warmup,
        speed=row.plan.parameters.get("capacity"),
        switches=switches,
        checkpoint=lambda _done: checkpoint(),
    )
    checkpoint()
    at_s = sorted(
        {fault.start_s for fault in faults} | {s.at_s for s in switches} | {moment_s(trace, m) for m in chosen.returns}
    )
    figures = figures_of_result(result, trace, table, _tenants(row.workload.rates.digest), at_s)
    if figures.p99_s is None:
        raise ValueError(f"no request was served after the warm-up ({figures.refused} refused)")
    return dataclasses.replace(figures, active_keys=len(trace.dense_keys[0]))


def _trace(cell: ReplayCell, chosen: ReplayParameters, checkpoint: Callable[[], None]) -> Trace:
    given = {"cv": chosen.cv, "run_length": chosen.run_length}
    return traces.retimed(
        cell.replay.workload,
        chosen.synthetic_trace,
        cell.load_rps,
        requests=chosen.requests,
        arrivals=cell.replay.arrivals,
        seed=cell.seed,
        checkpoint=checkpoint,
        **{name: value for name, value in given.items() if value is not None},
    )


def moment_s(trace: Trace, share: float) -> float:
    """Convert a share of the arrivals' span to seconds on the trace's clock."""
    first, last = float(trace.arrival_s[0]), float(trace.arrival_s[-1])
    return first + share * (last - first)


def _fault(fault: FaultOption, trace: Trace) -> Fault:
    end = None if fault.end is None else moment_s(trace, fault.end)
    factor = {} if isinstance(fault.factor, UnsetType) else {"factor": fault.factor}
    return Fault(fault.kind, fault.position, moment_s(trace, fault.start), end, **factor)


def _own_table(row: Replay) -> RoutingTable:
    assert row.plan.table is not None  # A replay starts only from a built plan.
    return artifacts.load_table(row.plan.table)[0]


def _tables(
    cell: ReplayCell, chosen: ReplayParameters, trace: Trace
) -> tuple[RoutingTable | None, tuple[PlanSwitch, ...]]:
    """The table that the policy of the cell starts with, and the table it changes to at a plan switch."""
    row, (name, _, number) = cell.replay, cell.policy.partition("@")
    if name != CANDIDATE:
        return None, ()
    if number:
        (other,) = (other for other in chosen.also if str(other.plan) == number)
        return _foreign_table(other.table, row.workload.rates.digest), ()
    switch = chosen.switch
    if switch is None:
        return _own_table(row), ()
    before = _foreign_table(switch.table, row.workload.rates.digest)
    return before, (PlanSwitch(moment_s(trace, switch.at), _own_table(row)),)


@lru_cache(maxsize=8)
def _foreign_table(table_digest: str, rates_digest: str) -> RoutingTable:
    """Return the table with its keys renumbered, by name, to those of a workload: each workload numbers keys itself."""
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
