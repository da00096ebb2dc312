"""Taking in windows: once each, in any order, resolved to plans, and what cannot be true is refused."""

from __future__ import annotations

import copy
import datetime as dt
import threading

import numpy as np
import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.utils import timezone

from planner.analysis.latency import LatencySketch
from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import AuditEvent, DriftCheck, Fleet, TelemetryWindow
from planner.selectors.access import rights
from planner.services.access import roles
from planner.services.access.break_glass import open_break_glass
from planner.services.fleets.destinations import add_destinations
from planner.services.rollouts.starts import start_rollout
from planner.services.telemetry import windows
from tests import factories as make
from tests.traffic import arm_report, minute, window_report

pytestmark = pytest.mark.django_db


def record(cast, fleet, report):
    return windows.record_windows(acting_user=cast.linus, fleet=fleet, payload=report)


def test_a_window_is_stored_with_the_plan_behind_its_arm(cast, fleet):
    found = record(cast, fleet, window_report(fleet, arm_report(fleet, requests=1_000, errors=7)))
    (row,) = TelemetryWindow.objects.all()
    assert found.windows == (row,)
    assert (found.duplicate, found.late) == (False, False)
    assert row.plan == fleet.plans.get(kind="flat")
    assert (row.arm, row.source, row.requests, row.errors, row.simulated) == ("incumbent", "router-1", 1_000, 7, False)
    assert row.figures["prompt_tokens"] == 1_000_000
    assert row.figures["cached_tokens"] == 800_000
    assert LatencySketch.from_payload(row.figures["latency"]).n == 993
    assert [d["requests"] for d in row.figures["destinations"]] == [250] * 4
    assert row.figures["destinations"][0]["p99_s"] > row.figures["destinations"][0]["p50_s"] > 0


def test_destinations_go_by_name_or_index_and_latencies_by_sketch_or_sample(cast, fleet):
    named, indexed = arm_report(fleet), arm_report(fleet)
    for at, row in enumerate(indexed["destinations"]):
        del row["name"]
        row["index"] = at
    indexed["destinations"].reverse()
    record(cast, fleet, window_report(fleet, named))
    # The same report in another form and order is the same report.
    assert record(cast, fleet, window_report(fleet, indexed)).duplicate
    sample = {"name": "incumbent", "destinations": [{"index": 2, "requests": 3, "sample_s": [0.1, 0.2, 0.3]}]}
    found = record(cast, fleet, window_report(fleet, sample, started_at=minute(5)))
    sketch = LatencySketch.from_payload(found.windows[0].figures["latency"])
    assert sketch == LatencySketch.from_samples([0.1, 0.2, 0.3])


def test_the_same_window_again_is_counted_once(cast, fleet):
    report = window_report(fleet, keys={"tenant-a": 600})
    first = record(cast, fleet, report)
    again = record(cast, fleet, copy.deepcopy(report))
    assert (again.duplicate, again.windows) == (True, first.windows)
    assert again.as_dict() | {"windows": []} == {
        "windows": [], "recorded": 0, "duplicates": 1, "late": False, "dropped_keys": 0,
    }  # fmt: skip
    assert TelemetryWindow.objects.count() == 1


@pytest.mark.parametrize(
    "change", [{"arms": "other"}, {"keys": {"tenant-a": 1}}, {"simulated": True}, {"table_version": 2}]
)
def test_the_same_window_with_other_content_is_refused(cast, fleet, change):
    record(cast, fleet, window_report(fleet))
    add_destinations(acting_user=cast.root, fleet=fleet, destinations=[("d9", "http://127.0.0.1:1")])
    change = {"arms": [arm_report(fleet, requests=1_201)]} if "arms" in change else change
    with pytest.raises(Conflict) as refused:
        record(cast, fleet, {**window_report(fleet), **change})
    assert refused.value.code == "revised"
    assert TelemetryWindow.objects.count() == 1


