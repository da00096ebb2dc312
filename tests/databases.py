"""Test databases: migrated once a run, and cloned for each worker by `CREATE DATABASE ... TEMPLATE`.

The first worker that needs a template makes it, under an advisory lock; the others wait for it and clone it. Templates
have the run in their names, so that a server that outlives the run never hands out the schema of an earlier one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection

from tests.servers import RUN

LOCK = 0x7E57_DA7A
SCHEMA = "schema"


@contextmanager
def server() -> Iterator[psycopg.Connection]:
    """A connection to the server's maintenance database, on which `CREATE DATABASE` may run."""
    with connection._nodb_cursor() as cursor:
        yield cursor.connection


def template(name: str) -> str:
    """The name of a template database of this run."""
    return f"template_{os.environ[RUN]}_{name}"


@contextmanager
def pointed_at(database: str) -> Iterator[None]:
    """Django's connection goes to another database of the same server."""
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = database
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before


def clone(source: str, target: str) -> None:
    """Make the target anew as a copy of a template of this run."""
    with server() as postgres:
        postgres.execute(f'DROP DATABASE IF EXISTS "{target}" WITH (FORCE)')
        postgres.execute(f'CREATE DATABASE "{target}" TEMPLATE "{template(source)}" STRATEGY FILE_COPY')


def drop(database: str) -> None:
    """Remove a database and end all connections to it."""
    with server() as postgres:
        postgres.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')


def provide(name: str, fill: Callable[[], None], *, source: str | None = None) -> None:
    """Make the template where no worker has made it: `fill` fills a copy of `source`, or an empty database."""
    with server() as postgres:
        postgres.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        try:
            known = "SELECT 1 FROM pg_database WHERE datname = %s"
            if postgres.execute(known, [template(name)]).fetchone():
                return
            unfinished = template(name) + "_unfinished"
            if source is None:
                postgres.execute(f'CREATE DATABASE "{unfinished}" TEMPLATE template0')
            else:
                clone(source, unfinished)
            with pointed_at(unfinished):
                fill()
            postgres.execute(f'ALTER DATABASE "{unfinished}" RENAME TO "{template(name)}"')
        finally:
            postgres.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
