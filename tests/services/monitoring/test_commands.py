"""`check_drift` and the tasks of beat."""

from __future__ import annotations

import json

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from planner import tasks
from planner.models import DriftCheck, TelemetryWindow, audit_chain
from planner.services.base import locking
from planner.services.monitoring import monitor
from planner.services.telemetry import windows
from tests import factories as make
from tests.traffic import arm_report, minute, window_report

pytestmark = pytest.mark.django_db


def test_check_drift_says_what_the_monitor_finds_now(cast, fleet, capsys):
    windows.record_windows(acting_user=cast.linus, fleet=fleet, payload=window_report(fleet))
    call_command("check_drift", "alpha", "--user", "linus", "--json")
    said = json.loads(capsys.readouterr().out)
    check = DriftCheck.objects.get()
    assert said == {
        "check": check.pk, "verdict": check.verdict, "explanation": check.explanation, "simulated": False,
        "breaches": [], "breaches_in_a_row": 0,
    }  # fmt: skip


def test_check_drift_ends_with_status_1_when_the_range_is_left(cast, fleet, capsys):
    make.active_plan(cast, fleet)
    fleet.refresh_from_db()
    fleet.rollouts.filter(state="active").update(activated_at=minute(60))
    # Ten times the load that was replayed, in the window that ended last.
    report = window_report(fleet, arm_report(fleet, requests=3_600), started_at=minute(1), seconds=45)
    windows.record_windows(acting_user=cast.linus, fleet=fleet, payload=report)
    with pytest.raises(SystemExit) as ended:
        call_command("check_drift", "alpha", "--user", "linus")
    assert ended.value.code == 1
    assert "outside the validated range" in capsys.readouterr().out


def test_check_drift_needs_the_right_to_operate(cast, fleet):
    with pytest.raises(CommandError, match="may not operate"):
        call_command("check_drift", "alpha", "--user", "vera")


def test_simulate_traffic_is_refused_for_a_fleet_that_is_served(cast, fleet):
    with pytest.raises(CommandError, match="no fleet of simulated traffic"):
        call_command("simulate_traffic", "--fleet", "alpha", "--user", "linus")


def test_beat_calls_tasks_that_there_are():
    names = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {"planner.watch_fleets", "planner.simulate_traffic", "planner.prune_telemetry"} <= names
    known = {task.name for task in vars(tasks).values() if hasattr(task, "name") and hasattr(task, "delay")}
    assert {name for name in names if name.startswith("planner.")} <= known
    assert settings.CELERY_BEAT_SCHEDULE["watch-fleets"]["schedule"] == 60.0


def test_the_task_looks_at_every_fleet(cast, fleet):
    other = make.make_fleet(cast, "beta")
    tasks.watch_fleets()
    assert set(DriftCheck.objects.values_list("fleet", flat=True)) == {fleet.pk, other.pk}
    tasks.watch_fleets()
    assert DriftCheck.objects.count() == 2  # one check a minute


def test_the_task_prunes(cast, fleet):
    windows.record_windows(acting_user=cast.linus, fleet=fleet, payload=window_report(fleet))
    tasks.prune_telemetry()
    assert TelemetryWindow.objects.count() == 1


def test_advisory_locks_of_different_kinds_never_meet():
    spaces = [getattr(locking, name) for name in dir(locking) if name.endswith("_SPACE")] + [audit_chain.CHAIN_SPACE]
    assert len(set(spaces)) == len(spaces)
    assert monitor.MONITOR_SPACE in spaces
