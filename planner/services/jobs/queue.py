"""Messages to the workers, by task name: services never import the tasks that call them."""

from __future__ import annotations

from celery import current_app
from kombu.pools import connections

# Sending holds a request, so it waits less for a broker that hangs than the workers' own reads do, which block.
SEND_OPTIONS = {"socket_connect_timeout": 1, "socket_timeout": 2}


def send(task: str, pk: int) -> None:
    """Send a message that calls a task with an id.

    Raises
    ------
    kombu.exceptions.OperationalError
        When the broker cannot be reached.
    """
    # Pooled by address and options: these connections are for sending only.
    pool = connections[current_app.connection_for_write(transport_options=SEND_OPTIONS)]
    with pool.acquire(block=True) as connection:
        current_app.send_task(task, args=[pk], connection=connection)
