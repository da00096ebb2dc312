"""The verdict of a canary's step on telemetry: what counts, what holds, and what never passes."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from planner.errors import Conflict
from planner.models import AuditEvent, DriftCheck, Fleet, Rollout, RolloutAnalysis, TelemetryWindow
from planner.selectors.telemetry import traffic
from planner.services.monitoring.canary_analysis import analyse_step
from planner.services.rollouts.steps import abort_rollout, advance_rollout
from planner.services.telemetry import windows
from tests import factories as make
from tests.traffic import arm_report, minute, window_report

pytestmark = pytest.mark.django_db
POLICY = {
    "canary_weights": [0.1, 0.5],
    "canary_holds_s": [0],
    "canary_warmup_s": 60,
    "canary_min_requests": 500,
}


@pytest.fixture
def canary(cast) -> Rollout:
    """In its first step for an hour."""
    fleet = make.make_fleet(cast, "gamma", **POLICY)
    return make.watched(make.canary(cast, fleet), 3_600)


def before(nth: int = 1) -> dt.datetime:
    """The beginning of the newest window of three minutes, of the one before it, ..."""
    return minute(3 * nth)


def report(cast, rollout, *, canary=None, incumbent=None, started_at=None, **more):
    """Three minutes of 6.7 requests/s (the plan was validated for 8) to both arms; without an arm that is False."""
    fleet = Fleet.objects.get(pk=rollout.fleet_id)
    arms = [
        arm_report(fleet, name, **{"seed": seed, "requests": 600, "p99_s": 1.5, **(options or {})})
        for name, options, seed in (("incumbent", incumbent, 2), ("canary", canary, 3))
        if options is not False
    ]
    payload = window_report(fleet, *arms, **{"started_at": started_at or before(), "seconds": 180, **more})
    return windows.record_windows(acting_user=cast.linus, fleet=fleet, payload=payload)


def test_a_step_whose_arms_are_within_bounds_passes_and_may_be_advanced(cast, canary):
    with pytest.raises(Conflict):
        advance_rollout(acting_user=cast.linus, rollout=canary)
    report(cast, canary)
    found = analyse_step(canary)
    assert found.verdict == "pass", found.explanation
    assert (found.step, found.simulated) == (1, False)
    assert (found.window_start, found.window_end) == (before(), minute(0))
    assert found.numbers["canary"]["requests"] == 600
    assert found.numbers["limits"]["p99_s"] == canary.fleet.slo_p99_s
    assert advance_rollout(acting_user=cast.linus, rollout=canary).weight == 0.5


def test_nothing_new_asks_for_no_other_judgement_and_a_new_window_does(cast, canary):
    report(cast, canary)
    assert analyse_step(canary).numbers["look"] == 1
    assert analyse_step(canary) is None
    report(cast, canary, started_at=before(2))
    second = analyse_step(canary)
    assert (second.numbers["look"], second.numbers["canary"]["requests"]) == (2, 1_200)
    assert AuditEvent.objects.filter(action="rollout.analysed").count() == 1  # the verdict is the same


@pytest.mark.parametrize(
    ("arms", "verdict"),
    [
        ({"canary": {"p99_s": 9.0}}, "fail"),
        ({"canary": {"errors": 100}}, "fail"),
        ({"canary": {"requests": 400}}, "missing"),
        ({"incumbent": {"requests": 400}}, "missing"),
        ({"canary": {"p99_s": 3.4}, "incumbent": {"p99_s": 3.4}}, "inconclusive"),
    ],
)
def test_verdicts_are_kept_apart_and_hold_the_canary(cast, canary, arms, verdict):
    report(cast, canary, **arms)
    assert analyse_step(canary).verdict == verdict
    with pytest.raises(Conflict) as held:
        advance_rollout(acting_user=cast.linus, rollout=canary)
    assert held.value.code == "held"
    event = AuditEvent.objects.get(action="rollout.analysed")
    assert (event.actor_name, event.after["verdict"]) == ("monitor", verdict)


def test_windows_of_the_warm_up_and_of_the_time_before_do_not_count(cast, canary):
    make.watched(canary, 230)
    begins = Rollout.objects.get(pk=canary.pk).step_started_at + dt.timedelta(seconds=60)
    report(cast, canary, canary={"p99_s": 30.0}, started_at=begins - dt.timedelta(seconds=181), source="before")
    report(cast, canary, canary={"p99_s": 30.0}, started_at=begins - dt.timedelta(seconds=1), source="astride")
    assert analyse_step(canary) is None
    report(cast, canary, started_at=begins)
    found = analyse_step(canary)
    assert (found.verdict, found.numbers["windows"]) == ("pass", 2)


def test_windows_of_a_router_that_still_runs_the_table_of_the_step_before_do_not_count(cast, canary):
    report(cast, canary)
    analyse_step(canary)
    old = Fleet.objects.get(pk=canary.fleet_id).table_version
    advance_rollout(acting_user=cast.linus, rollout=canary)
    make.watched(canary, 3_600)
    report(cast, canary, source="lagging", table_version=old, canary={"p99_s": 30.0})
    assert RolloutAnalysis.objects.filter(step=2).count() == 0
    assert analyse_step(canary).verdict == "missing"  # nothing of this step for an hour
    report(cast, canary, source="following")
    found = analyse_step(canary)
    assert (found.step, found.verdict) == (2, "pass")


def test_a_pass_does_not_outlive_silence_and_silence_is_said_once(cast, canary):
    report(cast, canary)
    assert analyse_step(canary).verdict == "pass"
    later = timezone.now() + dt.timedelta(seconds=300)
    silent = analyse_step(canary, now=later)
    assert (silent.verdict, silent.numbers) == ("missing", {"silent": True})
    assert "The last telemetry is of" in silent.explanation
    assert analyse_step(canary, now=later) is None
    with pytest.raises(Conflict):
        advance_rollout(acting_user=cast.linus, rollout=canary)


def test_an_arm_of_which_nothing_is_heard_holds_although_the_fleet_reports(cast, canary):
    report(cast, canary, canary=False)
    found = analyse_step(canary)
    assert found.verdict == "missing"
    assert "No telemetry of the canary" in found.explanation


def test_before_anything_was_reported_the_step_is_missing_once_it_could_have_been(cast, canary):
    TelemetryWindow.objects.all().delete()
    make.watched(canary, 100)
    assert analyse_step(canary) is None
    make.watched(canary, 300)
    found = analyse_step(canary)
    assert (found.verdict, found.explanation[:19]) == ("missing", "No router telemetry")


def test_simulated_windows_count_only_where_the_policy_accepts_them(cast, canary):
    report(cast, canary, simulated=True, started_at=before(2))
    assert analyse_step(canary).verdict == "missing"
    Fleet.objects.filter(pk=canary.fleet_id).update(accept_simulated=True)
    report(cast, canary, simulated=True, started_at=before())
    found = analyse_step(canary)
    assert (found.verdict, found.simulated) == ("pass", True)


def test_measured_and_simulated_windows_are_never_judged_together(cast, canary):
    Fleet.objects.filter(pk=canary.fleet_id).update(accept_simulated=True)
    report(cast, canary, simulated=True, canary={"p99_s": 30.0})
    report(cast, canary, source="router-2")
    found = analyse_step(canary)
    assert (found.verdict, found.simulated, found.numbers["canary"]["requests"]) == ("pass", False, 600)


def test_more_load_than_was_validated_holds_a_canary_that_is_fine(cast, canary):
    report(cast, canary, canary={"requests": 1_200})
    found = analyse_step(canary)
    assert (found.verdict, "above the validated" in found.explanation) == ("inconclusive", True)


def test_late_windows_count(cast, canary):
    report(cast, canary)
    DriftCheck.objects.create(fleet=canary.fleet, plan=canary.incumbent, verdict="within", window_end=timezone.now())
    analyse_step(canary)
    assert report(cast, canary, started_at=before(2)).late
    assert analyse_step(canary).numbers["canary"]["requests"] == 1_200


def test_of_a_step_with_more_windows_than_are_read_both_arms_are_judged_on_the_newest_and_it_says_so(
    cast, canary, monkeypatch
):
    make.watched(canary, 7_200)
    monkeypatch.setattr(traffic, "MAX_WINDOWS", 3)
    for nth in range(5, 0, -1):  # the oldest were bad; of the oldest that is read only the incumbent is there
        report(cast, canary, started_at=before(nth), canary={"p99_s": 30.0} if nth > 3 else {} if nth < 3 else False)
    found = analyse_step(canary)
    assert (found.verdict, found.numbers["windows"]) == ("pass", 5)
    assert found.numbers["read_since"] == (before(3) + dt.timedelta(minutes=3)).isoformat()
    assert found.window_start == before(3)
    assert "uses the newest windows of the step" in found.explanation


def test_a_crash_of_the_analysis_is_an_error_and_no_pass(cast, canary):
    report(cast, canary)
    row = TelemetryWindow.objects.get(arm="canary")
    values = {f.name: getattr(row, f.name) for f in row._meta.fields if f.name not in ("id", "created_at")}
    row.delete()
    TelemetryWindow.objects.create(**{**values, "figures": {**values["figures"], "latency": {"format": "unknown"}}})
    found = analyse_step(canary)
    assert found.verdict == "error"
    assert "ValueError" in found.explanation
    assert analyse_step(canary) is None


def test_a_rollout_that_is_no_canary_is_not_judged(cast, canary):
    abort_rollout(acting_user=cast.linus, rollout=canary)
    assert analyse_step(canary) is None
