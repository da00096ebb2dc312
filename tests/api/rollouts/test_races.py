"""Concurrent changes of one rollout: one succeeds, the others are refused, and none gets a 500."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable

import pytest
from django.db import connection
from django.utils import timezone

from planner.errors import Conflict
from planner.models import AuditEvent, Fleet, Publication, Rollout
from planner.services.rollouts import freezes
from planner.services.rollouts.starts import fire_schedules, reschedule_rollout, start_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db(transaction=True)

API = "/api/v1"


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What each call gives, all let go at the same moment, each on a connection of its own."""
    gate, found = threading.Barrier(len(calls)), [None] * len(calls)

    def run(n: int) -> None:
        try:
            gate.wait()
            found[n] = calls[n]()
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def poster(client, path, body=None, **headers):
    return lambda: client.post(API + path, body or {}, headers=headers).status_code


def tag(rollout):
    return {"If-Match": f'"{Rollout.objects.get(pk=rollout.pk).version}"'}


@pytest.fixture
def stepped(cast):
    return make.make_fleet(cast, "stepped", canary_weights=[0.1, 0.5], canary_holds_s=[0.0])


@pytest.fixture
def ready(cast, stepped):
    return make.pass_step(make.canary(cast, stepped))


def check(fleet):
    fleet.refresh_from_db()
    states = collections.Counter(fleet.rollouts.values_list("state", flat=True))
    assert states["active"] == 1
    assert states["canary"] + states["scheduled"] <= 1
    assert Publication.objects.filter(fleet=fleet).count() == fleet.table_version
    moved = AuditEvent.objects.filter(fleet=fleet, after__has_key="table_version")
    versions = sorted(event.after["table_version"] for event in moved)
    assert versions == list(range(2, fleet.table_version + 1))  # each change of the table once, by one event


def test_one_of_many_advances_of_a_step_is_made(clients, cast, stepped, ready):
    client, headers = clients.linus, tag(ready)
    statuses = at_once(*[poster(client, f"/rollouts/{ready.pk}/advance/", **headers) for _ in range(6)])
    assert sorted(statuses) == [200, *[412] * 5]
    assert Rollout.objects.get(pk=ready.pk).weight == 0.5
    check(stepped)


@pytest.mark.parametrize("attempt", range(4))
def test_advance_abort_and_fall_back_at_once(clients, cast, stepped, ready, attempt):
    headers = tag(ready)
    advance = poster(clients.linus, f"/rollouts/{ready.pk}/advance/", **headers)
    abort = poster(clients.grace, f"/rollouts/{ready.pk}/abort/", **headers)
    back = poster(clients.root, f"/fleets/{stepped.slug}/fall-back/")
    statuses = at_once(advance, abort, back)
    assert statuses[2] == 200  # never refused
    assert set(statuses[:2]) <= {200, 409, 412}
    assert statuses[:2].count(200) <= 1 or Rollout.objects.get(pk=ready.pk).state == "aborted"
    assert [r.plan.kind for r in stepped.rollouts.filter(state="active")] == ["flat"]
    assert not stepped.rollouts.filter(state="canary").exists()
    check(stepped)


def test_of_many_starts_on_one_fleet_one_is_made(clients, cast, stepped):
    plans = [make.approved_plan(cast, stepped) for _ in range(2)]
    client = clients.linus
    later = (timezone.now() + timezone.timedelta(hours=1)).isoformat()
    bodies = [{"plan": p.pk, **more} for p in plans for more in ({}, {"scheduled_for": later})]
    statuses = at_once(*[poster(client, "/rollouts/", body) for body in bodies])
    assert sorted(statuses) == [201, 409, 409, 409]
    check(stepped)


def test_a_schedule_that_two_beats_fire_starts_once_whatever_else_happens(cast, stepped):
    plan = make.approved_plan(cast, stepped)
    later = timezone.now() + timezone.timedelta(hours=1)
    rollout = start_rollout(acting_user=cast.linus, plan=plan, scheduled_for=later)
    fired = at_once(*[lambda: fire_schedules(now=later) for _ in range(4)])
    assert sorted(len(rows) for rows in fired) == [0, 0, 0, 1]
    assert Rollout.objects.get(pk=rollout.pk).state == "canary"
    assert AuditEvent.objects.filter(action="rollout.started").count() == 1
    check(stepped)


@pytest.mark.parametrize("attempt", range(3))
def test_a_schedule_is_moved_while_it_fires(cast, stepped, attempt):
    plan = make.approved_plan(cast, stepped)
    first, later = (timezone.now() + timezone.timedelta(hours=h) for h in (1, 5))
    rollout = start_rollout(acting_user=cast.linus, plan=plan, scheduled_for=first)

    def move():
        try:
            reschedule_rollout(acting_user=cast.grace, rollout=rollout, scheduled_for=later)
        except Conflict:
            return "late"
        return "moved"

    fired, moved = at_once(lambda: fire_schedules(now=first), move)
    rollout.refresh_from_db()
    # Who was first decides: moved and still scheduled, or started and not moved.
    assert (moved, rollout.state, len(fired)) in (("moved", "scheduled", 0), ("late", "canary", 1))
    check(stepped)


@pytest.mark.parametrize("everywhere", [True, False], ids=["all fleets", "one fleet"])
def test_after_a_freeze_was_answered_nothing_moves(clients, cast, stepped, ready, everywhere):
    """A move that was under way is waited for: no table changes after the freeze is there."""
    headers = tag(ready)

    def freeze():
        freezes.freeze(acting_user=cast.root, fleet=None if everywhere else stepped, reason="holidays")
        return Fleet.objects.get(pk=stepped.pk).table_version

    frozen_at, status = at_once(freeze, poster(clients.linus, f"/rollouts/{ready.pk}/advance/", **headers))
    stepped.refresh_from_db()
    assert status in (200, 409)
    assert stepped.table_version == frozen_at
    check(stepped)


def test_two_roll_backs_and_a_fall_back_at_once(clients, cast, fleet):
    first, second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    third = make.active_plan(cast, fleet)
    path = f"/fleets/{fleet.slug}/"
    statuses = at_once(
        poster(clients.linus, f"{path}roll-back/", {"plan": first.pk, "reason": "x"}),
        poster(clients.grace, f"{path}roll-back/", {"plan": second.pk, "reason": "y"}),
        poster(clients.root, f"{path}fall-back/"),
    )
    assert statuses == [200, 200, 200]
    assert fleet.rollouts.get(plan=third).state == "rolled_back"
    check(fleet)
