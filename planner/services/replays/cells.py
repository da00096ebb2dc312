"""The cells of a replay: claimed one by one, run, recorded once.

A replay keeps a few messages in flight. Each runs queued cells for a turn and then sends itself on while cells are
queued, so that replays and builds share the workers, and a lost message costs no more than the sweep's next round.
Cells of one replay are all of one version of the code: the first worker of another version fails it.
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
# Messages that one replay keeps in the queue: no fewer than it may have workers, no more than others can wait for.
IN_FLIGHT = 8
# A cell whose worker died this often is what kills workers (memory, most likely). `attempt` counts claims that were
# not given back: a worker that is stopped, or loses its database, puts its cell back without one.
MAX_ATTEMPTS = 3
# Waits before each try to put a cell back whose database was lost: about as long as one takes to start again.
PUT_BACK_AFTER_S = (0.0, 1.0, 3.0, 9.0)
# A message runs cells for so long before others get their turn: cells of a few ms would drown in messages.
TURN_S = 0.5
# How often a worker that computes asks whether the cell is wanted any more.
LOOK_EVERY_S = 0.5
# Queued cells that a worker looks at in one go, each of which another may take first.
AT_ONCE = 16
# Shared with the processes that a worker forks, which are not told themselves that it is stopping.
_stopping = mmap.mmap(-1, 1)


class NotWantedError(Exception):
    """The cell was cancelled, or another worker has it: what is computed here will not be stored."""


class StoppingError(Exception):
    """The worker is stopping: the cell is put back, for another to run."""


def stop_soon(stopping: bool = True) -> None:
    """Let this worker and its processes put back the cells that they are at, and take no others."""
    _stopping[0] = int(stopping)


def run_next_cell(replay_id: int) -> None:
    """Run queued cells of the replay for a turn, then send the message on while more are queued.

    What is finished is counted once a turn. The cell that ends a replay is counted too: after it a worker finds
    nothing queued, or its turn is over.
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
    """Run one cell, once, and count it; False when it is not there to be run."""
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
    """Whether the replay was started by other code; it is failed then, before a cell of this code is mixed in."""
    row = Replay.objects.filter(pk=replay_id).only("code_version").first()
    if row is None or not is_outdated(row):
        return False
    fail_outdated(replay_id)
    return True


def _queued(replay_id: int) -> QuerySet[ReplayCell]:
    queued = ReplayCell.objects.filter(replay=replay_id, state=ReplayCell.State.QUEUED)
    return queued.defer("figures", "error").order_by("id")


def _run(cell: ReplayCell) -> bool:
    """Run a queued cell and record it; False when others had it first, or when it was put back."""
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
    """Whether the cell was ours to run, and whether it failed. Runs under its advisory lock."""
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
    """Queue a cell that we claimed and gave up; the claim does not count as one of a worker that died."""
    # The sweep may have queued it already. Nobody else holds this attempt, so its number can be given out again.
    ours = ReplayCell.objects.filter(pk=cell.pk, state__in=ReplayCell.OPEN, attempt=cell.attempt, attempt__gt=0)
    return bool(ours.update(state=ReplayCell.State.QUEUED, attempt=F("attempt") - 1))


def _put_back_when_there(cell: ReplayCell) -> None:
    """Put back a cell whose database was lost, once it answers again; else the sweep does, and the claim counts."""
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
    """What the cells of a replay compute from, which never changes."""
    needed = ("plan__table", "workload__rates", "workload__trace")
    unread = ("verdict", "plan__summary", "workload__shape", "workload__notices")
    return Replay.objects.select_related(*needed).defer(*unread).get(pk=pk)


def _mark_running(replay_id: int) -> None:
    Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=replay_id, state=Job.State.QUEUED).update(
        state=Job.State.RUNNING, started_at=timezone.now(), attempt=F("attempt") + 1
    )


def _outcome(cell: ReplayCell) -> tuple[JsonObject, str]:
    """The figures of a claimed cell, or why there are none."""
    if cell.attempt > MAX_ATTEMPTS:
        return {}, f"its worker died {MAX_ATTEMPTS} times; is there memory enough for {cell.replay.workload}?"
    try:
        return figures_of(cell, _watch(cell)).to_json(), ""
    except (NotWantedError, StoppingError, InterfaceError, OperationalError):
        raise
    except Exception as problem:
        # Whatever it is, a cell that cannot be run fails the replay instead of being tried for ever.
        log.exception("cell_failed", cell=cell.pk)
        return {}, str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"


def _watch(cell: ReplayCell) -> Callable[[], None]:
    """A function to call while computing; it raises once the cell is not ours to run any more, or we are to stop."""
    mine = ReplayCell.objects.filter(pk=cell.pk, state=ReplayCell.State.RUNNING, attempt=cell.attempt)
    looked = time.monotonic()

    def look() -> None:
        nonlocal looked
        if time.monotonic() - looked < LOOK_EVERY_S:
            return
        looked = time.monotonic()
        if _stopping[0]:
            raise StoppingError
        if not mine.exists():
            raise NotWantedError

    return look


def messages(job: Job) -> list[kinds.Message]:
    """Messages for a replay's job: one for each queued cell, at most `IN_FLIGHT`; each sends itself on."""
    queued = ReplayCell.objects.filter(replay=job.subject_id, state=ReplayCell.State.QUEUED).count()
    return [(RUN_CELL, job.subject_id or 0)] * min(queued, IN_FLIGHT)


def requeue_lost(job: Job) -> int:
    """Cells whose worker died are queued again; returns how many."""
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