@pytest.mark.parametrize("shift_s", [-59, -1, 1, 59])
def test_windows_of_one_source_do_not_overlap(cast, fleet, shift_s):
    start = minute(10)
    record(cast, fleet, window_report(fleet, started_at=start))
    shifted = start + dt.timedelta(seconds=shift_s)
    with pytest.raises(Conflict) as refused:
        record(cast, fleet, window_report(fleet, started_at=shifted))
    assert refused.value.code == "overlaps"
    # Another router has windows of its own, and neighbours touch.
    record(cast, fleet, window_report(fleet, started_at=shifted, source="router-2"))
    record(cast, fleet, window_report(fleet, started_at=start + dt.timedelta(seconds=60)))
    assert TelemetryWindow.objects.count() == 3


def test_a_longer_window_from_the_same_start_overlaps(cast, fleet):
    start = minute(10)
    record(cast, fleet, window_report(fleet, started_at=start))
    with pytest.raises(Conflict) as refused:
        record(cast, fleet, window_report(fleet, started_at=start, seconds=120))
    assert refused.value.code == "overlaps"


def test_windows_come_in_any_order_and_late_ones_are_marked(cast, fleet):
    record(cast, fleet, window_report(fleet, started_at=minute(2)))
    before = record(cast, fleet, window_report(fleet, started_at=minute(4)))
    assert not before.late
    DriftCheck.objects.create(
        fleet=fleet, plan=fleet.plans.get(), verdict="within", window_start=minute(9), window_end=minute(2)
    )
    late = record(cast, fleet, window_report(fleet, started_at=minute(3)))
    timely = record(cast, fleet, window_report(fleet, started_at=minute(1)))
    assert (late.late, timely.late) == (True, False)
    assert record(cast, fleet, window_report(fleet, started_at=minute(3))).late  # a repeat says what the first said
    assert TelemetryWindow.objects.filter(late=True).get().started_at == minute(3)


def test_of_many_keys_the_busiest_are_kept_and_the_rest_is_counted(cast, fleet):
    keys = {f"key-{at:04}": 2_500 - at for at in range(2_500)} | {"idle": 0}
    report = window_report(fleet, arm_report(fleet, requests=sum(keys.values())), keys=keys)
    found = record(cast, fleet, report)
    figures = found.windows[0].figures
    assert found.dropped_keys == 500
    assert list(figures["keys"].items())[:2] == [("key-0000", 2_500), ("key-0001", 2_499)]
    assert len(figures["keys"]) == 2_000
    assert (figures["active_keys"], figures["dropped_keys"]) == (2_500, 500)
    assert figures["dropped_requests"] == sum(range(1, 501))
    assert figures["key_requests"] == sum(keys.values())


def bad(**change):
    """A change of the first destination's figures."""
    return lambda report: report["arms"][0]["destinations"][0].update(change)


def drop(*names):
    return lambda report: [report["arms"][0]["destinations"][0].pop(name) for name in names]


