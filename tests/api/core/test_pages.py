"""Pages and filters of every list: order, size, and values that cannot be."""

import pytest

from planner.models import AuditEvent, Calibration, Destination
from planner.services.fleets import fleets
from tests import factories as make

pytestmark = pytest.mark.django_db

API = "/api/v1"


def calibration(fleet, **values):
    return {"fleet": fleet.slug, "q_cap": 8, "slots_measured": 60, **values}


def test_pages_are_newest_first_and_cover_every_row_once(clients, cast, fleet):
    for _ in range(7):
        make.make_calibration(cast, fleet)
    url, seen = f"{API}/calibrations/?page_size=3", []
    while url:
        page = clients.vera.get(url).json()
        assert len(page["results"]) <= 3
        seen += [row["id"] for row in page["results"]]
        url = page["next"]
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == set(Calibration.objects.values_list("pk", flat=True))


def test_a_page_stays_right_while_rows_are_added(clients, cast, fleet):
    for _ in range(4):
        make.make_calibration(cast, fleet)
    first = clients.vera.get(f"{API}/calibrations/?page_size=2").json()
    make.make_calibration(cast, fleet)
    second = clients.vera.get(first["next"]).json()
    ids = [row["id"] for row in first["results"] + second["results"]]
    assert len(ids) == len(set(ids)) == 4
    back = clients.vera.get(second["previous"]).json()
    assert [row["id"] for row in back["results"]] == ids[:2]


def test_a_page_has_500_rows_at_most(clients, cast, fleet):
    Destination.objects.bulk_create(
        Destination(fleet=fleet, index=i, name=f"x{i}", url="http://127.0.0.1") for i in range(10, 520)
    )
    assert len(clients.vera.get(f"{API}/destinations/?page_size=9999").json()["results"]) == 500
    assert len(clients.vera.get(f"{API}/destinations/").json()["results"]) == 50


def test_lists_are_filtered_by_fleet_and_state(clients, cast, fleet, other_fleet):
    plan = make.built_plan(cast, fleet)
    make.order_plan(cast, other_fleet)

    def found(query):
        return [row["id"] for row in clients.vera.get(f"{API}/plans/?{query}").json()["results"]]

    assert found(f"fleet__slug={fleet.slug}&kind=cacheroute") == [plan.pk]
    assert found("state=built") == [plan.pk]
    assert len(found("state__in=built,queued")) == 2
    assert found("state=retired") == []


def test_a_filter_value_that_cannot_be_is_a_problem(clients, fleet, problem):
    problem(clients.vera.get(f"{API}/plans/?state=asleep"), 400, "invalid", "/state")


def test_audit_events_are_filtered_by_time_actor_and_subject(clients, cast, fleet):
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=2.0)
    event = AuditEvent.objects.latest("id")
    at = event.created_at.isoformat().replace("+", "%2B")
    query = f"action=fleet.policy_changed&actor_name=root&subject_type=fleet&subject_id={fleet.pk}&created_at__gte={at}"
    results = clients.vera.get(f"{API}/audit-events/?{query}").json()["results"]
    assert [row["id"] for row in results] == [event.pk]
    assert (
        clients.vera.get(f"{API}/audit-events/?created_at__lt={at}&action=fleet.policy_changed").json()["results"] == []
    )


@pytest.mark.parametrize("offset", ["-16:20", "+23:59", "-1600"])
def test_an_instant_with_an_offset_that_the_database_does_not_know_is_a_400(clients, problem, offset):
    answer = clients.ada.get("/api/v1/audit-events/", {"created_at__gte": f"2026-03-14T10:00:00{offset}"})
    problem(answer, 400, "invalid")
    (error,) = answer.json()["errors"]
    assert error["pointer"].startswith("/created_at__gte")
    assert "16 hours" in error["detail"]
    assert clients.ada.get("/api/v1/audit-events/", {"created_at__gte": "2026-03-14T10:00:00+15:00"}).status_code == 200
