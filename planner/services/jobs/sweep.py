"""Sending messages again for jobs that no worker handles."""

from __future__ import annotations

import datetime as dt

import structlog
from django.utils import timezone

from planner.models import Job
from planner.services.base import locking
from planner.services.jobs import jobs, kinds

log = structlog.get_logger(__name__)

# A message that was sent this long ago and led to nothing is sent again.
RESEND_AFTER = dt.timedelta(seconds=20)


def sweep() -> dict[str, int]:
    """Send messages again for open jobs that no worker handles. Safe to run at any time and more than once."""
    sent = requeued = 0
    for job in Job.objects.filter(state__in=Job.OPEN).order_by("id"):
        kind = kinds.find(job.kind)
        if kind is None:  # filed by another release, whose workers sweep it
            continue
        try:
            lost = kind.requeue_lost(job)
            requeued += lost
            needs_message = kind.needs_message or _needs_message
            if lost or needs_message(job):
                sent += jobs.send(job)
        except Exception:  # one job that cannot be swept must not keep the others from it
            log.exception("sweep_failed", job=job.pk)
    return {"sent": sent, "cells_requeued": requeued}


def _needs_message(job: Job) -> bool:
    """Whether the job was never sent, its message led to nothing, or its worker died."""
    if job.dispatched_at is None:
        return True
    if job.state == Job.State.QUEUED:
        return job.dispatched_at < timezone.now() - RESEND_AFTER
    return locking.is_free(locking.JOB_SPACE, job.pk)
