"""Traffic of a fleet that nothing serves: it follows the published table, and is the same whenever it is made."""

from __future__ import annotations

import datetime as dt

import pytest
from django.core.management import call_command
from django.utils import timezone

from planner.analysis.latency import LatencySketch
from planner.models import DriftCheck, Fleet, TelemetryWindow
from planner.routing import canary_share
from planner.selectors.fleets.routing_tables import routing_table
from planner.services.fleets.destinations import change_destination
from planner.services.monitoring import monitor
from planner.services.rollouts.fallback import fall_back
from planner.services.telemetry import simulator
from planner.services.telemetry.simulator import simulate_fleet, simulate_window
from planner.tasks import simulate_traffic
from tests import factories as make
from tests.traffic import later, minute

pytestmark = pytest.mark.django_db
ANY_TIME = dt.timedelta(hours=3)


@pytest.fixture
def sample(cast) -> Fleet:
    """A fleet of simulated traffic with a workload of 8 requests/s."""
    fleet = make.make_fleet(
        cast, "sample", simulated_traffic=True, accept_simulated=True, canary_weights=[0.3], canary_holds_s=[0]
    )
    make.make_workload(cast, fleet)
    return fleet


def windows(fleet):
    return list(TelemetryWindow.objects.filter(fleet=fleet, source="simulator").order_by("started_at", "arm"))


def hit_rate(row) -> float:
    return row.figures["cached_tokens"] / row.figures["prompt_tokens"]


def test_a_minute_is_reported_as_a_router_would_and_marked_simulated(sample):
    assert simulate_fleet(sample, minutes=1) == 1
    (row,) = windows(sample)
    assert (row.source, row.simulated, row.arm, row.plan.kind) == ("simulator", True, "incumbent", "flat")
    assert (row.started_at, row.ended_at) == (minute(1), minute(0))
    # 8 requests/s, with the gaps of the trace.
    assert 380 < row.requests < 580
    assert row.errors == 0
    figures = row.figures
    assert LatencySketch.from_payload(figures["latency"]).n == row.requests
    assert sum(d["requests"] for d in figures["destinations"]) == row.requests
    assert 0 < hit_rate(row) < 1
    assert figures["key_requests"] == row.requests
    assert 50 < figures["active_keys"] <= 200


def test_a_minute_is_the_same_whenever_it_is_simulated(sample):
    start = minute(3)
    first = simulate_window(sample, start, start + simulator.WINDOW)
    again = simulate_window(Fleet.objects.get(pk=sample.pk), start, start + simulator.WINDOW)
    assert [a.duplicate for a in again] == [True]
    assert first[0].windows[0].payload_digest == TelemetryWindow.objects.get().payload_digest


def test_each_minute_is_simulated_once_and_a_stop_is_made_up_for(sample):
    DriftCheck.objects.create(fleet=sample, plan=sample.plans.get(), verdict="silent")
    now = timezone.now() - ANY_TIME
    assert simulate_fleet(sample, now=now) == 1
    assert simulate_fleet(sample, now=now) == 0
    assert simulate_fleet(sample, now=now + dt.timedelta(minutes=2)) == 2
    assert simulate_fleet(sample, now=now + dt.timedelta(minutes=60)) == 5
    ended = [row.ended_at for row in windows(sample)]
    assert ended[-1] == (now + dt.timedelta(minutes=60)).replace(second=0, microsecond=0)
    assert len(set(ended)) == 8


def test_nothing_is_simulated_before_the_monitor_watches(sample):
    assert simulate_fleet(sample) == 0
    monitor.watch_fleet(sample)
    assert simulate_fleet(sample) == 1


def test_only_fleets_that_ask_for_it_are_simulated(sample, cast):
    other = make.make_fleet(cast, "served")
    make.make_workload(cast, other)
    for fleet in (sample, other):
        monitor.watch_fleet(fleet)
    simulate_traffic()
    assert {row.fleet.slug for row in windows(sample)} == {"sample"}
    assert windows(other) == []


