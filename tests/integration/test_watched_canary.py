"""A canary from its start to the end that it deserves: simulated traffic, the monitor and the policy, minute by minute.

Beat's tasks are called as a worker calls them; only the clock on the wall is moved on, so that an hour takes seconds.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pgtrigger
import pytest
from django.utils import timezone

from planner import artifacts
from planner.errors import Conflict, Refused
from planner.models import AuditEvent, DriftCheck, Fleet, Plan, Rollout, RolloutAnalysis, TelemetryWindow
from planner.services.fleets.destinations import change_destination
from planner.services.rollouts.starts import start_rollout
from planner.tasks import simulate_traffic, watch_fleets
from tests import factories as make

pytestmark = pytest.mark.django_db(transaction=True)
POLICY = {
    "accept_simulated": True,
    "simulated_traffic": True,
    "canary_weights": [0.5, 0.7],
    "canary_holds_s": [120],
    "canary_warmup_s": 60,
    "canary_min_requests": 300,
    "auto_advance": True,
    "cool_down_s": 600,
}


class Minutes:
    """A clock that starts at a fixed time, so that each run has the same traffic, and the work of beat each minute."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = dt.datetime(2026, 3, 2, 12, 0, 30, tzinfo=dt.UTC)
        patch.setattr(timezone, "now", lambda: self.now)

    def run(self, count: int, *, until=lambda: False, reported: bool = True) -> int:
        """So many minutes, or fewer when something has come about; how many it took."""
        for minute in range(1, count + 1):
            self.now += dt.timedelta(minutes=1)
            if reported:
                simulate_traffic()
            watch_fleets()
            if until():
                return minute
        return count


@pytest.fixture
def minutes(monkeypatch) -> Minutes:
    return Minutes(monkeypatch)


@pytest.fixture
def sample(cast, minutes) -> Fleet:
    """A fleet whose traffic is simulated and watched, with an approved plan."""
    fleet = make.make_fleet(cast, "sample", **POLICY)
    make.make_workload(cast, fleet)
    minutes.run(2)
    make.approved_plan(cast, fleet)
    return fleet


def plan_of(fleet: Fleet) -> Plan:
    return Plan.objects.get(fleet=fleet, kind="cacheroute")


def start(cast, fleet) -> Rollout:
    return start_rollout(acting_user=cast.linus, plan=plan_of(fleet))


def state(fleet: Fleet) -> str:
    return Rollout.objects.filter(fleet=fleet, plan=plan_of(fleet)).latest("id").state


def live_plan(fleet: Fleet) -> str:
    return fleet.rollouts.get(state="active").plan.kind


def acts(fleet: Fleet) -> list[str]:
    """What the monitor did, without its judgements."""
    events = AuditEvent.objects.filter(fleet=fleet, actor_name="monitor").exclude(action="rollout.analysed")
    return list(events.order_by("id").values_list("action", flat=True))


def test_a_good_canary_becomes_active_step_by_step_without_anybody(cast, sample, minutes):
    rollout = start(cast, sample)
    took = minutes.run(40, until=lambda: state(sample) != "canary")
    assert state(sample) == "active", list(rollout.analyses.values_list("verdict", "explanation")[:3])
    assert acts(sample)[-2:] == ["rollout.advanced", "rollout.activated"]
    steps = list(rollout.steps.values_list("weight", "entered_by"))
    assert steps == [(0.5, cast.linus.pk), (0.7, None), (1.0, None)]
    # A step was never left before it was watched for its time, and passed on simulated traffic that says so.
    entered = list(rollout.steps.values_list("entered_at", flat=True))
    assert all(after - before >= dt.timedelta(seconds=120) for before, after in pairwise(entered))
    passed = RolloutAnalysis.objects.filter(rollout=rollout, verdict="pass")
    assert set(passed.values_list("step", "simulated")) == {(1, True), (2, True)}
    assert took >= 4
    # Then the monitor holds it against its validated range, on its own keys.
    checks = DriftCheck.objects.filter(fleet=sample, plan=plan_of(sample))
    minutes.run(5, until=lambda: checks.filter(verdict="within", simulated=True).exists())
    assert set(checks.values_list("verdict", flat=True)) <= {"missing", "within"}  # missing in the warm-up
    assert checks.latest("id").verdict == "within"
    arms = TelemetryWindow.objects.filter(fleet=sample, plan=plan_of(sample)).values_list("arm", flat=True)
    assert set(arms) == {"canary", "incumbent"}