SKETCH = {"format": "cacheroute.sketch/1", "buckets": {"5": 1}}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda r: r.update(table_version=99), "table_version"),
        (lambda r: r.update(source=" router"), "source"),
        (lambda r: r.update(source=""), "source"),
        (lambda r: r.update(source="simulator"), "source"),
        (lambda r: r.update(arms=[]), "arms"),
        (lambda r: r["arms"][0].update(name="canary"), "arms/0/name"),
        (lambda r: r["arms"].append(r["arms"][0]), "arms/1/name"),
        (lambda r: r.update(ended_at=r["started_at"] + dt.timedelta(seconds=0.9)), "ended_at"),
        (lambda r: r.update(ended_at=r["started_at"]), "ended_at"),
        (lambda r: r.update(ended_at=r["started_at"] + dt.timedelta(seconds=3_601)), "ended_at"),
        (lambda r: r.update(ended_at=timezone.now() + dt.timedelta(seconds=75)), "ended_at"),
        (
            lambda r: r.update(started_at=r["started_at"] - dt.timedelta(days=31), ended_at=minute(60 * 24 * 31)),
            "started_at",
        ),
        (bad(name="d99"), "arms/0/destinations/0/name"),
        (bad(index=0), "arms/0/destinations/0"),
        (drop("name"), "arms/0/destinations/0"),
        (bad(name="d1"), "arms/0/destinations/1"),
        (bad(errors=301), "arms/0/destinations/0/errors"),
        (bad(cached_tokens=300_001), "arms/0/destinations/0/cached_tokens"),
        (bad(requests=-1), "arms/0/destinations/0/requests"),
        (bad(requests=True), "arms/0/destinations/0/requests"),
        (bad(requests=10**13), "arms/0/destinations/0/requests"),
        (bad(requests=299), "arms/0/destinations/0/latency"),
        (bad(latency={"format": "other"}), "arms/0/destinations/0/latency"),
        (bad(latency=None, sample_s=[1.0, -1.0]), "arms/0/destinations/0/sample_s"),
        (bad(latency=None, sample_s=[1.0] * 301), "arms/0/destinations/0/sample_s"),
        (bad(latency=SKETCH, sample_s=[1.0]), "arms/0/destinations/0/sample_s"),
        (lambda r: r.update(keys={"a": 1_201}), "keys"),
        (lambda r: r.update(keys={"": 1}), "keys"),
        (lambda r: r.update(keys={"a" * 501: 1}), "keys"),
        (lambda r: r.update(keys={"a": 0.5}), "keys"),
    ],
)
def test_what_cannot_be_is_refused_with_a_pointer_and_nothing_is_stored(cast, fleet, change, field):
    report = window_report(fleet)
    change(report)
    with pytest.raises(Invalid) as refused:
        record(cast, fleet, report)
    assert refused.value.field == field
    assert not TelemetryWindow.objects.exists()


def test_a_clock_that_is_a_little_ahead_is_forgiven(cast, fleet):
    start = timezone.now() - dt.timedelta(seconds=10)
    record(cast, fleet, window_report(fleet, started_at=start))  # ends 50 s ahead


