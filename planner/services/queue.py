"""Messages to the workers, by task name: services never import the tasks that call them."""

from __future__ import annotations

from celery import current_app

from planner.models import Job, ReplayCell


def send_job(job: Job) -> None:
    """Send the messages of a job: one for a build, one for each open cell of a replay.

    Raises
    ------
    kombu.exceptions.OperationalError
        When the broker cannot be reached.
    """
    if job.kind == Job.Kind.REPLAY:
        queued = ReplayCell.objects.filter(replay=job.subject_id, state=ReplayCell.State.QUEUED).order_by("id")
        for pk in queued.values_list("pk", flat=True):
            send_cell(pk)
    else:
        current_app.send_task("planner.build_plan", args=[job.pk])


def send_cell(cell_id: int) -> None:
    """Send the message of one cell."""
    current_app.send_task("planner.run_cell", args=[cell_id])