def send_all_keys_to_one_destination(fleet) -> None:
    """What is shipped is not what was replayed (past the trigger that forbids it): every planned key on one place."""
    plan = plan_of(fleet)
    table, names = artifacts.load_table(plan.table)
    count = len(table.admitted)
    worse = replace(
        table,
        members=np.zeros(count, dtype=np.int32),
        offsets=np.arange(count + 1),
        replicas=np.ones(count, dtype=np.int64),
    )
    with pgtrigger.ignore():
        Plan.objects.filter(pk=plan.pk).update(table=artifacts.store_table(worse, names))


def test_a_canary_that_serves_badly_is_aborted_and_the_incumbent_stays(cast, sample, minutes):
    rollout = start(cast, sample)
    send_all_keys_to_one_destination(sample)
    took = minutes.run(20, until=lambda: state(sample) != "canary")
    assert (state(sample), live_plan(sample)) == ("aborted", "flat")
    assert took <= 10
    event = AuditEvent.objects.get(action="rollout.aborted")
    assert event.actor_name == "monitor"
    assert event.reason.startswith("step 1 failed: ")
    assert rollout.analyses.first().verdict == "fail"
    # Off traffic at once: the next minute is the incumbent's alone.
    minutes.run(2)
    newest = TelemetryWindow.objects.filter(fleet=sample).latest("ended_at")
    assert (newest.arm, newest.table_version) == ("incumbent", Fleet.objects.get(pk=sample.pk).table_version)


def test_a_range_that_is_left_three_times_falls_back_and_the_next_start_waits(cast, sample, minutes):
    start(cast, sample)
    minutes.run(40, until=lambda: state(sample) != "canary")
    assert live_plan(sample) == "cacheroute"
    minutes.run(3)
    # Three of four destinations are lost: what is left cannot keep the p99.
    for destination in sample.destinations.filter(index__gt=0):
        change_destination(acting_user=cast.linus, destination=destination, state="down")
    took = minutes.run(10, until=lambda: live_plan(sample) == "flat")
    assert live_plan(sample) == "flat"
    assert took >= 3
    left = DriftCheck.objects.filter(fleet=sample, verdict="left").order_by("id")
    assert [check.figures["breaches_in_a_row"] for check in left] == [1, 2, 3]
    assert acts(sample)[-2:] == ["fleet.out_of_range", "fleet.fell_back"]
    assert state(sample) == "rolled_back"
    with pytest.raises(Conflict) as refused:
        start(cast, sample)
    assert refused.value.code == "cooling-down"
    # Traffic goes on by Flat-LB, over the one that is left.
    minutes.run(1)
    newest = TelemetryWindow.objects.filter(fleet=sample).latest("ended_at")
    assert newest.plan.kind == "flat"
    assert [d["index"] for d in newest.figures["destinations"]] == [0]
    # After the cool-down it is refused for what it is now: the evidence does not hold any more.
    minutes.run(10, reported=False)
    with pytest.raises(Refused) as refused:
        start(cast, sample)
    assert refused.value.code != "cooling-down"


def test_a_canary_of_which_nothing_is_heard_is_held_and_goes_on_when_it_is_heard_again(cast, sample, minutes):
    rollout = start(cast, sample)
    minutes.run(20, until=lambda: rollout.steps.count() == 2)
    minutes.run(8, reported=False)
    assert (state(sample), rollout.steps.count()) == ("canary", 2)
    newest = rollout.analyses.first()
    assert (newest.step, newest.verdict, newest.numbers) == (2, "missing", {"silent": True})
    assert DriftCheck.objects.filter(fleet=sample).latest("id").verdict == "silent"
    assert acts(sample)[-1] == "fleet.telemetry_silent"
    minutes.run(30, until=lambda: state(sample) == "active")
    assert state(sample) == "active"
    assert acts(sample)[-2:] == ["fleet.telemetry_resumed", "rollout.activated"]