def test_a_fleet_without_a_workload_or_a_destination_that_is_up_has_no_traffic(cast, sample):
    empty = make.make_fleet(cast, "empty", simulated_traffic=True)
    assert simulate_fleet(empty, minutes=1) == 0
    for destination in sample.destinations.all():
        change_destination(acting_user=cast.root, destination=destination, state="down")
    assert simulate_fleet(sample, minutes=1) == 0


def test_a_destination_that_is_down_or_draining_gets_no_request(cast, sample):
    down, draining = sample.destinations.order_by("index")[:2]
    change_destination(acting_user=cast.root, destination=down, state="down")
    change_destination(acting_user=cast.root, destination=draining, state="draining")
    simulate_fleet(sample, minutes=1)
    assert {d["index"] for d in windows(sample)[0].figures["destinations"]} == {2, 3}


def test_a_canary_gets_the_keys_that_routers_would_send_it_by_its_table(cast, sample):
    make.canary(cast, sample)
    fleet = Fleet.objects.get(pk=sample.pk)
    # The whole lead-in by the table of now, so that only it can be seen.
    with later(minutes=40):
        simulate_window(fleet, minute(3), minute(2))
    canary, incumbent = windows(fleet)
    assert (canary.arm, incumbent.arm) == ("canary", "incumbent")
    assert (canary.table_version, canary.plan.kind, incumbent.plan.kind) == (fleet.table_version, "cacheroute", "flat")
    keys = incumbent.figures.get("keys") or canary.figures["keys"]
    mine = {name for name in keys if canary_share(fleet.salt, name) < 0.3}
    assert 0 < len(mine) < len(keys)
    assert canary.requests == sum(keys[name] for name in mine)
    assert incumbent.requests == sum(keys.values()) - canary.requests
    table = next(arm for arm in routing_table(fleet)["arms"] if arm["name"] == "canary")["keys"]
    assert mine & set(table)
    members = {index for name in mine for index in table.get(name, [])}
    cold = [name for name in mine if name not in table]
    if not cold:
        assert {d["index"] for d in canary.figures["destinations"]} <= members
    # Warm prefixes on planned destinations, against prefixes that are spread over all.
    assert hit_rate(canary) > hit_rate(incumbent) + 0.1


def test_a_change_of_the_table_shows_in_the_window_it_falls_into(cast, sample):
    rollout = make.canary(cast, sample)
    changed = rollout.step_started_at
    start = changed.replace(second=0, microsecond=0)
    with later(minutes=2):
        found = simulate_window(Fleet.objects.get(pk=sample.pk), start, start + simulator.WINDOW)
    rows = windows(sample)
    if 1 <= (changed - start).total_seconds() <= 59:
        assert [row.table_version for row in rows] == [1, 2, 2]
        assert rows[0].ended_at == rows[1].started_at
        assert abs((rows[0].ended_at - changed).total_seconds()) < 0.5
    assert {row.arm for row in rows if row.table_version == 2} == {"canary", "incumbent"}
    assert sum(row.requests for row in rows) > 380
    assert len(found) == len({row.started_at for row in rows})


def test_after_falling_back_all_keys_are_the_incumbents_again(cast, sample):
    make.canary(cast, sample)
    fall_back(acting_user=cast.linus, fleet=sample)
    with later(minutes=10):
        simulate_window(Fleet.objects.get(pk=sample.pk), minute(3), minute(2))
    (row,) = windows(sample)
    assert (row.arm, row.plan.kind, row.table_version) == ("incumbent", "flat", 3)


def test_the_command_simulates_at_once(sample, capsys):
    call_command("simulate_traffic", "--fleet", "sample", "--minutes", "3", "--user", "linus", "--json")
    assert '"windows": 3' in capsys.readouterr().out
    assert len(windows(sample)) == 3
