"""The live page: router telemetry, the validated range, charts, and texts without charts."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboards import arms, live
from planner.models import DriftCheck, Fleet
from planner.selectors.monitoring.live_page import live_data, live_page, routers
from planner.services.fleets.destinations import add_destinations
from planner.services.monitoring import monitor
from planner.services.telemetry import windows
from tests import factories as make
from tests.traffic import arm_report, minute, window_report

pytestmark = pytest.mark.django_db
URL = "/fleets/alpha/live/"


def report(cast, fleet, *, ago=1, source="router-1", **figures):
    fleet = Fleet.objects.get(pk=fleet.pk)
    payload = window_report(fleet, arm_report(fleet, **figures), started_at=minute(ago), source=source)
    return windows.record_windows(acting_user=cast.linus, fleet=fleet, payload=payload)


def page(client, cast, who="vera"):
    client.force_login(getattr(cast, who))
    response = client.get(URL)
    assert response.status_code == 200
    return response.content.decode()


def test_without_telemetry_the_page_explains_how_to_report(client, cast, fleet):
    text = page(client, cast)
    assert "No router telemetry yet" in text
    assert "POST /api/v1/fleets/alpha/telemetry/" in text
    assert "No check yet." in text


def test_minutes_routers_and_verdicts_are_read_without_javascript(client, cast, fleet):
    report(cast, fleet, ago=2, requests=1_200, p99_s=2.0)
    report(cast, fleet, requests=600, errors=6)
    monitor.watch_fleet(fleet, now=minute(0) + dt.timedelta(seconds=20))
    text = page(client, cast)
    assert text.count('<th scope="row">incumbent</th>') == 2
    assert "80.0%" in text  # hit rate
    assert "1.00%" in text  # failed
    assert "router-1" in text
    assert "reporting" in text
    assert "Flat-LB is live. No limits apply." in text
    assert "simulated" not in text.split("<main")[1]


def test_simulated_traffic_is_labelled_wherever_it_is_shown(client, cast):
    fleet = make.make_fleet(cast, "alpha", accept_simulated=True, simulated_traffic=True)
    make.make_workload(cast, fleet)
    call_command("simulate_traffic", "--fleet", "alpha", "--minutes", "2", "--user", "linus")
    monitor.watch_fleet(fleet, now=minute(0) + dt.timedelta(seconds=20))
    text = page(client, cast)
    assert "Simulated traffic: the console replays" in text
    assert text.count("≈</span> simulated") >= 5  # page, monitor, router, check, table


def test_missing_telemetry_is_shown_above_the_panels(client, cast, fleet):
    report(cast, fleet, ago=8)
    text = page(client, cast)
    assert "No router telemetry since" in text


def test_a_range_is_shown_with_the_figures_of_now(client, cast, fleet):
    make.active_plan(cast, fleet)
    long_ago = timezone.now() - dt.timedelta(hours=1)
    fleet.rollouts.filter(state="active").update(activated_at=long_ago)
    DriftCheck.objects.all().delete()  # that of the gate was just now, and the monitor looks once a minute
    report(cast, fleet, requests=420, p99_s=1.5)
    monitor.watch_fleet(fleet, now=minute(0) + dt.timedelta(seconds=20))
    text = page(client, cast)
    assert "up to 3.5 s; now 1." in text
    assert "4 to 8 requests/s; now 7" in text


def test_a_router_with_an_older_table_is_marked(cast, fleet):
    report(cast, fleet, ago=2)
    (row,) = routers(fleet, timezone.now())
    assert (row["lags"], row["silent"]) == (False, False)
    add_destinations(acting_user=cast.root, fleet=fleet, destinations=[("d9", "http://127.0.0.1:1")])
    fleet.refresh_from_db()
    (row,) = routers(fleet, timezone.now())
    assert row["lags"] is False  # its window ended before there was a newer one
    Fleet.objects.filter(pk=fleet.pk).update(table_issued_at=timezone.now() - dt.timedelta(minutes=10))
    fleet.refresh_from_db()
    (row,) = routers(fleet, timezone.now())
    assert (row["table_version"], row["lags"]) == (1, True)


def test_windows_of_several_routers_are_one_minute(cast, fleet):
    report(cast, fleet, requests=600)
    report(cast, fleet, requests=1_200, source="router-2")
    arm, whole = live_data(fleet)["rows"]
    assert (arm["arm"], arm["requests"], arm["routers"]) == ("incumbent", 1_800, 2)
    assert arm["rps"] == pytest.approx(30.0)
    assert (whole["arm"], whole["imbalance"]) == ("fleet", 1.0)


def test_the_page_takes_the_same_queries_for_an_hour_as_for_a_minute(client, cast, fleet):
    def count() -> int:
        with CaptureQueriesContext(connection) as found:
            live_page(fleet)
        return len(found)

    report(cast, fleet)
    DriftCheck.objects.create(fleet=fleet, plan=fleet.plans.get(), rollout=fleet.rollouts.get(), verdict="within")
    once = count()
    for ago in range(2, 40):
        report(cast, fleet, ago=ago)
        DriftCheck.objects.create(fleet=fleet, plan=fleet.plans.get(), rollout=fleet.rollouts.get(), verdict="within")
    assert count() == once == 10


def test_the_state_is_fetched_alone(client, cast, fleet):
    client.force_login(cast.vera)
    text = client.get(f"{URL}state/").content.decode()
    assert text.lstrip().startswith('<div id="live-state"')
    assert "<html" not in text
    client.logout()
    assert client.get(f"{URL}state/", headers={"HX-Request": "true"})["HX-Refresh"] == "true"


def test_only_people_with_a_role_see_it(client, cast, fleet):
    assert client.get(URL).status_code == 302
    client.force_login(make.make_user("stranger"))
    assert client.get(URL).status_code == 404


# --- Charts ---------------------------------------------------------------------------------------------
def test_charts_draw_what_was_reported(client, cast, fleet):
    report(cast, fleet, ago=2)
    report(cast, fleet)
    client.force_login(cast.vera)
    names = [f"{name}.figure" for name in live.CHARTS] + [f"{name}-simulated.children" for name in live.CHARTS]
    names += ["charts.hidden", "none.children"]
    asked = {
        "output": f"..{'...'.join(names)}..",
        "outputs": [{"id": n.rsplit(".", 1)[0], "property": n.rsplit(".", 1)[1]} for n in names],
        "inputs": [
            {"id": "address", "property": "pathname", "value": URL},
            {"id": "theme", "property": "data", "value": "light"},
            {"id": "clock", "property": "n_intervals", "value": 1},
        ],
        "changedPropIds": ["clock.n_intervals"],
    }
    response = client.post("/charts/live/_dash-update-component", json.dumps(asked), content_type="application/json")
    assert response.status_code == 200, response.content
    found = response.json()["response"]
    assert found["charts"]["hidden"] is False
    (line,) = found["hit-rate"]["figure"]["data"]
    assert line["y"] == [pytest.approx(80.0), pytest.approx(80.0)]
    assert found["p99"]["figure"]["data"][0]["error_y"]["array"][0] > 0
    assert found["hit-rate-simulated"]["children"] == ""
    client.force_login(make.make_user("stranger"))
    refused = client.post("/charts/live/_dash-update-component", json.dumps(asked), content_type="application/json")
    assert refused.status_code == 404


def drawn_data(**change):
    now = timezone.now()
    row = {
        "minute": now, "arm": "canary", "plans": [3], "rps": 5.0, "hit_rate": None, "error_rate": 0.02,
        "imbalance": None, "p99": {"value": 2.0, "low": 1.5, "high": None, "n": 10},
    }  # fmt: skip
    return {
        "rows": [row, {**row, "arm": "fleet", "plans": [], "imbalance": 1.4, "p99": None}],
        "since": now - dt.timedelta(hours=1), "until": now, "changes": [(now - dt.timedelta(minutes=5), 7)],
        "envelope": {"p99_limit_s": 3.5, "max_error_rate": 0.01, "max_imbalance": 1.5, "load_high_rps": 8.0},
        "checks": [], "simulated": False, **change,
    }  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("draw", list(live.CHARTS.values()))
def test_every_chart_draws_limits_and_changes_of_the_table(draw, theme):
    figure = draw(drawn_data(), theme)
    assert figure["layout"]["annotations"][0]["text"] == "v7"
    limits = [s for s in figure["layout"]["shapes"] if s.get("xref") == "paper"]
    assert len(limits) == (0 if draw is arms.hit_rate else 1)
    assert draw(drawn_data(envelope=None), theme)["data"] is not None


def test_a_bound_that_does_not_exist_is_no_bar():
    (line,) = arms.p99(drawn_data(), "light")["data"]
    assert line["error_y"]["array"] == [0.0]
    assert line["error_y"]["arrayminus"] == [0.5]


def test_a_minute_without_prompts_is_a_gap():
    assert arms.hit_rate(drawn_data(), "light")["data"][0]["y"] == [None]
