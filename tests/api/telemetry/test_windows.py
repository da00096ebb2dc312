"""The endpoint of telemetry, and the endpoints of windows and of the monitor's checks."""

from __future__ import annotations

import pytest

from planner.models import ApiToken, DriftCheck, TelemetrySource, TelemetryWindow
from planner.services.access import roles
from tests.traffic import arm_report, as_json, minute, window_report

pytestmark = pytest.mark.django_db
URL = "/api/v1/fleets/alpha/telemetry/"


def body(fleet, **change):
    return {**as_json(window_report(fleet)), **change}


def test_a_window_is_created_and_a_repeat_is_counted_once(clients, cast, fleet):
    router = clients.token(cast.linus, ["ingest"], fleet)
    first = router.post(URL, body(fleet))
    assert first.status_code == 201, first.content
    assert first.json() | {"windows": []} == {
        "windows": [], "recorded": 1, "duplicates": 0, "late": False, "dropped_keys": 0,
    }  # fmt: skip
    again = router.post(URL, body(fleet))
    assert (again.status_code, again.json()["duplicates"], again.json()["windows"]) == (200, 1, first.json()["windows"])


def test_a_window_with_other_figures_or_an_overlap_is_a_conflict(clients, cast, fleet, problem):
    router = clients.token(cast.linus, ["ingest"], fleet)
    router.post(URL, body(fleet))
    other = as_json(window_report(fleet, arm_report(fleet, requests=5)))
    problem(router.post(URL, other), 409, "revised")
    shifted = as_json(window_report(fleet, started_at=minute(1).replace(second=30)))
    problem(router.post(URL, shifted), 409, "overlaps", "/started_at")


@pytest.mark.parametrize("scope", ["read", "plan", "deploy", "route"])
def test_a_token_needs_the_scope_ingest(clients, cast, fleet, problem, scope):
    problem(clients.token(cast.root, [scope]).post(URL, body(fleet)), 403, "permission-denied")


def test_a_token_of_another_fleet_does_not_report_here(clients, cast, fleet, other_fleet, problem):
    problem(clients.token(cast.root, ["ingest"], other_fleet).post(URL, body(fleet)), 404, "not-found")


def test_people_need_the_right_to_operate(clients, fleet, problem):
    problem(clients.vera.post(URL, body(fleet)), 403, "not-allowed")
    assert clients.linus.post(URL, body(fleet)).status_code == 201


@pytest.mark.parametrize("who", ["vera", "ada"])
def test_a_token_reports_no_more_than_its_person(clients, cast, fleet, problem, who):
    problem(clients.token(getattr(cast, who), ["ingest"], fleet).post(URL, body(fleet)), 403, "not-allowed")
    assert not TelemetryWindow.objects.exists()


def test_a_token_of_a_former_operator_reports_nothing(clients, cast, fleet, problem):
    router = clients.token(cast.linus, ["ingest"], fleet)
    assert router.post(URL, body(fleet)).status_code == 201
    cast.linus.groups.clear()
    roles.grant_role(acting_user=cast.root, user=cast.linus, role="viewer", fleet=fleet)
    problem(router.post(URL, body(fleet)), 403, "not-allowed")


def test_a_name_is_of_one_account_and_the_token_is_kept_with_it(clients, cast, fleet, problem):
    router = clients.token(cast.linus, ["ingest"], fleet)
    assert router.post(URL, body(fleet)).status_code == 201
    assert clients.linus.post(URL, body(fleet)).status_code == 200  # the same account in a browser
    source = TelemetrySource.objects.get()
    assert (source.name, source.user, source.token_number) == ("router-1", cast.linus, ApiToken.objects.get().pk)
    problem(clients.grace.post(URL, body(fleet)), 409, "source-taken", "/source")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"table_version": 99}, "/table_version"),
        ({"prompt": "text"}, "/prompt"),
        ({"source": "simulator"}, "/source"),
        ({"arms": [{"name": "incumbent", "destinations": [], "prompts": ["a"]}]}, "/arms/0/prompts"),
        ({"arms": [{"name": "canary", "destinations": []}]}, "/arms/0/name"),
        ({"arms": [{"name": "incumbent", "destinations": [{"name": "d0"}]}]}, "/arms/0/destinations/0/requests"),
        (
            {"arms": [{"name": "incumbent", "destinations": [{"name": "d0", "requests": 1, "errors": 2}]}]},
            "/arms/0/destinations/0/errors",
        ),
        (
            {"arms": [{"name": "incumbent", "destinations": [{"name": "d0", "requests": 1, "latency": {}}]}]},
            "/arms/0/destinations/0/latency",
        ),
        ({"keys": ["tenant-a"]}, "/keys"),
        ({"keys": {"tenant-a": -1}}, "/keys"),
        ({"ended_at": "yesterday"}, "/ended_at"),
    ],
)
def test_a_fault_is_pointed_to(clients, fleet, problem, change, pointer):
    problem(clients.linus.post(URL, body(fleet, **change)), 400, "invalid", pointer)
    assert not TelemetryWindow.objects.exists()


def test_a_list_leaves_out_what_is_long_and_a_window_has_it(clients, fleet):
    (pk,) = clients.linus.post(URL, body(fleet, keys={"tenant-a": 3})).json()["windows"]
    (row,) = clients.vera.get("/api/v1/telemetry/?fleet__slug=alpha&arm=incumbent").json()["results"]
    assert row["figures"] == {
        "prompt_tokens": 1_200_000, "cached_tokens": 960_000, "active_keys": 1, "key_requests": 3, "dropped_keys": 0,
        "dropped_requests": 0,
    }  # fmt: skip
    whole = clients.vera.get(f"/api/v1/telemetry/{pk}/").json()
    assert whole["figures"]["keys"] == {"tenant-a": 3}
    assert whole["figures"]["latency"]["format"] == "cacheroute.sketch/1"


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("source=router-1", 1),
        ("source=router-2", 0),
        ("simulated=false", 1),
        ("late=true", 0),
        ("ended_at__gte=2020-01-01T00:00:00Z", 1),
        ("ended_at__lt=2020-01-01T00:00:00Z", 0),
    ],
)
def test_windows_are_filtered(clients, fleet, query, count):
    clients.linus.post(URL, body(fleet))
    assert len(clients.vera.get(f"/api/v1/telemetry/?{query}").json()["results"]) == count


def test_checks_of_the_monitor_are_read(clients, fleet):
    DriftCheck.objects.create(fleet=fleet, plan=fleet.plans.get(), verdict="silent", explanation="Nothing came.")
    (row,) = clients.vera.get("/api/v1/drift-checks/?fleet__slug=alpha&verdict__in=silent,left").json()["results"]
    assert (row["fleet"], row["verdict"], row["explanation"]) == ("alpha", "silent", "Nothing came.")
    assert not clients.vera.get("/api/v1/drift-checks/?verdict=within").json()["results"]
