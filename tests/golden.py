"""Golden databases: a console as many tests need it, made once a run and cloned for each worker.

A test with ``@pytest.mark.golden("approved")`` runs in a clone that already holds the cast, the fleet "alpha" and what
the state names. The factories are called as ever: the first one that asks for that state of "alpha" gets what is there.
The test's transaction is rolled back, so the clone serves the next test too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.utils import timezone

from planner.models import DriftCheck, Fleet, Rollout, TelemetryWindow
from tests import databases
from tests.servers import GOLDEN

SLUG = "alpha"
STATES = ("approved", "canary", "active")
_cloned: dict[str, str] = {}  # the clone of each state that this worker has
_here: list[str] = []  # the state of the running test's database, until a factory took it


def _fill(state: str) -> None:
    from tests import factories as make

    cast = make.Cast()
    fleet = make.make_fleet(cast, SLUG)
    {"approved": make.approved_plan, "canary": make.canary, "active": make.active_plan}[state](cast, fleet)
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
def database(state: str) -> Iterator[None]:
    """Django's connection goes to this worker's clone of the state."""
    if state not in _cloned:
        databases.provide(state, lambda: _fill(state), source=databases.SCHEMA)
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
    """Whether the cast and the fleet are there already."""
    from django.contrib.auth.models import User

    return User.objects.filter(username="ada").exists()


def take(state: str, fleet: Fleet) -> bool:
    """Whether the fleet has it from the golden database, for the first that asks; as if it had been made just now."""
    from tests.factories import hear

    if _here != [state] or fleet.slug != SLUG:
        return False
    _here.clear()
    now = timezone.now()
    TelemetryWindow.objects.filter(fleet=fleet).delete()
    DriftCheck.objects.filter(fleet=fleet).delete()
    hear(fleet)
    Rollout.objects.filter(fleet=fleet, state="canary").update(step_started_at=now)
    Rollout.objects.filter(fleet=fleet, state="active").update(activated_at=now)
    return True
