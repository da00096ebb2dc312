"""Row locks with the optimistic check under them, and advisory locks that die with their holder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from planner.errors import StaleVersion

JOB_SPACE = 7301
CELL_SPACE = 7302
WEBHOOK_SPACE = 7305  # 7303 is the audit chain
MONITOR_SPACE = 7313
TELEMETRY_SPACE = 7314
SIMULATOR_SPACE = 7315
JUDGING_SPACE = 7316


def lock(model: Any, pk: int, expected_version: int | None = None) -> Any:
    """The row, locked until the transaction ends.

    The lock leaves the row's key alone (FOR NO KEY UPDATE): audit events and jobs that point to the row can be
    written meanwhile, and do not deadlock with us.

    Raises
    ------
    StaleVersion
        When `expected_version` (from If-Match or a form) is no longer the row's.
    """
    row = model.objects.select_for_update(no_key=True).get(pk=pk)
    if expected_version is not None and row.version != expected_version:
        raise StaleVersion(f"{row} was changed since you read it (version {row.version}, you have {expected_version}).")
    return row


@contextmanager
def held(space: int, pk: int) -> Iterator[bool]:
    """Try the advisory lock of one job or cell for the length of the block; yields whether we hold it.

    The lock belongs to the database connection: when a worker is killed, PostgreSQL frees it at once. So
    "running, and its lock is free" means that nobody runs it, without leases or clocks.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [space, pk % 2**31])
        got = bool(cursor.fetchone()[0])
    try:
        yield got
    finally:
        if got and connection.connection is not None and not connection.connection.closed:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [space, pk % 2**31])


def is_free(space: int, pk: int) -> bool:
    """Whether nobody holds the lock."""
    with held(space, pk) as got:
        return got
