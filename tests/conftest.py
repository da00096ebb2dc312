"""Fixtures that every room of the tests shares."""

from __future__ import annotations

import pgtrigger
import pytest
from django.test import TransactionTestCase

from planner.models import Fleet
from tests.factories import Cast, make_fleet


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


@pytest.fixture
def cast(db) -> Cast:
    return Cast()


@pytest.fixture
def fleet(cast) -> Fleet:
    return make_fleet(cast, "alpha")
