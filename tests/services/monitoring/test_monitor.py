"""The monitor: checks against the validated range, silence, and falling back."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import Conflict
from planner.models import AuditEvent, DriftCheck, Fleet, Plan
from planner.selectors.monitoring.cool_down import cooling_down_until
from planner.selectors.monitoring.queries import last_ran
from planner.services.fleets import fleets
from planner.services.monitoring import monitor
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.rollback import roll_back
from planner.services.rollouts.starts import start_rollout
from planner.services.telemetry import windows
from tests import factories as make
from tests.services.monitoring.rounds import POLICY, STEP, Clock, actions, is_flat, long_ago_clock
from tests.traffic import arm_report, window_report

pytestmark = pytest.mark.django_db


@pytest.fixture
def live(cast) -> Clock:
    """A plan is active on the fleet, for hours."""
    fleet = make.make_fleet(cast, "gamma", **POLICY)
    make.active_plan(cast, fleet)
    return long_ago_clock(cast, fleet)


def test_traffic_within_the_range_is_said_with_its_figures(live):
    check = live.round()
    assert (check.verdict, check.simulated) == ("within", False), check.explanation
    assert (check.rollout.state, check.plan.kind) == ("active", "cacheroute")
    assert check.figures["load"]["rps"] == pytest.approx(6.0)
    assert check.figures["p99_s"]["low"] < 1.6 < 1.5 * check.figures["p99_s"]["high"]
    assert check.figures["versions"] == {"router-1": live.fleet.table_version}
    assert check.figures["limits"]["load_high_rps"] == 8.0
    assert actions(live.fleet) == []


@pytest.mark.parametrize(
    ("figures", "breach"),
    [
        ({"p99_s": 9.0}, "p99"),
        ({"errors": 100}, "errors"),
        ({"spread": [720, 0, 0, 0]}, "imbalance"),
        ({"requests": 1_440}, "load"),
        ({"keys": {f"k{at}": 1 for at in range(300)}}, "active_keys"),
    ],
)
def test_each_figure_of_the_range_can_be_left(live, figures, breach):
    check = live.round(**figures)
    assert (check.verdict, check.figures["breaches"]) == ("left", [breach]), check.explanation
    assert actions(live.fleet) == ["fleet.out_of_range"]


def test_less_load_than_was_replayed_is_said_and_is_no_breach(live):
    check = live.round(requests=240)
    assert (check.verdict, "below the lowest" in check.explanation) == ("within", True)


def test_few_requests_above_a_limit_show_nothing(live):
    # 3 of 90 failed: 3.3%, but anything from 0.7%.
    assert live.round(requests=90, errors=3).verdict == "within"


def test_three_breaches_in_a_row_fall_back_and_cool_down(live, cast):
    version = Fleet.objects.get(pk=live.fleet.pk).table_version
    assert [live.round(p99_s=9.0).figures["breaches_in_a_row"] for _ in range(2)] == [1, 2]
    assert not is_flat(live.fleet)
    check = live.round(p99_s=9.0)
    assert is_flat(live.fleet)
    fleet = Fleet.objects.get(pk=live.fleet.pk)
    assert fleet.table_version == version + 1
    event = AuditEvent.objects.get(action="fleet.fell_back")
    assert (event.actor, event.actor_name) == (None, "monitor")
    assert event.reason.startswith("3 checks in a row outside the validated range: p99 ")
    assert check.figures["breaches_in_a_row"] == 3
    assert actions(fleet) == ["fleet.out_of_range", "fleet.fell_back"]
    plan = (
        make.plan_of(fleet) if hasattr(make, "plan_of") else Plan.objects.filter(fleet=fleet, kind="cacheroute").get()
    )
    with pytest.raises(Conflict) as refused:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert refused.value.code == "cooling-down"
    until = cooling_down_until(fleet)
    assert until == event.created_at + dt.timedelta(seconds=fleet.cool_down_s)
    assert cooling_down_until(fleet, until) is None
    # Flat-LB is watched on, and has nothing to leave.
    assert live.round(p99_s=9.0).verdict == "within"


def test_a_fallback_by_a_person_starts_no_cool_down(live, cast):
    fall_back(acting_user=cast.linus, fleet=live.fleet, reason="drill")
    assert cooling_down_until(live.fleet) is None


def test_a_check_within_starts_the_count_anew(live):
    for bad in (True, True, False, True, True):
        live.round(p99_s=9.0 if bad else 1.5)
    assert not is_flat(live.fleet)
    assert actions(live.fleet) == ["fleet.out_of_range", "fleet.back_in_range", "fleet.out_of_range"]


def test_silent_and_missing_checks_are_neither_breach_nor_pass(live):
    live.round(p99_s=9.0)
    live.round(p99_s=9.0)
    silent = [live.round(report=False).verdict for _ in range(4)]
    assert silent == ["missing", "silent", "silent", "silent"]
    assert not is_flat(live.fleet)
    assert live.round(requests=0).verdict == "missing"
    assert not is_flat(live.fleet)
    live.round(p99_s=9.0)  # the third that was outside
    assert is_flat(live.fleet)
    assert actions(live.fleet) == [
        "fleet.out_of_range", "fleet.telemetry_silent", "fleet.telemetry_resumed", "fleet.fell_back",
    ]  # fmt: skip


def test_a_fleet_of_which_nothing_ever_came_is_silent_without_having_fallen_silent(live):
    assert [live.round(report=False).verdict for _ in range(2)] == ["silent", "silent"]
    assert actions(live.fleet) == []


def test_where_the_policy_does_not_fall_back_the_range_is_only_said_to_be_left(live, cast):
    fleets.change_policy(acting_user=cast.root, fleet=live.fleet, auto_fall_back=False)
    for _ in range(5):
        live.round(p99_s=9.0)
    assert not is_flat(live.fleet)
    assert actions(live.fleet) == ["fleet.out_of_range"]


def test_breaches_of_the_plan_before_do_not_count_against_the_next(live, cast):
    live.round(p99_s=9.0)
    live.round(p99_s=9.0)
    fall_back(acting_user=cast.linus, fleet=live.fleet)
    plan = Plan.objects.filter(fleet=live.fleet, kind="cacheroute").get()
    roll_back(acting_user=cast.linus, fleet=live.fleet, plan=plan, reason="back again")
    live.fleet.rollouts.filter(state="active").update(activated_at=timezone.now() - dt.timedelta(hours=4))
    assert live.round(p99_s=9.0).figures["breaches_in_a_row"] == 1
    assert not is_flat(live.fleet)


def test_cold_caches_after_an_activation_are_not_held_against_the_plan(live, cast):
    fleets.change_policy(acting_user=cast.root, fleet=live.fleet, canary_warmup_s=300)
    live.fleet.rollouts.filter(state="active").update(activated_at=live.now)
    assert [live.round(p99_s=9.0).verdict for _ in range(3)] == ["missing", "missing", "missing"]
    assert live.round(p99_s=9.0).verdict == "left"


def test_simulated_traffic_of_a_fleet_that_wants_measured_is_silence(live):
    assert live.round(simulated=True).verdict == "silent"


def test_simulated_traffic_where_it_is_accepted_is_judged_and_labelled(live):
    Fleet.objects.filter(pk=live.fleet.pk).update(accept_simulated=True)
    check = live.round(simulated=True)
    assert (check.verdict, check.simulated) == ("within", True)
    # Measured windows beside them are judged alone.
    live.round(look=False, simulated=True, p99_s=9.0)
    live.now -= STEP
    check = live.round(source="router-2")
    assert (check.verdict, check.simulated) == ("within", False)


def test_each_window_is_judged_once(live):
    live.round(p99_s=9.0)
    live.now += dt.timedelta(seconds=40)
    assert monitor.watch_fleet(live.fleet, now=live.now).verdict == "missing"


def test_beat_that_fires_twice_makes_one_check(live):
    live.round(report=False)
    again = live.now + dt.timedelta(seconds=20)
    assert monitor.watch_fleet(live.fleet, now=again) is None
    assert monitor.watch_fleet(live.fleet, now=again, by_hand=True) is not None
    assert DriftCheck.objects.count() == 2


def test_a_check_by_hand_is_no_sign_of_a_monitor_that_runs(live):
    live.round(look=False)
    by_hand = monitor.watch_fleet(live.fleet, now=live.now, by_hand=True)
    assert (by_hand.verdict, by_hand.by_hand) == ("within", True)
    assert last_ran(live.fleet) is None
    # Nor does it take the minute's check away.
    check = monitor.watch_fleet(live.fleet, now=live.now + dt.timedelta(seconds=20))
    assert last_ran(live.fleet) == check.created_at


def test_the_monitor_of_one_fleet_is_no_sign_of_another_being_watched(live, cast):
    other = make.make_fleet(cast, "omega")
    check = live.round()
    assert (last_ran(live.fleet), last_ran(other)) == (check.created_at, None)


# --- Late windows ---------------------------------------------------------------------------------------
def late_round(clock, delay_s=90, **figures):
    """A minute in which a router reports what it served until `delay_s` ago; the check at its end."""
    clock.now += dt.timedelta(minutes=1)
    fleet = clock.fleet = Fleet.objects.get(pk=clock.fleet.pk)
    arm = arm_report(fleet, **{"requests": 360, "p99_s": 1.5, **figures})
    start = clock.now - dt.timedelta(seconds=delay_s + 60)
    found = windows.record_windows(
        acting_user=clock.cast.linus, fleet=fleet, payload=window_report(fleet, arm, started_at=start)
    )
    return found.late, monitor.watch_fleet(fleet, now=clock.now)


def test_a_router_that_always_reports_late_is_watched_and_falls_back(live):
    live.round(report=False)
    found = [late_round(live, p99_s=9.0) for _ in range(3)]
    assert [late for late, _ in found] == [True] * 3
    assert [(check.verdict, check.figures["breaches_in_a_row"]) for _, check in found] == [
        ("left", 1), ("left", 2), ("left", 3),
    ]  # fmt: skip
    assert [check.figures["late_windows"] for _, check in found] == [1] * 3
    assert is_flat(live.fleet)


def test_a_late_window_is_judged_once(live):
    live.round()
    assert late_round(live, delay_s=200)[1].figures["requests"] == 360
    live.now += dt.timedelta(seconds=40)
    assert monitor.watch_fleet(live.fleet, now=live.now).verdict == "missing"


def test_windows_of_long_ago_call_for_nothing_now(live):
    live.round()
    late, check = late_round(live, delay_s=700, p99_s=9.0)
    assert (late, check.verdict) == (True, "missing")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 500), min_size=1, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_every_window_is_judged_exactly_once_whenever_it_comes(live, delays, by_hand):
    """A router reports with any delay, another at once; checks each minute, some of them by hand too."""
    base, judged = timezone.now() - dt.timedelta(minutes=30), []
    fleet = Fleet.objects.get(pk=live.fleet.pk)

    def report(source, requests, at, delay_s):
        arm = arm_report(fleet, requests=requests)
        start = at - dt.timedelta(seconds=delay_s + 60)
        payload = window_report(fleet, arm, started_at=start, source=source)
        windows.record_windows(acting_user=live.cast.linus, fleet=fleet, payload=payload)

    with transaction.atomic():
        monitor.watch_fleet(fleet, now=base)
        for turn in range(len(delays) + 2):
            now = base + dt.timedelta(minutes=turn + 1)
            if turn < len(delays):
                report(f"router-{turn}", 40, now, delays[turn])
            report("prompt", 1, now, 0)
            for seconds in [0, 20] if turn < len(delays) and by_hand[turn] else [0]:
                when = now + dt.timedelta(seconds=seconds)
                check = monitor.watch_fleet(fleet, now=when, by_hand=seconds > 0)
                judged.append(check.figures.get("requests", 0))
        transaction.set_rollback(True)
    assert sum(judged) == 40 * len(delays) + len(delays) + 1  # the last of the prompt one is not due yet


def test_what_came_in_a_silence_is_judged_when_the_fleet_is_heard_again(live):
    live.round()
    live.now += dt.timedelta(minutes=4)
    assert late_round(live, delay_s=250)[1].verdict == "silent"
    check = live.round(requests=100, source="router-2")
    assert check.figures["requests"] == 460
