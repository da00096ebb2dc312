"""Celery tasks: claim, call a service, record the outcome. A repeated message does its work once."""

from __future__ import annotations

from typing import Any

import structlog
from celery import shared_task
from celery.signals import worker_shutting_down

from planner.errors import JobFailed, Refused
from planner.models import Job
from planner.services.jobs import jobs, kinds
from planner.services.jobs.sweep import sweep
from planner.services.monitoring import monitor
from planner.services.replays import cells
from planner.services.telemetry import simulator, windows
from planner.services.webhooks import delivery

log = structlog.get_logger(__name__)

# Task names of earlier releases: during an upgrade their messages still arrive.
EARLIER_NAMES = ("planner.build_plan", "planner.run_study", "planner.run_calibration", "planner.run_fit")


@shared_task(name=kinds.RUN_JOB)
def run_job(job_id: int) -> None:
    """Run a job. The kind in its row decides, not the task name in the message."""
    row = Job.objects.filter(pk=job_id).only("kind", "subject_id").first()
    kind = None if row is None else kinds.find(row.kind)
    if row is None or kind is None:
        log.warning("job_not_known", job=job_id, kind=row and row.kind)
        return
    if kind.run_part is not None:
        kind.run_part(row.subject_id or 0)
        return
    assert kind.run is not None  # registered with both
    assert kind.failed is not None
    with jobs.claimed(job_id) as job:
        if job is None:
            return
        if job.attempt > jobs.MAX_ATTEMPTS:
            message = f"its worker died {jobs.MAX_ATTEMPTS} times; is there memory enough for this workload?"
            kind.failed(job, message=message, crashed=True)
            return
        try:
            kind.run(job)
        except (JobFailed, Refused) as expected:
            kind.failed(job, message=str(expected), crashed=False)
        except Exception as crash:
            kind.failed(job, message=f"{type(crash).__name__}: {crash}", crashed=True)
            raise


for _name in EARLIER_NAMES:
    shared_task(name=_name)(run_job.run)


@shared_task(name=cells.RUN_CELL)
def run_cell(replay_id: int) -> None:
    """Run the next cells of a replay."""
    cells.run_next_cell(replay_id)


@worker_shutting_down.connect
def release_cells(**_: Any) -> None:
    """Stop running cells of replays and return them to the queue, because a stopping worker waits for its tasks."""
    cells.stop_soon()


@shared_task(name="planner.sweep_jobs")
def sweep_jobs() -> None:
    """Send messages again for open jobs that no worker handles."""
    found = sweep()
    if any(found.values()):
        log.info("swept", **found)


@shared_task(name="planner.deliver_webhooks")
def deliver_webhooks() -> None:
    """Deliver audit events to webhooks."""
    done = delivery.run()
    if any(done.values()):
        log.info("webhooks_delivered", **done)


@shared_task(name="planner.watch_fleets")
def watch_fleets() -> None:
    """Start scheduled canaries, judge canaries, and compare telemetry with the validated range."""
    found = monitor.watch_all()
    if set(found) - {"within"}:
        log.info("watched", **found)


@shared_task(name="planner.prune_telemetry")
def prune_telemetry() -> None:
    """Delete telemetry that is older than its retention time."""
    found = windows.prune()
    if any(found.values()):
        log.info("pruned", **found)


@shared_task(name="planner.simulate_traffic")
def simulate_traffic() -> None:
    """Simulate the last minute of traffic on fleets that have no routers."""
    simulator.simulate_all()
