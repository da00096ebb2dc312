"""The end of a replay: every finished cell is counted, and the last one refines the ladder or closes it."""

from __future__ import annotations

import structlog
from django.db import transaction
from django.db.models import Count, Q
from django.utils import timezone

from planner.digests import digest
from planner.models import Job, Plan, Replay, ReplayCell
from planner.services import audit, gates, jobs, plans
from planner.services.refinement import add_round
from planner.services.replays import lock_replay
from planner.services.verdicts import verdict_of

log = structlog.get_logger(__name__)

OPEN = (ReplayCell.State.QUEUED, ReplayCell.State.RUNNING)


def close_if_complete(replay_id: int) -> None:
    """Record progress and, when no cell is open, close the replay.

    One count without any lock: a cell is stored before it is counted here, so whoever stored the last one sees
    that nothing is open. Two who see it meet at the replay's lock, and the second finds it closed.
    """
    cells = ReplayCell.objects.filter(replay=replay_id)
    found = cells.aggregate(total=Count("id"), open=Count("id", filter=Q(state__in=OPEN)))
    finished = found["total"] - found["open"]
    Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=replay_id, state__in=Job.OPEN, done__lt=finished).update(
        done=finished, message=f"{finished} of {found['total']} cells"
    )
    if not found["open"]:
        _close(replay_id)


@transaction.atomic
def _close(replay_id: int) -> None:
    """Add a round to the ladder, or judge the replay and evaluate the checklist."""
    row = lock_replay(replay_id)
    if row.state != Replay.State.RUNNING or row.cells.filter(state__in=OPEN).exists():
        return
    job = Job.objects.filter(kind=Job.Kind.REPLAY, subject_id=row.pk).latest("id")
    broken = row.cells.filter(state=ReplayCell.State.FAILED).first()
    if broken is not None:
        _fail(row, job, f"{broken}: {broken.error}")
        return
    try:
        with transaction.atomic():
            if add_round(row, job):
                return
            row.verdict = verdict_of(row)
    except Exception as problem:
        log.exception("verdict_failed", replay=row.pk)
        _fail(row, job, f"the cells give no verdict: {type(problem).__name__}: {problem}")
        return
    plan = plans.lock_plan(row.plan_id)
    row.figures_digest = digest_of(row)
    row.state, row.finished_at = Replay.State.SUCCEEDED, timezone.now()
    row.bump("state", "verdict", "figures_digest", "finished_at")
    if not row.what_if:
        plans.move(plan, Plan.State.REPLAYED)
    jobs.finish(job, Job.State.SUCCEEDED, result={"replay": row.pk, "figures_digest": row.figures_digest})
    audit.record(
        "replay.finished",
        acting_user=row.created_by,
        fleet=plan.fleet,
        subject=row,
        after={"capacity": row.verdict["capacity"], "what_if": row.parameters.get("what_if", [])},
        evidence_digest=row.figures_digest,
    )
    # A what-if replay changes nothing that was judged; without any other, the checklist says why it does not count.
    if not row.what_if or not plan.gate_evaluations.exists():
        gates.judge_plan(acting_user=row.created_by, plan=plan)


def digest_of(row: Replay) -> str:
    """sha256 of the figures of all cells, in order of policy, load and seed."""
    cells = row.cells.order_by("policy", "load_rps", "seed").values_list("policy", "load_rps", "seed", "figures")
    # Sorted again: the database may order names by the rules of a language.
    return digest(sorted(map(list, cells), key=lambda cell: cell[:3]))


def _fail(row: Replay, job: Job, why: str) -> None:
    plan = plans.lock_plan(row.plan_id)
    row.state, row.failure, row.finished_at = Replay.State.FAILED, why, timezone.now()
    row.bump("state", "failure", "finished_at")
    if not row.what_if:
        plans.move(plan, Plan.State.BUILT)
    jobs.finish(job, Job.State.FAILED, error=why)
    audit.record("replay.failed", acting_user=row.created_by, fleet=plan.fleet, subject=row, reason=why)
