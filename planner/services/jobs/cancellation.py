"""Cancel a job together with the plan or replay that it makes."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.errors import Conflict
from planner.models import Job
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.jobs import kinds


@transaction.atomic
def cancel_job(*, acting_user: User, job: Job) -> Job:
    """Cancel a job and its result; a worker that runs it drops what it computed."""
    rights.require(acting_user, rights.PLAN, job.fleet)
    kind = kinds.find(job.kind)
    # The subject is locked before the job everywhere, so that two services cannot deadlock.
    if kind is not None and kind.lock is not None and job.subject_id is not None:
        kind.lock(job.subject_id)
    job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
    if not job.is_open:
        raise Conflict(f"{job} is already {job.get_state_display()}")
    before = {"state": job.state}
    job.state = Job.State.CANCELLED
    job.cancel_requested_at = job.finished_at = timezone.now()
    job.save(update_fields=["state", "cancel_requested_at", "finished_at"])
    if kind is not None and kind.cancelled is not None:
        kind.cancelled(acting_user=acting_user, job=job)
    record_event(
        "job.cancelled",
        acting_user=acting_user,
        fleet=job.fleet,
        subject=job,
        before=before,
        after={"state": job.state},
    )
    return job
