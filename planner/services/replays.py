"""Shadow replays: the candidate and Flat-LB on the same arrivals, cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from planner import artifacts
from planner.digests import code_version
from planner.errors import Conflict, Invalid
from planner.models import Job, Plan, Replay, ReplayCell
from planner.routing import POLICIES
from planner.selectors.verdicts import verdict_of
from planner.services import audit, jobs, locking, plans, queue, rights, traces
from planner.simulation import PROFILES, replay, retime

DEFAULT_POLICIES = ("flat-lb", "sticky", "cacheroute")
DEFAULT_SEEDS = (1, 2, 3)
# Shares of what the destinations can take at the calibrated knee, when no loads are given.
DEFAULT_LOAD_SHARES = (0.4, 0.7, 1.0)
MAX_CELLS = 2_000
ARRIVALS = ("poisson", "scaled", "gamma", "bootstrap")


def lock_replay(pk: int) -> Replay:
    """The replay's plan and the replay, locked in that order."""
    plan_id = Replay.objects.values_list("plan_id", flat=True).get(pk=pk)
    plans.lock_plan(plan_id)
    found: Replay = locking.lock(Replay, pk)
    return found


@transaction.atomic
def start_replay(
    *,
    acting_user: User,
    plan: Plan,
    policies: list[str] | None = None,
    loads_rps: list[float] | None = None,
    seeds: list[int] | None = None,
    arrivals: str = "poisson",
    cv: float | None = None,
    requests: int = 20_000,
    warmup: float = 0.2,
    expected_version: int | None = None,
) -> tuple[Replay, Job]:
    """Start a replay of a built plan. Each (policy, load, seed) is a cell, and a task of its own.

    Flat-LB and the candidate are always among the policies: without both there is nothing to compare.
    """
    rights.require(acting_user, rights.PLAN)
    plan = plans.lock_plan(plan.pk, expected_version)
    if plan.kind == Plan.Kind.FLAT:
        raise Conflict("Flat-LB needs no replay: it is what plans are compared with")
    assert plan.calibration is not None  # a database constraint of this kind of plan
    names = list(dict.fromkeys(["flat-lb", "cacheroute", *(policies or DEFAULT_POLICIES)]))
    for name in names:
        if name not in POLICIES:
            raise Invalid(f"{name!r} is not one of {', '.join(POLICIES)}", field="policies")
    capacity = plan.calibration.q_cap * len(plan.parameters["destinations"])
    loads = sorted(set(loads_rps or [float(f"{capacity * share:.3g}") for share in DEFAULT_LOAD_SHARES]))
    if any(not 0 < load < 1e9 for load in loads):
        raise Invalid("loads are requests/s above 0", field="loads_rps")
    seeds = sorted(set(seeds or DEFAULT_SEEDS))
    if any(not 0 <= seed < 2**31 for seed in seeds):
        raise Invalid("seeds are whole numbers from 0 to 2^31 - 1", field="seeds")
    if arrivals not in ARRIVALS:
        raise Invalid(f"{arrivals!r} is not one of {', '.join(ARRIVALS)}", field="arrivals")
    if not 100 <= requests <= 5_000_000:
        raise Invalid("replay between 100 and 5,000,000 requests", field="requests")
    if not 0 <= warmup < 1:
        raise Invalid("the warm-up is a share of the requests, from 0 to below 1", field="warmup")
    cells = [(policy, load, seed) for load in loads for seed in seeds for policy in names]
    if len(cells) > MAX_CELLS:
        raise Invalid(f"{len(cells)} cells are more than {MAX_CELLS}; take fewer loads or seeds", field="loads_rps")
    assert plan.workload is not None  # as above
    plans.move(plan, Plan.State.REPLAYING)
    profile = plan.fleet.serving_profile
    row = Replay.objects.create(
        plan=plan,
        workload=plan.workload,
        policies=names,
        loads_rps=loads,
        seeds=seeds,
        arrivals=arrivals,
        parameters={
            "requests": requests,
            "warmup": warmup,
            "cv": cv,
            "synthetic_trace": plan.workload.trace_id is None,
        },
        slo_p99_s=plan.fleet.slo_p99_s,
        engine_profile=profile.engine_profile,
        fingerprint=profile.fingerprint,
        code_version=code_version(),
        created_by=acting_user,
    )
    ReplayCell.objects.bulk_create(
        ReplayCell(replay=row, policy=policy, load_rps=load, seed=seed) for policy, load, seed in cells
    )
    job = jobs.file_job(
        acting_user=acting_user, fleet=plan.fleet, kind=Job.Kind.REPLAY, subject_id=row.pk, total=len(cells)
    )
    audit.record(
        "replay.started",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=row,
        after={"plan": plan.number, "policies": names, "loads_rps": loads, "seeds": seeds, "cells": len(cells)},
    )
    return row, job


