"""The cells of a replay: each is claimed, run and recorded once.

A replay keeps a few messages in the queue. Each message runs queued cells for a limited time and is then sent again
while cells are queued, so that replays and builds share the workers. A lost message delays a replay at most until
the next sweep. All cells of a replay run on one version of the code: a worker of another version fails the replay.
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
# Messages that one replay keeps in the queue: at least as many as it may have workers, and few enough that other jobs
# do not wait long.
IN_FLIGHT = 8
# A cell whose worker died this often is taken to be the cause (probably memory). `attempt` counts claims that were
# not returned: a worker that is stopped, or loses its database, returns its claim.
MAX_ATTEMPTS = 3
# Seconds before each attempt to return a cell after the database was lost: about as long as a database takes to
# restart.
PUT_BACK_AFTER_S = (0.0, 1.0, 3.0, 9.0)
# Seconds for which one message runs cells before other jobs get a worker: one message for each cell of a few ms would
# fill the queue.
TURN_S = 0.5
# Seconds between checks of whether the cell is still wanted.
LOOK_EVERY_S = 0.5
# Queued cells that a worker reads in one query; another worker may claim any of them first.
AT_ONCE = 16
# Shared with the processes that a worker forks, which do not receive the stop signal themselves.
_stopping = mmap.mmap(-1, 1)


class NotWantedError(Exception):
    """The cell was cancelled, or claimed by another worker: its result must not be stored."""


class StoppingError(Exception):
    """The worker is stopping: its cell is queued again."""


def stop_soon(stopping: bool = True) -> None:
    """Make this worker and its processes return the cells that they run, and claim no others."""
    _stopping[0] = int(stopping)


def run_next_cell(replay_id: int) -> None:
    """Run queued cells of the replay for a limited time, then send the message again while more are queued.

    Finished cells are counted once per message. The last cell of a replay is counted too: after it, the worker finds
    nothing queued or its time is over.
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
        ran |= took  # Cells are queued, but other workers claimed them first.
    if not ran and not _stopping[0]:
        return
    close_if_complete(replay_id)
    if queued.exists() and Replay.objects.filter(pk=replay_id, state=Replay.State.RUNNING).exists():
        queue.send(RUN_CELL, replay_id)


def run_cell(cell_id: int) -> bool:
    """Run one cell once, and count it; False when it cannot be run."""
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
    """Whether other code started the replay. If so, it is failed before a cell of this code is added."""
    row = Replay.objects.filter(pk=replay_id).only("code_version").first()
    if row is None or not is_outdated(row):
        return False
    fail_outdated(replay_id)
    return True


def _queued(replay_id: int) -> QuerySet[ReplayCell]:
    queued = ReplayCell.objects.filter(replay=replay_id, state=ReplayCell.State.QUEUED)
    return queued.defer("figures", "error").order_by("id")


def _run(cell: ReplayCell) -> bool:
    """Run a queued cell and record it; False when another worker claimed it first, or when it was returned."""
    try:
        taken, failed = _claim_and_run(cell)
    except StoppingError:
        _put_back(cell)
        return False
    except (InterfaceError, OperationalError):
        # The failure is of the database, not of the cell.
        if cell.state == ReplayCell.State.RUNNING:
            _put_back_when_there(cell)
        raise
    if failed:
        close_if_complete(cell.replay_id)  # At once: the remaining cells need not be computed.
    return taken


def _claim_and_run(cell: ReplayCell) -> tuple[bool, bool]:
    """Whether this worker could claim the cell, and whether the cell failed. Runs under its advisory lock."""
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
    """Return a claimed cell to the queue; the claim is not counted as a worker that died."""
    # The sweep may have queued the cell already. No other worker holds this attempt, so its number can be used again.
    ours = ReplayCell.objects.filter(pk=cell.pk, state__in=ReplayCell.OPEN, attempt=cell.attempt, attempt__gt=0)
    return bool(ours.update(state=ReplayCell.State.QUEUED, attempt=F("attempt") - 1))


def _put_back_when_there(cell: ReplayCell) -> None:
    """Return a cell once the database answers again. If it does not, the sweep returns it and the claim is counted."""
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
    """The inputs from which the cells of a replay compute. They never change."""
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
        return (
            {},
            f"its worker died {MAX_ATTEMPTS} times; check that workers have memory for {cell.replay.workload}",
        )
    try:
        return figures_of(cell, _watch(cell)).to_json(), ""
    except (NotWantedError, StoppingError, InterfaceError, OperationalError):
        raise
    except Exception as problem:
        # Whatever the error, a cell that cannot be run fails the replay; it is not tried again without end.
        log.exception("cell_failed", cell=cell.pk)
        return {}, str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"


def _watch(cell: ReplayCell) -> Callable[[], None]:
    """Return a function to call while computing: it raises once the cell is cancelled or claimed by another worker, or
    the worker stops.
    """
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
    """The messages for the job of a replay: one for each queued cell, at most `IN_FLIGHT`. Each sends itself again."""
    queued = ReplayCell.objects.filter(replay=job.subject_id, state=ReplayCell.State.QUEUED).count()
    return [(RUN_CELL, job.subject_id or 0)] * min(queued, IN_FLIGHT)


def requeue_lost(job: Job) -> int:
    """Queue again the cells whose worker died; return how many."""
    lost = 0
    running = ReplayCell.objects.filter(replay=job.subject_id, state=ReplayCell.State.RUNNING)
    for pk in running.values_list("pk", flat=True):
        with locking.held(locking.CELL_SPACE, pk) as got:
            # Under the lock of the cell, so that a cell which has just finished stays finished.
            lost += got and running.filter(pk=pk).update(state=ReplayCell.State.QUEUED)
    return lost


def wants_messages(job: Job) -> bool:
    """Whether cells are queued, none is running, and the last messages were long enough ago to be lost.

    The wait doubles with each round, so that a replay which waits for workers does not fill the queue.
    """
    cells = ReplayCell.objects.filter(replay=job.subject_id)
    if cells.filter(state=ReplayCell.State.RUNNING).exists():
        return False
    if not cells.filter(state=ReplayCell.State.QUEUED).exists():
        # Its last worker died after storing the cell and before closing the replay.
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