def test_both_arms_of_a_canary_go_to_their_plans(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    start_rollout(acting_user=cast.linus, plan=plan)
    fleet = Fleet.objects.get(pk=fleet.pk)
    record(cast, fleet, window_report(fleet, arm_report(fleet, "canary"), arm_report(fleet, "incumbent")))
    rows = {row.arm: row.plan.number for row in TelemetryWindow.objects.select_related("plan")}
    assert rows == {"incumbent": 0, "canary": plan.number}
    # Of the table before it a router reports with the arms that it had.
    with pytest.raises(Invalid) as refused:
        record(
            cast, fleet, {**window_report(fleet, arm_report(fleet, "canary"), started_at=minute(3)), "table_version": 1}
        )
    assert refused.value.field == "arms/0/name"


@pytest.mark.parametrize("who", ["vera", "ada"])
def test_people_need_the_right_to_operate(cast, fleet, who):
    with pytest.raises(NotAllowed):
        windows.record_windows(acting_user=getattr(cast, who), fleet=fleet, payload=window_report(fleet))


def test_the_right_to_operate_of_one_fleet_is_enough_for_it_alone(cast, fleet):
    other = make.make_fleet(cast, "other")
    local = make.make_user("local")
    roles.grant_role(acting_user=cast.root, user=local, role="operator", fleet=fleet)
    record(Cast(local), fleet, window_report(fleet))
    with pytest.raises(NotAllowed):
        record(Cast(local), other, window_report(other))


def test_an_emergency_reports_no_telemetry(cast, fleet):
    open_break_glass(acting_user=cast.ada, fleet=fleet, reason="routers are down")
    ada = User.objects.get(pk=cast.ada.pk)
    assert rights.may(ada, rights.OPERATE, fleet)
    with pytest.raises(NotAllowed):
        record(Cast(ada), fleet, window_report(fleet))


class Cast:
    """One person who reports."""

    def __init__(self, person):
        self.linus = User.objects.get(pk=person.pk)


def test_a_name_belongs_to_the_account_that_first_reported_under_it(cast, fleet):
    record(cast, fleet, window_report(fleet, started_at=minute(5)))
    record(cast, fleet, window_report(fleet, started_at=minute(4)))
    with pytest.raises(Conflict) as refused:
        record(Cast(cast.grace), fleet, window_report(fleet, started_at=minute(3)))
    assert (refused.value.code, refused.value.field) == ("source-taken", "source")
    assert TelemetryWindow.objects.count() == 2
    # The same name on another fleet is another router, and another name is free.
    other = make.make_fleet(cast, "other")
    record(Cast(cast.grace), other, window_report(other, started_at=minute(3)))
    record(Cast(cast.grace), fleet, window_report(fleet, started_at=minute(3), source="router-2"))
    added = AuditEvent.objects.filter(action="telemetry.source_added", fleet=fleet).order_by("id")
    assert [(e.actor, e.after) for e in added] == [
        (cast.linus, {"source": "router-1", "user": "linus"}), (cast.grace, {"source": "router-2", "user": "grace"}),
    ]  # fmt: skip


def test_a_name_whose_account_may_not_report_any_more_is_free(cast, fleet):
    record(cast, fleet, window_report(fleet, started_at=minute(5)))
    cast.linus.groups.clear()
    record(Cast(cast.grace), fleet, window_report(fleet, started_at=minute(4)))
    event = AuditEvent.objects.filter(action="telemetry.source_added").latest("id")
    assert (event.actor, event.before) == (cast.grace, {"user": "linus"})
    cast.linus.groups.add(Group.objects.get(name="operator"))
    with pytest.raises(Conflict):
        record(Cast(cast.linus), fleet, window_report(fleet, started_at=minute(3)))


def test_a_window_that_is_refused_binds_no_name(cast, fleet):
    with pytest.raises(Invalid):
        record(cast, fleet, {**window_report(fleet), "table_version": 99})
    record(Cast(cast.grace), fleet, window_report(fleet))
    with pytest.raises(Conflict, match="grace reports as router-1"):
        record(cast, fleet, window_report(fleet))


def test_what_is_older_than_thirty_days_is_deleted(cast, fleet):
    record(cast, fleet, window_report(fleet))
    record(cast, fleet, window_report(fleet, started_at=minute(3)))
    DriftCheck.objects.create(fleet=fleet, plan=fleet.plans.get(), verdict="within")
    assert windows.prune() == {"telemetry": 0, "drift_checks": 0}
    in_a_month = minute(2) + dt.timedelta(days=30, seconds=30)
    assert windows.prune(in_a_month) == {"telemetry": 1, "drift_checks": 0}
    assert windows.prune(in_a_month + dt.timedelta(minutes=5)) == {"telemetry": 1, "drift_checks": 1}


@pytest.mark.django_db(transaction=True)
def test_twenty_routers_that_send_the_same_window_at_once_are_counted_once(cast, fleet):
    report, answers = window_report(fleet), []

    def send():
        try:
            answers.append(record(cast, fleet, copy.deepcopy(report)).duplicate)
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] + [True] * 19
    assert TelemetryWindow.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_windows_that_overlap_and_come_at_once_one_is_stored(cast, fleet):
    outcomes = []

    def send(shift_s):
        try:
            record(cast, fleet, window_report(fleet, started_at=minute(9) + dt.timedelta(seconds=shift_s)))
            outcomes.append("stored")
        except Conflict as refused:
            outcomes.append(refused.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=send, args=(int(shift),)) for shift in np.arange(8) * 7]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["overlaps"] * 7 + ["stored"]
