"""Messages to the workers, by task name: services never import the tasks that call them."""

from __future__ import annotations

from celery import current_app
from kombu.pools import connections

from planner.models import Job, ReplayCell

# Messages that one replay keeps in the queue: no fewer than it may have workers, no more than others can wait for.
IN_FLIGHT = 8

# Names as older releases sent and knew them: during an upgrade both run. What is done is decided by the job's row.
TASK_OF = {
    Job.Kind.BUILD_PLAN: "planner.build_plan",
    Job.Kind.STUDY: "planner.run_study",
    Job.Kind.CALIBRATE: "planner.run_calibration",
    Job.Kind.FIT: "planner.run_fit",
}

# Sending holds a request, so it waits less for a broker that hangs than the workers' own reads do, which block.
SEND_OPTIONS = {"socket_connect_timeout": 1, "socket_timeout": 2}


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
        _send(TASK_OF[Job.Kind(job.kind)], job.pk)


def send_cell(replay_id: int) -> None:
    """Send a message that runs the replay's next cell."""
    _send("planner.run_cell", replay_id)


def _send(task: str, pk: int) -> None:
    # Pooled by address and options: these connections are for sending only.
    pool = connections[current_app.connection_for_write(transport_options=SEND_OPTIONS)]
    with pool.acquire(block=True) as connection:
        current_app.send_task(task, args=[pk], connection=connection)
