"""Messages to the workers, by task name: services never import the tasks that call them."""

from __future__ import annotations

from celery import current_app

from planner.models import Job, ReplayCell

# Messages that one replay keeps in the queue: no fewer than it may have workers, no more than others can wait for.
IN_FLIGHT = 8


def send_job(job: Job) -> None:
    """Send the messages of a job: one, for a replay a few (each runs a cell and sends itself on).

    Raises
    ------
    kombu.exceptions.OperationalError
        When the broker cannot be reached.
    """
    if job.kind == Job.Kind.REPLAY:
        queued = ReplayCell.objects.filter(replay=job.subject_id, state=ReplayCell.State.QUEUED).count()
        for _ in range(min(queued, IN_FLIGHT)):
            send_cell(job.subject_id or 0)
    else:
        task = "planner.run_study" if job.kind == Job.Kind.STUDY else "planner.build_plan"
        current_app.send_task(task, args=[job.pk])


def send_cell(replay_id: int) -> None:
    """Send a message that runs the replay's next cell."""
    current_app.send_task("planner.run_cell", args=[replay_id])
