"""Adding destinations and changing their speed by the API."""

import json

import pytest

from planner.models import AuditEvent, Destination, Fleet

pytestmark = pytest.mark.django_db
API = "/api/v1"


def new(fleet, **values):
    return {"fleet": fleet.slug, "name": "d4", "url": "http://127.0.0.1:9104", **values}


def patch(client, row, body, version=1):
    return client.patch(f"{API}/destinations/{row.pk}/", body, format="json", headers={"If-Match": f'"{version}"'})


def test_a_destination_is_added_with_its_speed(clients, fleet):
    response = clients.root.post(f"{API}/destinations/", new(fleet, weight=2), format="json")
    assert response.status_code == 201, response.content
    body = response.json()
    assert {name: body[name] for name in ("fleet", "index", "name", "url", "state", "weight", "version")} == {
        "fleet": "alpha", "index": 4, "name": "d4", "url": "http://127.0.0.1:9104", "state": "up", "weight": 2.0,
        "version": 1,
    }  # fmt: skip
    assert response["Location"] == f"/api/v1/destinations/{body['id']}/"
    assert response["ETag"] == '"1"'
    assert clients.vera.get(response["Location"]).json() == body
    table = clients.vera.get(f"{API}/fleets/{fleet.slug}/routing-table/").json()
    assert (table["version"], table["destinations"][4]["name"]) == (2, "d4")


def test_a_speed_that_is_not_given_is_one(clients, fleet):
    assert clients.root.post(f"{API}/destinations/", new(fleet)).json()["weight"] == 1.0


def test_the_same_order_again_adds_nothing(clients, fleet):
    key = {"Idempotency-Key": "add-d4"}
    first = clients.root.post(f"{API}/destinations/", new(fleet), headers=key)
    again = clients.root.post(f"{API}/destinations/", new(fleet), headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again["Idempotency-Replayed"] == "true"
    assert fleet.destinations.count() == 5
    assert AuditEvent.objects.filter(action="fleet.destinations_added").count() == 1


WRONG = [{"weight": w} for w in (0, -1, 1e9, "fast", None, [], True, "1_0", "٢")]
WRONG += [{"name": " d4"}, {"name": "d\u202e4"}, {"url": "http://ada:secret@d4"}, {"url": " http://d4"}]
WRONG += [{"name": ""}, {"name": "x" * 121}, {"url": "d4:8000"}, {"url": "http://" + "x" * 500}]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: str(wrong)[:24])
def test_a_value_that_cannot_be_used_is_pointed_at(clients, fleet, problem, wrong):
    response = clients.root.post(f"{API}/destinations/", new(fleet, **wrong), format="json")
    problem(response, 400, "invalid", "/" + next(iter(wrong)))
    assert fleet.destinations.count() == 4


@pytest.mark.parametrize("weight", ["NaN", "Infinity", "1e400"])
def test_a_speed_that_is_not_finite_is_a_400(clients, fleet, problem, weight):
    row = fleet.destinations.first()
    body = json.dumps(new(fleet)).replace("}", f', "weight": {weight}}}')
    response = clients.root.post(f"{API}/destinations/", body, content_type="application/json")
    problem(response, 400, "invalid" if weight == "1e400" else "parse-error")
    response = clients.root.patch(
        f"{API}/destinations/{row.pk}/", {"weight": weight}, format="multipart", headers={"If-Match": '"1"'}
    )
    problem(response, 400, "invalid", "/weight")


def test_a_speed_may_be_written_as_text_in_a_form(clients, fleet):
    assert clients.root.post(f"{API}/destinations/", new(fleet, weight="2.5e0"), format="multipart").status_code == 201
    assert fleet.destinations.get(index=4).weight == 2.5


def test_a_name_that_is_taken_is_a_409_and_no_fleet_a_400(clients, fleet, problem):
    problem(clients.root.post(f"{API}/destinations/", new(fleet, name="d0")), 409, "exists", "/name")
    problem(clients.root.post(f"{API}/destinations/", new(fleet) | {"fleet": "nowhere"}), 400, "invalid", "/fleet")
    problem(clients.root.post(f"{API}/destinations/", {"name": "d4", "url": "http://d4"}), 400, "invalid", "/fleet")


@pytest.mark.parametrize("who", ["vera", "ada", "grace", "linus"])
def test_only_managers_add_destinations_and_set_speeds(clients, fleet, problem, who):
    client, row = getattr(clients, who), fleet.destinations.first()
    problem(client.post(f"{API}/destinations/", new(fleet)), 403, "not-allowed")
    problem(patch(client, row, {"weight": 2}), 403, "not-allowed")
    assert set(Destination.objects.values_list("weight", flat=True)) == {1.0}


def test_a_token_of_another_fleet_adds_none(clients, cast, fleet, other_fleet, problem):
    token = clients.token(cast.root, fleet=other_fleet)
    problem(token.post(f"{API}/destinations/", new(fleet)), 403, "permission-denied")
    assert token.post(f"{API}/destinations/", new(other_fleet)).status_code == 201


def test_a_speed_and_a_state_are_changed_with_the_version_that_was_read(clients, fleet, problem):
    row = fleet.destinations.first()
    problem(clients.root.patch(f"{API}/destinations/{row.pk}/", {"weight": 2}), 428, "precondition-required")
    done = patch(clients.root, row, {"weight": 2})
    assert (done.status_code, done.json()["weight"], done.json()["state"], done["ETag"]) == (200, 2.0, "up", '"2"')
    problem(patch(clients.root, row, {"weight": 3}), 412, "stale-version")
    both = patch(clients.root, row, {"weight": 0.5, "state": "draining"}, version=2).json()
    assert (both["weight"], both["state"]) == (0.5, "draining")
    assert patch(clients.linus, row, {"state": "up"}, version=3).json()["weight"] == 0.5


@pytest.mark.parametrize("weight", [0, 0.001, 101, 1e9, "fast", None])
def test_an_invalid_speed_is_pointed_at(clients, fleet, problem, weight):
    problem(patch(clients.root, fleet.destinations.first(), {"weight": weight}), 400, "invalid", "/weight")


def test_a_fleet_is_created_with_speeds(clients, problem):
    body = {
        "slug": "gamma", "name": "Gamma", "engine_profile": "llama-3.1-8b-h100",
        "destinations": [{"name": "a", "url": "http://a:1"}, {"name": "b", "url": "http://b:1", "weight": 2}],
    }  # fmt: skip
    wrong = body | {"destinations": [{"name": "a", "url": "http://a:1", "weight": 0}]}
    problem(clients.root.post(f"{API}/fleets/", wrong, format="json"), 400, "invalid", "/destinations/0/weight")
    twice = body | {"destinations": [{"name": "a", "url": "http://a:1"}] * 2}
    problem(clients.root.post(f"{API}/fleets/", twice, format="json"), 400, "invalid", "/destinations/1/name")
    assert clients.root.post(f"{API}/fleets/", body, format="json").status_code == 201
    rows = Fleet.objects.get(slug="gamma").destinations.order_by("index")
    assert list(rows.values_list("name", "weight")) == [("a", 1.0), ("b", 2.0)]
