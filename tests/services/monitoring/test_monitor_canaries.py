"""The monitor and canaries: advancing, aborting, and holding them as the policy says."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
from django.db import connection
from django.utils import timezone

from planner.models import AuditEvent, Rollout
from planner.services.monitoring import monitor
from planner.services.rollouts.freezes import freeze
from planner.services.rollouts.steps import pause_rollout
from tests import factories as make
from tests.services.monitoring.rounds import POLICY, STEP, Clock, actions, is_flat, long_ago_clock

pytestmark = pytest.mark.django_db


@pytest.fixture
def canary(cast) -> Clock:
    """A canary in its only step, for an hour."""
    fleet = make.make_fleet(cast, "gamma", **POLICY)
    make.watched(make.canary(cast, fleet), 3_700)
    return long_ago_clock(cast, fleet)


def state(clock) -> str:
    return Rollout.objects.get(fleet=clock.fleet, plan__kind="cacheroute").state


def test_a_step_that_passed_waits_for_a_person_unless_the_policy_says_otherwise(canary, cast):
    canary.round(canary={})
    assert state(canary) == "canary"
    assert actions(canary.fleet) == ["rollout.analysed"]


def test_a_step_that_passed_is_advanced_where_the_policy_says_so(cast):
    fleet = make.make_fleet(cast, "gamma", **POLICY, auto_advance=True)
    make.watched(make.canary(cast, fleet), 3_700)
    clock = long_ago_clock(cast, fleet)
    clock.now = timezone.now() - STEP  # the gate wants telemetry that is fresh by the clock on the wall
    clock.round(canary={})
    assert state(clock) == "active"
    assert actions(fleet) == ["rollout.analysed", "rollout.activated"]
    assert AuditEvent.objects.get(action="rollout.activated").actor is None


def test_a_step_that_failed_is_aborted(canary):
    canary.round(canary={"errors": 90})
    assert state(canary) == "aborted"
    event = AuditEvent.objects.get(action="rollout.aborted")
    assert (event.actor_name, event.reason[:13]) == ("monitor", "step 1 failed")
    assert is_flat(canary.fleet)


def test_a_step_that_failed_stays_where_the_policy_says_so(cast):
    fleet = make.make_fleet(cast, "gamma", **POLICY, auto_abort=False)
    make.watched(make.canary(cast, fleet), 3_700)
    clock = long_ago_clock(cast, fleet)
    clock.round(canary={"errors": 90})
    assert state(clock) == "canary"


@pytest.mark.parametrize("hold", ["silent", "paused", "frozen", "watching"])
def test_nothing_is_advanced_while_something_holds_it(cast, hold):
    policy = {**POLICY, "auto_advance": True, "canary_holds_s": [600] if hold == "watching" else [0]}
    fleet = make.make_fleet(cast, "gamma", **policy)
    rollout = make.canary(cast, fleet)
    if hold != "watching":
        make.watched(rollout, 3_700)
    clock = long_ago_clock(cast, fleet)
    clock.now = timezone.now() - STEP
    if hold == "paused":
        pause_rollout(acting_user=cast.linus, rollout=rollout)
    if hold == "frozen":
        freeze(acting_user=cast.root, fleet=fleet, reason="holidays")
    if hold == "silent":
        clock.now -= dt.timedelta(minutes=8)
        clock.round(canary={}, look=False)
        clock.now += dt.timedelta(minutes=6)
        assert clock.round(report=False).verdict == "silent"
    else:
        clock.round(canary={})
    assert state(clock) == "canary"


@pytest.mark.django_db(transaction=True)
def test_of_two_monitors_at_once_one_acts(cast):
    fleet = make.make_fleet(cast, "gamma", **POLICY, breaches_to_fall_back=1)
    make.active_plan(cast, fleet)
    clock = long_ago_clock(cast, fleet)
    clock.round(look=False, p99_s=9.0)
    found = []

    def watch():
        try:
            found.append(monitor.watch_fleet(clock.fleet, now=clock.now))
        finally:
            connection.close()

    threads = [threading.Thread(target=watch) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Later calls found the first one running, or its windows judged already.
    assert [check.verdict for check in found if check is not None and check.verdict == "left"] == ["left"]
    assert AuditEvent.objects.filter(action="fleet.fell_back").count() == 1
    assert is_flat(fleet)
