"""Job rows: filing, claiming, progress, cancelling, and the sweep that restarts lost jobs.

1. A service files a job in its own transaction; after the commit a message is sent to the workers.
2. A worker claims it: it takes the advisory lock of the row and changes queued to running, or takes over a
   running row whose lock is free (its worker died). `attempt` grows with every claim.
3. The worker records the outcome only while the row is still running with the attempt that it claimed.
4. The sweep sends messages again for rows without a worker: the broker was down, or the worker died.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from planner.models import Fleet, Job
from planner.records import JsonObject
from planner.services.base import locking
from planner.services.jobs import kinds, queue

log = structlog.get_logger(__name__)
# A build whose worker died this often is taken to be the cause.
MAX_ATTEMPTS = 3


def file_job(
    *,
    acting_user: User,
    fleet: Fleet,
    kind: str,
    subject_id: int | None,
    total: int = 1,
    payload: JsonObject | None = None,
) -> Job:
    """Create the row of a job; its message is sent when the surrounding transaction commits.

    Parameters
    ----------
    acting_user, fleet
        Who orders the job, and for which fleet. The caller checks the right.
    kind
        A value of `Job.Kind`.
    subject_id
        Id of the row that the job is about; its table depends on the kind.
    total
        Number of steps that the progress is counted in.
    payload
        Inputs of the job as JSON.

    Returns
    -------
    Job
        The queued row.
    """
    job = Job.objects.create(
        fleet=fleet, kind=kind, subject_id=subject_id, total=total, payload=payload or {}, created_by=acting_user
    )
    transaction.on_commit(lambda: send(job), robust=True)
    return job


def send(job: Job) -> bool:
    """Send the messages of a job to the workers. While the broker is down, the row waits for the sweep."""
    kind = kinds.find(job.kind)
    if kind is None:
        log.warning("job_kind_unknown", job=job.pk, kind=job.kind)
        return False
    try:
        for task, pk in kind.messages(job):
            queue.send(task, pk)
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, the row is safe
        log.warning("message_not_sent", job=job.pk, error=str(error))
        return False
    Job.objects.filter(pk=job.pk).update(dispatched_at=timezone.now())
    return True


@contextmanager
def claimed(job_id: int) -> Iterator[Job | None]:
    """Claim the job for the length of the block; None when it cannot be claimed."""
    with locking.held(locking.JOB_SPACE, job_id) as got:
        if not got:
            yield None
            return
        updated = Job.objects.filter(pk=job_id, state__in=Job.OPEN).update(
            state=Job.State.RUNNING, attempt=F("attempt") + 1, started_at=timezone.now(), done=0, message=""
        )
        yield Job.objects.select_related("fleet", "created_by").get(pk=job_id) if updated else None


def progress(job: Job, done: int, message: str = "") -> bool:
    """Record the progress of a job.

    Parameters
    ----------
    job
        The job with the attempt that this worker has claimed.
    done
        Number of finished steps of the job's ``total``.
    message
        What is done, for people; cut after 300 characters.

    Returns
    -------
    bool
        False when the job was cancelled or claimed by another worker; nothing is recorded then.
    """
    mine = Job.objects.filter(pk=job.pk, state=Job.State.RUNNING, attempt=job.attempt)
    return bool(mine.update(done=done, message=message[:300]))


def is_mine(job: Job) -> bool:
    """Whether this worker still holds the job."""
    return Job.objects.filter(pk=job.pk, state=Job.State.RUNNING, attempt=job.attempt).exists()


def lock_mine(job: Job) -> bool:
    """Inside a transaction: lock the row, and say whether this worker may still finish the job."""
    return (
        Job.objects.select_for_update(no_key=True)
        .filter(pk=job.pk, state=Job.State.RUNNING, attempt=job.attempt)
        .exists()
    )


def finish(job: Job, state: str, *, result: JsonObject | None = None, error: str = "", message: str = "") -> bool:
    """Close a job that is queued or running.

    Parameters
    ----------
    job
        The job.
    state
        A closed state of `Job.State`. With "succeeded" the progress becomes complete.
    result
        Result as JSON; None keeps the stored one.
    error, message
        Cause of a failure, and the last message of progress (cut after 300 characters).

    Returns
    -------
    bool
        False, and nothing changes, if the job is already closed.
    """
    values: JsonObject = {"state": state, "finished_at": timezone.now(), "error": error, "message": message[:300]}
    if result is not None:
        values["result"] = result
    if state == Job.State.SUCCEEDED:
        values["done"] = F("total")
    return bool(Job.objects.filter(pk=job.pk, state__in=Job.OPEN).update(**values))
