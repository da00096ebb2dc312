"""Celery tasks: claim, call a service, record the outcome. A message that comes twice does its work once."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from celery import shared_task

from planner.errors import JobFailed, Refused
from planner.models import Job
from planner.services import cells, jobs, plans, studies

log = structlog.get_logger(__name__)


@shared_task(name="planner.build_plan")
def build_plan(job_id: int) -> None:
    """Build the plan of a job."""
    _run(job_id, plans.build_plan, plans.build_failed)


@shared_task(name="planner.run_study")
def run_study(job_id: int) -> None:
    """Run the study of a job."""
    _run(job_id, studies.run_study, studies.study_failed)


def _run(job_id: int, work: Callable[[Job], None], failed: Callable[..., None]) -> None:
    with jobs.claimed(job_id) as job:
        if job is None:
            return
        if job.attempt > jobs.MAX_ATTEMPTS:
            message = f"its worker died {jobs.MAX_ATTEMPTS} times; is there memory enough for this workload?"
            failed(job, message=message, crashed=True)
            return
        try:
            work(job)
        except (JobFailed, Refused) as expected:
            failed(job, message=str(expected), crashed=False)
        except Exception as crash:
            failed(job, message=f"{type(crash).__name__}: {crash}", crashed=True)
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
