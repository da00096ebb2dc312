"""Advisory locks: one key space with SQL that names the pair itself, and free when the holder is gone."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.db import connection, connections, transaction

from planner.services.base import locking

pytestmark = pytest.mark.django_db(transaction=True)
PAIR = (locking.JOB_SPACE, 987_654)


@pytest.fixture
def other():
    """A second session, as another process has one; it speaks plain SQL, as earlier releases did."""
    given = connection.get_connection_params()
    names = ("host", "port", "dbname", "user", "password")
    with psycopg.connect(**{n: given[n] for n in names if n in given}, autocommit=True) as session:
        yield session


def takes(session, function: str, pair: tuple[int, int] = PAIR) -> bool:
    return session.execute(f"SELECT {function}(%s, %s)", pair).fetchone()[0]


def test_a_lock_and_the_sql_of_earlier_releases_exclude_each_other(other):
    with locking.held(*PAIR) as got:
        assert got
        assert not takes(other, "pg_try_advisory_lock")
    assert takes(other, "pg_try_advisory_lock")
    with locking.held(*PAIR) as got:
        assert not got
    assert not locking.is_free(*PAIR)
    assert takes(other, "pg_advisory_unlock")
    assert locking.is_free(*PAIR)


def test_a_lock_is_listed_under_its_space_and_row(other):
    listed = "SELECT classid, objid, objsubid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s"
    with locking.held(*PAIR):
        assert other.execute(listed, [locking.JOB_SPACE]).fetchall() == [(*PAIR, 2)]
    assert other.execute(listed, [locking.JOB_SPACE]).fetchall() == []


def test_a_lock_ends_with_the_connection_of_its_holder(other):
    with locking.held(*PAIR) as got:
        assert got
        other.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
        connection.close()
        other.execute("SET lock_timeout = '10s'")
        other.execute("SELECT pg_advisory_lock(%s, %s)", PAIR)  # the server ends a session a moment later
        assert connection.connection is None
    assert connection.connection is None  # leaving the block opened no connection


def test_a_lock_outlives_an_error_of_the_block_and_is_released(other):
    with pytest.raises(LookupError), locking.held(*PAIR):
        raise LookupError
    assert takes(other, "pg_try_advisory_lock")


def test_a_lock_of_a_transaction_is_waited_for_and_ends_with_it(other):
    order = []

    def wait():
        with transaction.atomic():
            locking.wait_in_transaction(*PAIR)
            order.append("waiter")
        connections.close_all()

    with transaction.atomic():
        locking.wait_in_transaction(*PAIR)
        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.3)
        order.append("holder")
    waiter.join(10)
    assert order == ["holder", "waiter"]
    assert takes(other, "pg_try_advisory_lock")


def test_shared_locks_of_transactions_go_together_and_exclude_the_other_kind(other):
    with transaction.atomic():
        locking.wait_in_transaction(*PAIR, shared=True)
        assert takes(other, "pg_try_advisory_lock_shared")
        assert takes(other, "pg_advisory_unlock_shared")
        assert not takes(other, "pg_try_advisory_lock")


def test_a_lock_of_a_transaction_outside_of_one_is_refused():
    with pytest.raises(RuntimeError, match="transaction"):
        locking.wait_in_transaction(*PAIR)
