"""Celery tasks: claim, call a service, record the outcome. A message that comes twice does its work once."""

from __future__ import annotations

import structlog
from celery import shared_task

from planner.errors import JobFailed, Refused
from planner.services import cells, jobs, plans

log = structlog.get_logger(__name__)


@shared_task(name="planner.build_plan")
def build_plan(job_id: int) -> None:
    """Build the plan of a job."""
    with jobs.claimed(job_id) as job:
        if job is None:
            return
        if job.attempt > jobs.MAX_ATTEMPTS:
            message = f"its worker died {jobs.MAX_ATTEMPTS} times; is there memory enough for this workload?"
            plans.build_failed(job, message=message, crashed=True)
            return
        try:
            plans.build_plan(job)
        except (JobFailed, Refused) as expected:
            plans.build_failed(job, message=str(expected), crashed=False)
        except Exception as crash:
            plans.build_failed(job, message=f"{type(crash).__name__}: {crash}", crashed=True)
            raise


@shared_task(name="planner.run_cell")
def run_cell(replay_id: int) -> None:
    """Run the next cell of a replay."""
    cells.run_next_cell(replay_id)


@shared_task(name="planner.sweep_jobs")
def sweep_jobs() -> None:
    """Send again what nobody looks after."""
    found = jobs.sweep()
    if any(found.values()):
        log.info("swept", **found)
