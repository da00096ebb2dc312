"""Fixtures that every room of the tests shares."""

from __future__ import annotations

from collections.abc import Iterator

import pgtrigger
import pytest
from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase
from django.utils import timezone

from planner.models import Fleet
from tests import databases, golden, scale
from tests.clock import Clock
from tests.factories import Cast, fill_golden, make_fleet

# What waits for servers and processes, and what takes longest, starts first: the short tests fill the end evenly.
FIRST = ("dataplane", "test_openapi", "test_state_machine", "test_migrations", "embedded", "integration", "browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first; more examples at night."""
    found = {item: [at for at, part in enumerate(FIRST) if part in item.nodeid] for item in items}
    items.sort(key=lambda item: found[item][0] if found[item] else len(FIRST))
    if scale.NIGHTLY:
        scale.enlarge(items)


@pytest.fixture(scope="session")
def django_db_setup(request, django_test_environment, django_db_blocker) -> Iterator[None]:
    """Replaces the fixture of pytest-django: the worker's database is a clone of one that was migrated once."""
    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    before = connection.settings_dict["NAME"]
    mine = "_".join(filter(None, ["test", before, worker]))
    with django_db_blocker.unblock():
        databases.provide(databases.SCHEMA, lambda: call_command("migrate", verbosity=0, interactive=False))
        databases.clone(databases.SCHEMA, mine)
        connection.close()
        connection.settings_dict["NAME"] = mine
    yield
    with django_db_blocker.unblock():
        connection.close()
        connection.settings_dict["NAME"] = before
        golden.drop()
        databases.drop(mine)


@pytest.fixture(autouse=True, scope="session")
def _flush_may_truncate():
    """Emptying the tables between transactional tests is not the attack that the triggers are there for."""
    flush = TransactionTestCase._fixture_teardown

    def without_triggers(self):
        with pgtrigger.ignore():
            flush(self)

    TransactionTestCase._fixture_teardown = without_triggers
    yield
    TransactionTestCase._fixture_teardown = flush


@pytest.fixture(autouse=True)
def clock(request, monkeypatch) -> Clock | None:
    """The time is given, but where other processes read it too."""
    if any(request.node.get_closest_marker(name) for name in ("integration", "browser")):
        return None
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock)
    return clock


@pytest.fixture
def _golden_database(request) -> Iterator[None]:
    """The database that `pytest.mark.golden` names; see tests/golden.py."""
    marker = request.node.get_closest_marker("golden")
    if marker is None or marker.args[0] is None:
        yield
        return
    request.getfixturevalue("django_db_setup")
    with request.getfixturevalue("django_db_blocker").unblock(), golden.database(*marker.args, fill=fill_golden):
        yield


@pytest.fixture(autouse=True)
def _django_db_marker(request, _golden_database) -> None:
    """Replaces the fixture of pytest-django: the test's transaction begins in the database that it asks for."""
    if request.node.get_closest_marker("django_db"):
        request.getfixturevalue("_django_db_helper")


@pytest.fixture
def cast(db) -> Cast:
    return Cast()


@pytest.fixture
def fleet(cast) -> Fleet:
    return make_fleet(cast, "alpha")
