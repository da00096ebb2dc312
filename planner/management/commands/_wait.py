"""Waiting for a job from a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from planner.models import Job


def wait_for(job: Job, say: Callable[[str], Any], timeout_s: float = 3600.0) -> Job:
    """Poll the job until it ends, printing its progress; raise CommandError when it did not succeed."""
    deadline, last = time.monotonic() + timeout_s, ""
    while True:
        job = Job.objects.get(pk=job.pk)
        if not job.is_open:
            break
        line = f"{job}: {job.get_state_display()} {job.message}".rstrip()
        if line != last:
            say(line)
            last = line
        if time.monotonic() > deadline:
            raise CommandError(f"{job} is not finished after {timeout_s:.0f} s; it continues without this command")
        time.sleep(0.1)
    if job.state != Job.State.SUCCEEDED:
        raise CommandError(f"{job} {job.get_state_display()}: {job.error}")
    return job
