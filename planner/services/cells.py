"""The cells of a replay: claimed one by one, run, recorded once; the last one closes the replay.

A replay keeps a few messages in flight. Each runs the next queued cell and then sends itself on while cells are
queued, so that replays and builds share the workers, and a lost message costs no more than the sweep's next round.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import structlog
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from planner import artifacts
from planner.models import CANDIDATE, Job, Plan, Replay, ReplayCell, ServingProfile
from planner.services import audit, gates, jobs, locking, plans, queue, traces
from planner.services.engines import engine_of
from planner.services.replays import lock_replay
from planner.services.verdicts import verdict_of
from planner.simulation import replay, retime

log = structlog.get_logger(__name__)

OPEN = (ReplayCell.State.QUEUED, ReplayCell.State.RUNNING)
# A cell whose worker died this often is what kills workers (memory, most likely).
MAX_ATTEMPTS = 3


def run_next_cell(replay_id: int) -> None:
    """Run the next queued cell of the replay, then send the message on while more are queued."""
    queued = ReplayCell.objects.filter(replay=replay_id, state=ReplayCell.State.QUEUED).order_by("id")
    for pk in queued.values_list("pk", flat=True):
        if run_cell(pk):
            break
    else:
        return
    if queued.exists() and Replay.objects.filter(pk=replay_id, state=Replay.State.RUNNING).exists():
        queue.send_cell(replay_id)


def run_cell(cell_id: int) -> bool:
    """Run one cell, once, under its advisory lock; False when it is not there to be run."""
    with locking.held(locking.CELL_SPACE, cell_id) as got:
        claimed = got and ReplayCell.objects.filter(
            pk=cell_id, state=ReplayCell.State.QUEUED, replay__state=Replay.State.RUNNING
        ).update(state=ReplayCell.State.RUNNING, attempt=F("attempt") + 1, started_at=timezone.now())
        if not claimed:
            return False
        cell = ReplayCell.objects.select_related("replay__plan__table", "replay__workload__rates").get(pk=cell_id)
        _mark_running(cell.replay)
        figures: dict[str, Any] = {}
        error = ""
        if cell.attempt > MAX_ATTEMPTS:
            error = f"its worker died {MAX_ATTEMPTS} times; is there memory enough for {cell.replay.workload}?"
        else:
            try:
                figures = figures_of(cell)
            except Exception as problem:
                # Whatever it is, a cell that cannot be run fails the replay instead of being tried for ever.
                error = str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"
                log.exception("cell_failed", cell=cell_id)
        ReplayCell.objects.filter(pk=cell_id, state=ReplayCell.State.RUNNING, attempt=cell.attempt).update(
            state=ReplayCell.State.FAILED if error else ReplayCell.State.SUCCEEDED,
            figures=figures,
            error=error,
            finished_at=timezone.now(),
        )
    close_if_complete(cell.replay_id)
    return True


def _mark_running(row: Replay) -> None:
    Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=row.pk, state=Job.State.QUEUED).update(
        state=Job.State.RUNNING, started_at=timezone.now(), attempt=F("attempt") + 1
    )


def figures_of(cell: ReplayCell) -> dict[str, Any]:
    """Replay the cell: the same figures whenever and wherever it runs."""
    row, parameters = cell.replay, cell.replay.parameters
    trace = retime(
        traces.trace_of(row.workload, parameters["synthetic_trace"], requests=parameters["requests"]),
        cell.load_rps,
        arrivals=row.arrivals,
        seed=cell.seed,
        **({"cv": parameters["cv"]} if parameters["cv"] else {}),
    )
    assert row.plan.table is not None  # a replay starts from a built plan only
    table, _ = artifacts.load_table(row.plan.table)
    result = replay(
        trace,
        policy=cell.policy,
        destinations=table.destinations,
        profile=engine_of(ServingProfile.objects.get(fingerprint=row.fingerprint)),
        table=table if cell.policy == CANDIDATE else None,
        seed=cell.seed,
        warmup=parameters["warmup"],
        speed=row.plan.parameters.get("capacity"),
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
    finished = sum(state not in OPEN for state in states)
    if job.is_open:
        Job.objects.filter(pk=job.pk).update(done=finished, message=f"{finished} of {len(states)} cells")
    if row.state != Replay.State.RUNNING or finished < len(states):
        return
    broken = row.cells.filter(state=ReplayCell.State.FAILED).first()
    if broken is not None:
        _fail(row, job, f"{broken}: {broken.error}")
        return
    try:
        with transaction.atomic():
            row.verdict = verdict_of(row)
    except Exception as problem:
        log.exception("verdict_failed", replay=row.pk)
        _fail(row, job, f"the cells give no verdict: {type(problem).__name__}: {problem}")
        return
    plan = plans.lock_plan(row.plan_id)
    row.state, row.finished_at = Replay.State.SUCCEEDED, timezone.now()
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
    gates.judge_plan(acting_user=row.created_by, plan=plan)


def _fail(row: Replay, job: Job, why: str) -> None:
    plan = plans.lock_plan(row.plan_id)
    row.state, row.failure, row.finished_at = Replay.State.FAILED, why, timezone.now()
    row.bump("state", "failure", "finished_at")
    plans.move(plan, Plan.State.BUILT)
    jobs.finish(job, Job.State.FAILED, error=why)
    audit.record("replay.failed", acting_user=row.created_by, fleet=plan.fleet, subject=row, reason=why)


def requeue_lost(job: Job) -> int:
    """Cells whose worker died are queued again; returns how many."""
    lost = 0
    running = ReplayCell.objects.filter(replay=job.subject_id, state=ReplayCell.State.RUNNING)
    for pk in running.values_list("pk", flat=True):
        with locking.held(locking.CELL_SPACE, pk) as got:
            # Under its lock, so that a cell which has just finished stays finished.
            lost += got and running.filter(pk=pk).update(state=ReplayCell.State.QUEUED)
    return lost


def wants_messages(job: Job, resend_after: dt.timedelta) -> bool:
    """Cells are queued, none is running, and the last messages led to nothing for a while.

    The while doubles with each round: a replay that waits behind others is not buried under its own messages.
    """
    cells = ReplayCell.objects.filter(replay=job.subject_id)
    if cells.filter(state=ReplayCell.State.RUNNING).exists():
        return False
    if not cells.filter(state=ReplayCell.State.QUEUED).exists():
        # Its last worker died between storing the cell and closing the replay.
        close_if_complete(job.subject_id or 0)
        return False
    if job.dispatched_at is None:
        return True
    waited = job.dispatched_at - job.created_at
    return timezone.now() - job.dispatched_at > max(resend_after, waited)
