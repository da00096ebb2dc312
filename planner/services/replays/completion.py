"""The end of a replay: finished cells are counted, and the last one starts another round of bisection or the verdict.

The first cell that fails also ends the replay: cells that are still queued are cancelled.
"""

from __future__ import annotations

import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Count, Q
from django.utils import timezone

from planner.digests import code_version, digest
from planner.models import Job, Plan, Replay, ReplayCell
from planner.records import JsonObject
from planner.services.audit.events import record_event
from planner.services.base.states import lock_plan, lock_replay, move_plan
from planner.services.gate import evaluations
from planner.services.gate.preload import NotPreloaded, Preloaded, with_preloaded
from planner.services.jobs import jobs
from planner.services.replays.orders import cancel_open_cells, restore_state
from planner.services.replays.refinement import add_round
from planner.services.replays.verdicts import verdict_of

log = structlog.get_logger(__name__)

UPDATED = (
    "the console was updated while this replay ran: start it again. Cells of two versions must not be mixed; it was "
    "started by {started}, and a worker of {found} claimed a cell."
)
# Read when the process starts: the process runs that version, even if an upgrade changes the files later.
code_version()


def close_if_complete(replay_id: int) -> None:
    """Record progress and, when no cell is open or one failed, close the replay.

    The count takes no lock: a cell is stored before it is counted here, so the worker that stored the last cell sees
    that none is open. If two workers see it, both wait for the lock of the replay, and the second finds it closed.
    """
    cells = ReplayCell.objects.filter(replay=replay_id)
    found = cells.aggregate(
        total=Count("id"),
        open=Count("id", filter=Q(state__in=ReplayCell.OPEN)),
        failed=Count("id", filter=Q(state=ReplayCell.State.FAILED)),
    )
    finished = found["total"] - found["open"]
    Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=replay_id, state__in=Job.OPEN, done__lt=finished).update(
        done=finished, message=f"{finished} of {found['total']} cells"
    )
    if found["failed"] or not found["open"]:
        # The verdict needs the table of the plan. It is read before taking locks, so that nobody waits for storage.
        plan_id = Replay.objects.values_list("plan_id", flat=True).get(pk=replay_id)
        with_preloaded(plan_id, lambda stored: _close(replay_id, stored))


def is_outdated(row: Replay) -> bool:
    """Whether the replay was started by another version of the code, so that its cells cannot continue here."""
    return row.code_version != code_version()


@transaction.atomic
def fail_outdated(replay_id: int) -> None:
    """Fail a running replay that another version of the code started, and restore the state of its plan."""
    row = lock_replay(replay_id)
    if row.state == Replay.State.RUNNING and is_outdated(row):
        _fail(row, _outdated(row))


def _outdated(row: Replay) -> str:
    return UPDATED.format(started=row.code_version, found=code_version())


@transaction.atomic
def _close(replay_id: int, stored: Preloaded) -> None:
    """Add a round to the ladder, or judge the replay and evaluate the checklist."""
    row = lock_replay(replay_id)
    if row.state != Replay.State.RUNNING:
        return
    broken = row.cells.filter(state=ReplayCell.State.FAILED).order_by("finished_at", "id").first()
    if broken is not None:
        _fail(row, f"{broken}: {broken.error}")
        return
    if row.cells.filter(state__in=ReplayCell.OPEN).exists():
        return
    if is_outdated(row):
        _fail(row, _outdated(row))
        return
    try:
        with transaction.atomic():
            job = _job_of(row)
            if not add_round(row, job):
                _succeed(row, job, stored)
    except NotPreloaded:
        raise  # Another plan became active meanwhile: read again.
    except (InterfaceError, OperationalError):
        raise  # The failure is of the database, not of the replay: the sweep closes it later.
    except Exception as problem:
        # Whatever the error, a replay that cannot be closed fails; it is not tried again without end.
        log.exception("closing_failed", replay=row.pk)
        row.refresh_from_db()  # Changes in memory were not stored.
        _fail(row, f"the replay could not be judged: {type(problem).__name__}: {problem}")


def _job_of(row: Replay) -> Job:
    return Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=row.pk).latest("id")


def _succeed(row: Replay, job: Job, stored: Preloaded) -> None:
    plan = lock_plan(row.plan_id)
    row.verdict = verdict_of(row).to_json()
    row.figures_digest = digest_of(row)
    row.state, row.finished_at = Replay.State.SUCCEEDED, timezone.now()
    row.bump("state", "verdict", "figures_digest", "finished_at")
    if not row.what_if:
        move_plan(plan, Plan.State.REPLAYED)
    jobs.finish(job, Job.State.SUCCEEDED, result={"replay": row.pk, "figures_digest": row.figures_digest})
    record_event(
        "replay.finished",
        acting_user=row.created_by,
        fleet=plan.fleet,
        subject=row,
        after={"capacity": row.verdict["capacity"], "what_if": row.parameters.get("what_if", [])},
        evidence_digest=row.figures_digest,
    )
    # A what-if replay changes nothing that was judged. If it is the only replay, the checklist says why it does not
    # count.
    if not row.what_if or not plan.gate_evaluations.exists():
        evaluations.judge_plan(acting_user=row.created_by, plan=plan, stored=stored)


def digest_of(row: Replay, instead: dict[int, JsonObject] | None = None) -> str:
    """sha256 of the figures of all cells, in order of policy, load and seed; figures in `instead` replace the stored
    ones.
    """
    rows = row.cells.values_list("policy", "load_rps", "seed", "figures", "pk")
    cells = [[*named, (instead or {}).get(pk, figures)] for *named, figures, pk in rows]
    return digest(sorted(cells, key=lambda cell: cell[:3]))


def _fail(row: Replay, why: str) -> None:
    """Fail the locked replay, cancel its open cells, and restore the state of its plan."""
    plan = lock_plan(row.plan_id)
    cancel_open_cells(row)
    row.state, row.failure, row.finished_at = Replay.State.FAILED, why, timezone.now()
    row.bump("state", "failure", "finished_at")
    restore_state(row, plan)
    jobs.finish(_job_of(row), Job.State.FAILED, error=why)
    record_event("replay.failed", acting_user=row.created_by, fleet=plan.fleet, subject=row, reason=why)