def run_cell(cell_id: int) -> None:
    """Run one cell, once: claim it under its advisory lock, replay, store the figures, close the replay when last."""
    with locking.held(locking.CELL_SPACE, cell_id) as got:
        claimed = got and ReplayCell.objects.filter(
            pk=cell_id, state__in=["queued", "running"], replay__state=Replay.State.RUNNING
        ).update(state=ReplayCell.State.RUNNING, attempt=F("attempt") + 1, started_at=timezone.now())
        if not claimed:
            return
        cell = ReplayCell.objects.select_related(
            "replay__plan__table", "replay__plan__workload__rates", "replay__workload__trace"
        ).get(pk=cell_id)
        _mark_running(cell.replay)
        try:
            figures, error = _figures(cell), ""
        except ValueError as problem:
            figures, error = {}, str(problem)
        state = ReplayCell.State.FAILED if error else ReplayCell.State.SUCCEEDED
        ReplayCell.objects.filter(pk=cell_id, state=ReplayCell.State.RUNNING, attempt=cell.attempt).update(
            state=state, figures=figures, error=error, finished_at=timezone.now()
        )
    close_if_complete(cell.replay_id)


def _mark_running(row: Replay) -> None:
    Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=row.pk, state=Job.State.QUEUED).update(
        state=Job.State.RUNNING, started_at=timezone.now(), attempt=F("attempt") + 1
    )


def _figures(cell: ReplayCell) -> dict[str, Any]:
    row = cell.replay
    plan = row.plan
    base, _ = traces.trace_of(row.workload, requests=row.parameters["requests"])
    trace = retime(
        base,
        cell.load_rps,
        arrivals=row.arrivals,
        seed=cell.seed,
        **({"cv": row.parameters["cv"]} if row.parameters["cv"] else {}),
    )
    assert plan.table is not None  # a replay starts from a built plan only
    table, _ = artifacts.load_table(plan.table)
    result = replay(
        trace,
        policy=cell.policy,
        destinations=table.destinations,
        profile=PROFILES[row.engine_profile],
        table=table if cell.policy == "cacheroute" else None,
        seed=cell.seed,
        warmup=row.parameters["warmup"],
    )
    figures = result.summary()
    if figures["p99_s"] is None:
        raise ValueError(f"no request was served after the warm-up ({figures['refused']} refused)")
    return {**figures, "active_keys": int(np.unique(trace.key).size)}


@transaction.atomic
def close_if_complete(replay_id: int) -> None:
    """Record progress and, when no cell is open, close the replay, judge it and evaluate the checklist."""
    row = lock_replay(replay_id)
    job = Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=row.pk).latest("id")
    states = list(row.cells.values_list("state", flat=True))
    finished = sum(state not in ("queued", "running") for state in states)
    if job.is_open:
        Job.objects.filter(pk=job.pk).update(done=finished, message=f"{finished} of {len(states)} cells")
    if row.state != Replay.State.RUNNING or finished < len(states):
        return
    plan = plans.lock_plan(row.plan_id)
    broken = row.cells.filter(state=ReplayCell.State.FAILED).first()
    row.finished_at = timezone.now()
    if broken is not None:
        row.state, row.failure = Replay.State.FAILED, f"{broken}: {broken.error}"
        row.bump("state", "failure", "finished_at")
        plans.move(plan, Plan.State.BUILT)
        jobs.finish(job, Job.State.FAILED, error=row.failure)
        audit.record("replay.failed", acting_user=row.created_by, fleet=plan.fleet, subject=row, reason=row.failure)
        return
    row.state, row.verdict = Replay.State.SUCCEEDED, verdict_of(row)
    row.bump("state", "verdict", "finished_at")
    plans.move(plan, Plan.State.REPLAYED)
    jobs.finish(job, Job.State.SUCCEEDED, result={"replay": row.pk})
    audit.record(
        "replay.finished",
        acting_user=row.created_by,
        fleet=plan.fleet,
        subject=row,
        after={"capacity": row.verdict["capacity"]},
    )
    from planner.services import gates

    gates.evaluate_gate(acting_user=row.created_by, plan=plan)


def after_cancelled_replay(*, job: Job) -> None:
    """Close a cancelled replay and its open cells (rows are locked by the caller)."""
    row = Replay.objects.get(pk=job.subject_id or 0)
    row.cells.filter(state__in=["queued", "running"]).update(
        state=ReplayCell.State.CANCELLED, finished_at=timezone.now()
    )
    row.state, row.finished_at = Replay.State.CANCELLED, timezone.now()
    row.bump("state", "finished_at")
    plan = Plan.objects.get(pk=row.plan_id)
    if plan.state == Plan.State.REPLAYING:
        plans.move(plan, Plan.State.BUILT)


def requeue_lost_cells(job: Job) -> int:
    """Cells whose worker died go back in the queue; returns how many."""
    lost = [
        pk
        for pk in ReplayCell.objects.filter(replay=job.subject_id, state="running").values_list("pk", flat=True)
        if locking.is_free(locking.CELL_SPACE, pk)
    ]
    # The cell may have finished between the query and the look at its lock.
    lost = list(ReplayCell.objects.filter(pk__in=lost, state="running").values_list("pk", flat=True))
    for pk in lost:
        queue.send_cell(pk)
    return len(lost)


def is_stalled(job: Job, stale: Any) -> bool:
    """Open cells, none of them running, and no message since `stale`: the messages were lost or never sent."""
    cells = ReplayCell.objects.filter(replay=job.subject_id)
    if cells.filter(state="running").exists():
        return False
    if not cells.filter(state="queued").exists():
        # Its last worker died between storing the cell and closing the replay.
        close_if_complete(job.subject_id or 0)
        return False
    return job.dispatched_at is None or job.dispatched_at < stale
