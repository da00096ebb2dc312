"""Job rows: filing, claiming, progress, cancelling, and the sweep that picks up what was lost.

1. A service files a job in its own transaction; after the commit a message tells the workers to look.
2. A worker claims it: it takes the advisory lock of the row and moves queued -> running, or takes over a
   running row whose lock was free (its worker died). `attempt` grows with every claim.
3. It records the outcome only while the row is still running with the attempt that it claimed.
4. The sweep sends messages again for rows that nobody looks after: the broker was down, or a worker died.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from planner.errors import Conflict
from planner.models import Fleet, Job
from planner.services import audit, locking, queue

log = structlog.get_logger(__name__)

# A message that was sent this long ago and led to nothing is sent again.
RESEND_AFTER = dt.timedelta(seconds=20)
# A build whose worker died this often is what kills workers.
MAX_ATTEMPTS = 3


def file_job(
    *,
    acting_user: User,
    fleet: Fleet,
    kind: str,
    subject_id: int | None,
    total: int = 1,
    payload: dict[str, Any] | None = None,
) -> Job:
    """Create the row; the message goes out when the surrounding transaction commits."""
    job = Job.objects.create(
        fleet=fleet, kind=kind, subject_id=subject_id, total=total, payload=payload or {}, created_by=acting_user
    )
    transaction.on_commit(lambda: send(job), robust=True)
    return job


def send(job: Job) -> bool:
    """Tell the workers to look at the job. With the broker down the row waits for the sweep."""
    try:
        queue.send_job(job)
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, the row is safe
        log.warning("message_not_sent", job=job.pk, error=str(error))
        return False
    Job.objects.filter(pk=job.pk).update(dispatched_at=timezone.now())
    return True


@contextmanager
def claimed(job_id: int) -> Iterator[Job | None]:
    """Claim the job for the length of the block; None when there is nothing to do."""
    with locking.held(locking.JOB_SPACE, job_id) as got:
        if not got:
            yield None
            return
        updated = Job.objects.filter(pk=job_id, state__in=Job.OPEN).update(
            state=Job.State.RUNNING, attempt=F("attempt") + 1, started_at=timezone.now(), done=0, message=""
        )
        yield Job.objects.select_related("fleet", "created_by").get(pk=job_id) if updated else None


def progress(job: Job, done: int, message: str = "") -> bool:
    """Record progress; False when the job is not ours to run any more (cancelled or taken over)."""
    mine = Job.objects.filter(pk=job.pk, state=Job.State.RUNNING, attempt=job.attempt)
    return bool(mine.update(done=done, message=message[:300]))


def is_mine(job: Job) -> bool:
    """Whether the job is still ours to run."""
    return Job.objects.filter(pk=job.pk, state=Job.State.RUNNING, attempt=job.attempt).exists()


def lock_mine(job: Job) -> bool:
    """Inside a transaction: lock the row and say whether it is still ours to finish."""
    return (
        Job.objects.select_for_update(no_key=True)
        .filter(pk=job.pk, state=Job.State.RUNNING, attempt=job.attempt)
        .exists()
    )


def finish(job: Job, state: str, *, result: dict[str, Any] | None = None, error: str = "", message: str = "") -> bool:
    """Close the job; False (and nothing changed) when it was closed already."""
    values: dict[str, Any] = {"state": state, "finished_at": timezone.now(), "error": error, "message": message[:300]}
    if result is not None:
        values["result"] = result
    if state == Job.State.SUCCEEDED:
        values["done"] = F("total")
    return bool(Job.objects.filter(pk=job.pk, state__in=Job.OPEN).update(**values))


@transaction.atomic
def cancel_job(*, acting_user: User, job: Job) -> Job:
    """Cancel a job and what it was making; a worker that is at it drops its result."""
    from planner.services import plans, replays, rights

    rights.require(acting_user, rights.PLAN, job.fleet)
    # The subject is locked before the job everywhere, so that two services never wait for each other.
    if job.kind == Job.Kind.BUILD_PLAN and job.subject_id is not None:
        plans.lock_plan(job.subject_id)
    elif job.kind == Job.Kind.REPLAY and job.subject_id is not None:
        replays.lock_replay(job.subject_id)
    job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
    if not job.is_open:
        raise Conflict(f"{job} is {job.get_state_display()} already")
    before = {"state": job.state}
    job.state = Job.State.CANCELLED
    job.cancel_requested_at = job.finished_at = timezone.now()
    job.save(update_fields=["state", "cancel_requested_at", "finished_at"])
    if job.kind == Job.Kind.BUILD_PLAN:
        plans.after_cancelled_build(acting_user=acting_user, job=job)
    elif job.kind == Job.Kind.REPLAY:
        replays.after_cancelled_replay(job=job)
    audit.record(
        "job.cancelled",
        acting_user=acting_user,
        fleet=job.fleet,
        subject=job,
        before=before,
        after={"state": job.state},
    )
    return job


def sweep() -> dict[str, int]:
    """Send again what nobody looks after. Safe to run at any time and more than once."""
    from planner.services import cells

    sent = requeued = 0
    stale = timezone.now() - RESEND_AFTER
    for job in Job.objects.filter(state__in=Job.OPEN).order_by("id"):
        try:
            if job.kind == Job.Kind.REPLAY:
                lost = cells.requeue_lost(job)
                requeued += lost
                if lost or cells.wants_messages(job, RESEND_AFTER):
                    sent += send(job)
                continue
            unanswered = job.state == Job.State.QUEUED and job.dispatched_at is not None and job.dispatched_at < stale
            orphaned = job.state == Job.State.RUNNING and locking.is_free(locking.JOB_SPACE, job.pk)
            if job.dispatched_at is None or unanswered or orphaned:
                sent += send(job)
        except Exception:  # one job that cannot be swept must not keep the others from it
            log.exception("sweep_failed", job=job.pk)
    return {"sent": sent, "cells_requeued": requeued}
