"""Row locks with the optimistic check under them, and advisory locks that die with their holder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pglock
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
    """Return the row, locked until the transaction ends.

    The lock leaves the row's key alone (FOR NO KEY UPDATE): audit events and jobs that point to the row can be
    written meanwhile, and do not deadlock with us.

    Parameters
    ----------
    model
        The class of the row; it has a column ``version`` if `expected_version` is used.
    pk
        Id of the row.
    expected_version
        Version that the caller has read (from If-Match or a form); None skips the check.

    Returns
    -------
    Model
        The present row.

    Raises
    ------
    StaleVersion
        When `expected_version` is no longer the row's.
    DoesNotExist
        When no row has this id.
    """
    row = model.objects.select_for_update(no_key=True).get(pk=pk)
    if expected_version is not None and row.version != expected_version:
        raise StaleVersion(f"{row} was changed since you read it (version {row.version}, you have {expected_version}).")
    return row


class PairLock(pglock.advisory):
    """An advisory lock with a pair of 32-bit integers as its id: the space and the row.

    pglock itself knows ids of one 64-bit integer, which are another key space of PostgreSQL. The pair is what the audit
    trigger and workers of earlier releases use, so that old and new processes exclude each other during an upgrade.
    """

    def __init__(self, space: int, pk: int, **options: Any) -> None:
        super().__init__(f"{space}:{pk}", **options)
        self.pair = f"{int(space)}, {int(pk) % 2**31}"

    @property
    def int_lock_id(self) -> str:  # type: ignore[override]  # text: a pair has no single number
        """Return the arguments of PostgreSQL's lock function."""
        return self.pair


@contextmanager
def held(space: int, pk: int) -> Iterator[bool]:
    """Try the advisory lock of one job or cell for the duration of the block; yield whether it was acquired.

    The lock belongs to the database connection: when a worker is killed, PostgreSQL frees it at once. So
    "running, and its lock is free" means that nobody runs it, without leases or clocks.
    """
    own = PairLock(space, pk, timeout=0)
    got = own.acquire()
    try:
        yield got
    finally:
        # A closed connection has freed the lock already; releasing it would open another one.
        if got and connection.connection is not None and not connection.connection.closed:
            own.release()


def is_free(space: int, pk: int) -> bool:
    """Whether no process holds the lock."""
    with held(space, pk) as got:
        return got


def wait_in_transaction(space: int, pk: int, *, shared: bool = False) -> None:
    """Wait for an advisory lock and hold it until the transaction ends.

    Parameters
    ----------
    space
        One of the lock spaces of this module, such as `JUDGING_SPACE`.
    pk
        Id of the row that the lock is for.
    shared
        True lets other holders with `shared` hold it at the same time.
    """
    PairLock(space, pk, xact=True, shared=shared).acquire()
