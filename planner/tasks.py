"""Celery tasks: claim, call a service, record the outcome. A message that comes twice does its work once."""

from __future__ import annotations

from typing import Any

import structlog
from celery import shared_task
from celery.signals import worker_shutting_down

from planner.errors import JobFailed, Refused
from planner.models import Job
from planner.services import (
    calibrations,
    cells,
    fits,
    jobs,
    monitor,
    plans,
    simulated_traffic,
    studies,
    telemetry,
    webhook_delivery,
)

log = structlog.get_logger(__name__)

# What does a job of each kind, and what records that it could not; replays go cell by cell.
WORK = {
    Job.Kind.BUILD_PLAN.value: (plans.build_plan, plans.build_failed),
    Job.Kind.STUDY.value: (studies.run_study, studies.study_failed),
    Job.Kind.CALIBRATE.value: (calibrations.run_calibration, calibrations.calibration_failed),
    Job.Kind.FIT.value: (fits.run_fit, fits.fit_failed),
}


@shared_task(name="planner.build_plan")
def build_plan(job_id: int) -> None:
    """Do the work of a job."""
    run_job(job_id)


@shared_task(name="planner.run_study")
def run_study(job_id: int) -> None:
    """Do the work of a job."""
    run_job(job_id)


@shared_task(name="planner.run_calibration")
def run_calibration(job_id: int) -> None:
    """Do the work of a job."""
    run_job(job_id)


@shared_task(name="planner.run_fit")
def run_fit(job_id: int) -> None:
    """Do the work of a job."""
    run_job(job_id)


def run_job(job_id: int) -> None:
    """Do what the row's kind says, whatever the message was called: a sender of another release may not know it."""
    row = Job.objects.filter(pk=job_id).only("kind", "subject_id").first()
    if row is not None and row.kind == Job.Kind.REPLAY:
        cells.run_next_cell(row.subject_id or 0)
        return
    if row is None or row.kind not in WORK:
        log.warning("job_not_known", job=job_id, kind=row and row.kind)
        return
    work, failed = WORK[row.kind]
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


@worker_shutting_down.connect
def put_cells_back(**_: Any) -> None:
    """A worker that is told to stop waits for its tasks: let those that run cells of replays put them back."""
    cells.stop_soon()


@shared_task(name="planner.sweep_jobs")
def sweep_jobs() -> None:
    """Send again what nobody looks after."""
    found = jobs.sweep()
    if any(found.values()):
        log.info("swept", **found)


@shared_task(name="planner.deliver_webhooks")
def deliver_webhooks() -> None:
    """Tell webhooks what happened."""
    done = webhook_delivery.run()
    if any(done.values()):
        log.info("webhooks_told", **done)


@shared_task(name="planner.watch_fleets")
def watch_fleets() -> None:
    """Start what is scheduled, judge canaries, and hold what is measured against what was validated."""
    found = monitor.watch_all()
    if set(found) - {"within"}:
        log.info("watched", **found)


@shared_task(name="planner.prune_telemetry")
def prune_telemetry() -> None:
    """Delete telemetry that is older than it is kept."""
    found = telemetry.prune()
    if any(found.values()):
        log.info("pruned", **found)


@shared_task(name="planner.simulate_traffic")
def simulate_traffic() -> None:
    """Simulate the minute that is over, on fleets that nothing serves."""
    simulated_traffic.simulate_all()
