"""The cells of a replay: claimed one by one, run, recorded once.

A replay keeps a few messages in flight. Each runs queued cells for a turn and then sends itself on while cells are
queued, so that replays and builds share the workers, and a lost message costs no more than the sweep's next round.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError
from django.db.models import F
from django.utils import timezone

from planner.models import Job, Replay, ReplayCell
from planner.services import locking, queue
from planner.services.cell_work import figures_of
from planner.services.closing import close_if_complete

__all__ = ["figures_of", "requeue_lost", "run_cell", "run_next_cell", "wants_messages"]

log = structlog.get_logger(__name__)

# A cell whose worker died this often is what kills workers (memory, most likely).
MAX_ATTEMPTS = 3
# A message runs cells for so long before others get their turn: cells of a few ms would drown in messages.
TURN_S = 0.5
# How often a worker that computes asks whether the cell is wanted any more.
LOOK_EVERY_S = 0.5
# What a cell computes from.
NEEDED = ("replay__plan__table", "replay__workload__rates", "replay__workload__trace")
# Queued cells that a worker looks at in one go, each of which another may take first.
AT_ONCE = 16


class NotWantedError(Exception):
    """The cell was cancelled, or another worker has it: what is computed here will not be stored."""


def run_next_cell(replay_id: int) -> None:
    """Run queued cells of the replay for a turn, then send the message on while more are queued."""
    queued = ReplayCell.objects.filter(replay=replay_id, state=ReplayCell.State.QUEUED).order_by("id")
    ends = time.monotonic() + TURN_S
    while pks := list(queued.values_list("pk", flat=True)[:AT_ONCE]):
        ran = False
        for pk in pks:
            ran |= run_cell(pk)
            if ran and time.monotonic() > ends:
                if queued.exists() and Replay.objects.filter(pk=replay_id, state=Replay.State.RUNNING).exists():
                    queue.send_cell(replay_id)
                return
        if not ran:
            return  # others are at them all


def run_cell(cell_id: int) -> bool:
    """Run one cell, once, under its advisory lock; False when it is not there to be run."""
    with locking.held(locking.CELL_SPACE, cell_id) as got:
        claimed = got and ReplayCell.objects.filter(
            pk=cell_id, state=ReplayCell.State.QUEUED, replay__state=Replay.State.RUNNING
        ).update(state=ReplayCell.State.RUNNING, attempt=F("attempt") + 1, started_at=timezone.now())
        if not claimed:
            return False
        cell = (
            ReplayCell.objects.select_related(
                "replay__plan__table", "replay__workload__rates", "replay__workload__trace"
            )
            .defer("replay__verdict", "replay__plan__summary", "replay__workload__shape", "replay__workload__notices")
            .get(pk=cell_id)
        )
        _mark_running(cell.replay)
        try:
            figures, error = _outcome(cell)
        except NotWantedError:
            log.info("cell_not_wanted", cell=cell_id)
            return True
        ReplayCell.objects.filter(pk=cell_id, state=ReplayCell.State.RUNNING, attempt=cell.attempt).update(
            state=ReplayCell.State.FAILED if error else ReplayCell.State.SUCCEEDED,
            figures=figures,
            error=error,
            finished_at=timezone.now(),
        )
    close_if_complete(cell.replay_id)
    return True


def _outcome(cell: ReplayCell) -> tuple[dict[str, Any], str]:
    """The figures of a claimed cell, or why there are none."""
    if cell.attempt > MAX_ATTEMPTS:
        return {}, f"its worker died {MAX_ATTEMPTS} times; is there memory enough for {cell.replay.workload}?"
    try:
        return figures_of(cell, _watch(cell)), ""
    except (NotWantedError, InterfaceError, OperationalError):
        raise  # of a lost database the cell knows nothing: the sweep queues it again
    except Exception as problem:
        # Whatever it is, a cell that cannot be run fails the replay instead of being tried for ever.
        log.exception("cell_failed", cell=cell.pk)
        return {}, str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"


def _watch(cell: ReplayCell) -> Callable[[], None]:
    """A function to call while computing; it raises once the cell is not ours to run any more."""
    mine = ReplayCell.objects.filter(pk=cell.pk, state=ReplayCell.State.RUNNING, attempt=cell.attempt)
    looked = time.monotonic()

    def look() -> None:
        nonlocal looked
        if time.monotonic() - looked < LOOK_EVERY_S:
            return
        looked = time.monotonic()
        if not mine.exists():
            raise NotWantedError

    return look


def _mark_running(row: Replay) -> None:
    Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=row.pk, state=Job.State.QUEUED).update(
        state=Job.State.RUNNING, started_at=timezone.now(), attempt=F("attempt") + 1
    )


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
