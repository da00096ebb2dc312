"""Run the cells of a replay: each is claimed, run and recorded once.

A replay keeps a few messages in flight. Each message runs queued cells for a turn and then sends itself again, so that
replays and builds share the workers and a lost message only waits for the next sweep. All cells of a replay use one
version of the code: a worker of another version fails the replay.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from functools import lru_cache

import structlog
from django.db import InterfaceError, OperationalError, connection
from django.db.models import F, QuerySet
from django.utils import timezone

from planner.models import Job, Replay, ReplayCell
from planner.records import JsonObject
from planner.services.base import locking
from planner.services.base.states import lock_replay
from planner.services.jobs import kinds, queue
from planner.services.jobs.sweep import RESEND_AFTER
from planner.services.replays.cell_runs import figures_of
from planner.services.replays.completion import close_if_complete, fail_outdated, is_outdated
from planner.services.replays.orders import after_cancelled_replay

log = structlog.get_logger(__name__)
# Task that runs the next cells of a replay, by the id of the replay.
RUN_CELL = "planner.run_cell"
# Maximum messages in flight per replay.
IN_FLIGHT = 8
# A cell whose worker died this often is not tried again (memory, most likely). `attempt` counts claims; a worker that
# stops, or loses its database, returns its cell without counting the claim.
MAX_ATTEMPTS = 3
# Waits before each try to return a cell after its database was lost: about as long as a restart takes.
PUT_BACK_AFTER_S = (0.0, 1.0, 3.0, 9.0)
# A message runs cells for this long before other work gets a turn; one message per cell of a few ms is too many.
TURN_S = 0.5
# How often a computing worker checks whether the cell is still needed.
LOOK_EVERY_S = 0.5
# Maximum queued cells that a worker reads at once; another worker may claim any of them first.
AT_ONCE = 16
# Shared with the forked processes of a worker, which get no stop signal of their own.
_stopping = mmap.mmap(-1, 1)


class NotWantedError(Exception):
    """The cell was cancelled, or another worker claimed it: the result will not be stored."""


class StoppingError(Exception):
    """The worker is stopping: the cell returns to the queue."""


def stop_soon(stopping: bool = True) -> None:
    """Make this worker and its processes return their cells to the queue and claim no others."""
    _stopping[0] = int(stopping)


def run_next_cell(replay_id: int) -> None:
    """Run queued cells of the replay for a turn, then send the message again while cells are queued.

    Finished cells are counted once per turn. The last cell of a replay is counted too: after it no cell is
    queued, or the turn is over.
    """
    if _other_version(replay_id):
        return
    queued = _queued(replay_id)
    ends = time.monotonic() + TURN_S
    ran, took = False, True
    _mark_running(replay_id)
    while took and not _over(ends):
        took = False
        for cell in queued[:AT_ONCE]:
            took |= _run(cell)
            if _over(ends):
                break
        ran |= took  # none was to be had although some were queued: others are at them
    if not ran and not _stopping[0]:
        return
    close_if_complete(replay_id)
    if queued.exists() and Replay.objects.filter(pk=replay_id, state=Replay.State.RUNNING).exists():
        queue.send(RUN_CELL, replay_id)


def run_cell(cell_id: int) -> bool:
    """Run one cell and count it; return False if it is no longer queued."""
    cell = ReplayCell.objects.filter(pk=cell_id).defer("figures", "error").first()
    if cell is None or cell.state != ReplayCell.State.QUEUED or _other_version(cell.replay_id):
        return False
    _mark_running(cell.replay_id)
    if not _run(cell):
        return False
    close_if_complete(cell.replay_id)
    return True


def _over(ends: float) -> bool:
    return bool(_stopping[0]) or time.monotonic() > ends


def _other_version(replay_id: int) -> bool:
    """Whether other code started the replay; if so, fail it before cells of two versions are mixed."""
    row = Replay.objects.filter(pk=replay_id).only("code_version").first()
    if row is None or not is_outdated(row):
        return False
    fail_outdated(replay_id)
    return True


def _queued(replay_id: int) -> QuerySet[ReplayCell]:
    queued = ReplayCell.objects.filter(replay=replay_id, state=ReplayCell.State.QUEUED)
    return queued.defer("figures", "error").order_by("id")


def _run(cell: ReplayCell) -> bool:
    """Run a queued cell and record it; return False if another worker had it first or it returned to the queue."""
    try:
        taken, failed = _claim_and_run(cell)
    except StoppingError:
        _put_back(cell)
        return False
    except (InterfaceError, OperationalError):
        # Of a lost database the cell knows nothing.
        if cell.state == ReplayCell.State.RUNNING:
            _put_back_when_there(cell)
        raise
    if failed:
        close_if_complete(cell.replay_id)  # now: the rest of the replay is not worth computing
    return taken


def _claim_and_run(cell: ReplayCell) -> tuple[bool, bool]:
    """Return whether the cell was ours to run, and whether it failed. Runs under its advisory lock."""
    with locking.held(locking.CELL_SPACE, cell.pk) as got:
        claimed = got and ReplayCell.objects.filter(
            pk=cell.pk, state=ReplayCell.State.QUEUED, attempt=cell.attempt, replay__state=Replay.State.RUNNING
        ).update(state=ReplayCell.State.RUNNING, attempt=F("attempt") + 1, started_at=timezone.now())
        if not claimed:
            return False, False
        cell.state, cell.attempt = ReplayCell.State.RUNNING, cell.attempt + 1
        cell.replay = _replay(cell.replay_id)
        try:
            figures, error = _outcome(cell)
        except NotWantedError:
            log.info("cell_not_wanted", cell=cell.pk)
            return True, False
        ReplayCell.objects.filter(pk=cell.pk, state=ReplayCell.State.RUNNING, attempt=cell.attempt).update(
            state=ReplayCell.State.FAILED if error else ReplayCell.State.SUCCEEDED,
            figures=figures,
            error=error,
            finished_at=timezone.now(),
        )
    return True, bool(error)


def _put_back(cell: ReplayCell) -> bool:
    """Return a claimed cell to the queue; the claim is not counted."""
    # The sweep may have queued it already. Nobody else holds this attempt, so its number can be given out again.
    ours = ReplayCell.objects.filter(pk=cell.pk, state__in=ReplayCell.OPEN, attempt=cell.attempt, attempt__gt=0)
    return bool(ours.update(state=ReplayCell.State.QUEUED, attempt=F("attempt") - 1))


def _put_back_when_there(cell: ReplayCell) -> None:
    """Return a cell to the queue when the lost database answers again; else the sweep does, and the claim counts."""
    for wait in PUT_BACK_AFTER_S:
        time.sleep(wait)
        try:
            connection.close_if_unusable_or_obsolete()
            _put_back(cell)
        except (InterfaceError, OperationalError):
            continue
        return
    log.warning("cell_not_put_back", cell=cell.pk)


@lru_cache(maxsize=4)
def _replay(pk: int) -> Replay:
    """Return the replay with the inputs of its cells, which do not change."""
    needed = ("plan__table", "workload__rates", "workload__trace")
    unread = ("verdict", "plan__summary", "workload__shape", "workload__notices")
    return Replay.objects.select_related(*needed).defer(*unread).get(pk=pk)


def _mark_running(replay_id: int) -> None:
    Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=replay_id, state=Job.State.QUEUED).update(
        state=Job.State.RUNNING, started_at=timezone.now(), attempt=F("attempt") + 1
    )


def _outcome(cell: ReplayCell) -> tuple[JsonObject, str]:
    """Return the figures of a claimed cell, or the reason why there are none."""
    if cell.attempt > MAX_ATTEMPTS:
        return {}, f"its worker died {MAX_ATTEMPTS} times; is there memory enough for {cell.replay.workload}?"
    try:
        return figures_of(cell, _watch(cell)).to_json(), ""
    except (NotWantedError, StoppingError, InterfaceError, OperationalError):
        raise
    except Exception as problem:
        # Any error fails the replay; otherwise the cell would be tried without end.
        log.exception("cell_failed", cell=cell.pk)
        return {}, str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"


def _watch(cell: ReplayCell) -> Callable[[], None]:
    """Return a checkpoint that raises if the cell is no longer ours, or the worker is stopping."""
    mine = ReplayCell.objects.filter(pk=cell.pk, state=ReplayCell.State.RUNNING, attempt=cell.attempt)
    looked = time.monotonic()

    def check() -> None:
        nonlocal looked
        if time.monotonic() - looked < LOOK_EVERY_S:
            return
        looked = time.monotonic()
        if _stopping[0]:
            raise StoppingError
        if not mine.exists():
            raise NotWantedError

    return check


def messages(job: Job) -> list[kinds.Message]:
    """Return messages for a replay's job: one per queued cell, at most `IN_FLIGHT`; each sends itself again."""
    queued = ReplayCell.objects.filter(replay=job.subject_id, state=ReplayCell.State.QUEUED).count()
    return [(RUN_CELL, job.subject_id or 0)] * min(queued, IN_FLIGHT)


def requeue_lost(job: Job) -> int:
    """Queue cells whose worker died; return their number."""
    lost = 0
    running = ReplayCell.objects.filter(replay=job.subject_id, state=ReplayCell.State.RUNNING)
    for pk in running.values_list("pk", flat=True):
        with locking.held(locking.CELL_SPACE, pk) as got:
            # Under its lock, so that a cell which has just finished stays finished.
            lost += got and running.filter(pk=pk).update(state=ReplayCell.State.QUEUED)
    return lost


def wants_messages(job: Job) -> bool:
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
    return timezone.now() - job.dispatched_at > max(RESEND_AFTER, waited)


kinds.register(
    Job.Kind.REPLAY,
    kinds.JobKind(
        run_part=run_next_cell,
        lock=lock_replay,
        cancelled=after_cancelled_replay,
        messages=messages,
        requeue_lost=requeue_lost,
        needs_message=wants_messages,
    ),
)
