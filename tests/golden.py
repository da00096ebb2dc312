"""Golden databases: a console as many tests need it, made once a run and cloned for each worker.

A test with ``@pytest.mark.golden("approved")`` runs in a clone that already holds the cast, the fleet "alpha" and what
the state names. The factories are called as ever: the first one that asks for that state of "alpha" gets what is there.
The test's transaction is rolled back, so the clone serves the next test too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from planner.models import Fleet
from tests import databases
from tests.servers import GOLDEN

SLUG = "alpha"
STATES = ("approved", "canary", "active")
_cloned: dict[str, str] = {}  # the clone of each state that this worker has
_here: list[str] = []  # the state of the running test's database, until a factory took it


def _fill(state: str, fill: Callable[[str], None]) -> None:
    fill(state)
    shutil.copytree(settings.ARTIFACTS, _artifacts(state), dirs_exist_ok=True)


def _artifacts(state: str) -> Path:
    """The files of a golden database, for the workers that did not make it, and after tests that lose files."""
    return Path(os.environ[GOLDEN]) / state


def _restore(state: str) -> None:
    kept = _artifacts(state)
    for file in kept.rglob("*"):
        there = settings.ARTIFACTS / file.relative_to(kept)
        if file.is_file() and not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, there)


@contextmanager
def database(state: str, fill: Callable[[str], None]) -> Iterator[None]:
    """Point Django's connection to this worker's clone of the state; `fill` makes the state in the first database."""
    if state not in _cloned:
        databases.provide(state, lambda: _fill(state, fill), source=databases.SCHEMA)
        _cloned[state] = f"{connection.settings_dict['NAME']}_{state}"
        databases.clone(state, _cloned[state])
    with databases.pointed_at(_cloned[state]):
        _restore(state)
        _here[:] = [state]
        try:
            yield
        finally:
            _here.clear()


def drop() -> None:
    """Remove the clones of this worker."""
    while _cloned:
        databases.drop(_cloned.popitem()[1])


def inhabited() -> bool:
    """Whether the cast and the fleet exist already."""
    return User.objects.filter(username="ada").exists()


def take(state: str, fleet: Fleet) -> bool:
    """Whether the fleet has the state from the golden database; true only for the first caller of a test."""
    if _here != [state] or fleet.slug != SLUG:
        return False
    _here.clear()
    return True
