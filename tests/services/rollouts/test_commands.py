"""Rollouts from a terminal: the same services, one line or one JSON object."""

import datetime as dt
import io
import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from planner.models import Rollout
from planner.services.rollouts.freezes import freeze
from tests import factories as make

pytestmark = pytest.mark.django_db


def command(*arguments, user="linus"):
    out = io.StringIO()
    call_command(*map(str, arguments), "--user", user, "--json", stdout=out)
    return json.loads(out.getvalue())


@pytest.fixture
def start(fleet):
    return lambda plan, *more: command("start_rollout", plan.number, "--fleet", fleet.slug, *more)


def test_from_start_to_active(cast, fleet, start):
    plan = make.approved_plan(cast, fleet)
    told = start(plan)
    assert (told["state"], told["weight"]) == ("canary", 0.1)
    assert "is not analysed yet" in told["held"][0]
    with pytest.raises(CommandError, match="is held"):
        start(plan, "--advance")
    assert "paused it" in start(plan, "--pause", "--reason", "lunch")["held"][0]
    start(plan, "--resume")
    with pytest.raises(CommandError, match="give a reason"):
        start(plan, "--promote")
    make.pass_step(Rollout.objects.get(pk=told["id"]))
    assert start(plan, "--advance")["state"] == "active"
    with pytest.raises(CommandError, match="has no canary"):
        start(plan, "--abort")


def test_a_schedule_is_made_moved_and_called_off(cast, fleet, start):
    plan, now = make.approved_plan(cast, fleet), timezone.now()
    assert start(plan, "--at", (now + dt.timedelta(hours=1)).isoformat())["state"] == "scheduled"
    later = now + dt.timedelta(hours=2)
    assert start(plan, "--move-to", later.isoformat())["scheduled_for"] == later.isoformat()
    assert start(plan, "--abort", "--reason", "not today")["state"] == "aborted"
    with pytest.raises(CommandError, match="no time zone"):
        start(plan, "--at", "2036-03-14T10:00")


def test_ways_back(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    fleet.refresh_from_db()
    told = command("roll_back", fleet.slug, first.number, "--reason", "p99 up")
    assert told["table_version"] == fleet.table_version + 1
    assert command("fall_back", fleet.slug)["table_version"] == fleet.table_version + 2


def test_freezes(cast, fleet):
    with pytest.raises(CommandError, match="give a reason"):
        command("freeze", fleet.slug)
    assert command("freeze", fleet.slug, "--reason", "holidays")["fleet"] == fleet.slug
    with pytest.raises(CommandError, match="may not manage"):
        command("freeze", "--reason", "holidays")
    assert command("freeze", "--reason", "audit week", user="root")["fleet"] is None
    command("freeze", "--lift", user="root")
    command("freeze", fleet.slug, "--lift")
    assert freeze(acting_user=cast.linus, fleet=fleet, reason="again").pk
    with pytest.raises(CommandError, match="not frozen"):
        command("freeze", "--lift", user="root")
