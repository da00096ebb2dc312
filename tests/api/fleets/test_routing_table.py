"""The table that routers poll."""

import gzip
import json
import threading
import time

import pytest
from django.db import connection

from planner.api.fleets import views as view
from planner.selectors.fleets import routing_tables
from planner.services.fleets.destinations import change_destination
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import advance_rollout
from tests import factories as make
from tests.speed import lateness

pytestmark = pytest.mark.django_db


def url(fleet, wait=None):
    return f"/api/v1/fleets/{fleet.slug}/routing-table/" + (f"?wait={wait}" if wait is not None else "")


@pytest.fixture
def router(clients, cast, fleet):
    return clients.token(cast.linus, ["route"], fleet)


@pytest.fixture
def canary(cast, fleet):
    return start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))


def test_the_document_is_the_contract(router, fleet, canary):
    response = router.get(url(fleet))
    body = response.json()
    fleet.refresh_from_db()
    assert (body["format"], body["fleet"], body["version"]) == ("cacheroute.table/1", fleet.slug, fleet.table_version)
    assert body["digest"].startswith("sha256:")
    assert body["salt"] == fleet.salt
    assert body["fallback"] == "power-of-two"
    assert body["destinations"][0] == {"index": 0, "name": "d0", "url": "http://127.0.0.1:9100", "state": "up"}
    incumbent, candidate = body["arms"]
    assert (incumbent["name"], incumbent["plan"], incumbent["weight"], incumbent["keys"]) == ("incumbent", 0, 0.9, {})
    assert (candidate["name"], candidate["plan"], candidate["weight"]) == ("canary", 1, 0.1)
    places = {d["index"] for d in body["destinations"]}
    assert candidate["keys"]
    for key, members in candidate["keys"].items():
        assert members
        assert set(members) <= places
        assert candidate["backup"].get(key) not in members
    assert response["ETag"] == f'"{body["version"]}"'


def test_flat_lb_is_an_arm_without_keys(router, fleet):
    (arm,) = router.get(url(fleet)).json()["arms"]
    assert (arm["name"], arm["plan"], arm["weight"], arm["keys"], arm["backup"]) == ("incumbent", 0, 1.0, {}, {})


def test_the_table_is_compressed_on_request(router, fleet, canary):
    plain = router.get(url(fleet))
    packed = router.get(url(fleet), headers={"Accept-Encoding": "gzip"})
    assert packed["Content-Encoding"] == "gzip"
    assert len(packed.content) < len(plain.content)
    assert json.loads(gzip.decompress(packed.content)) == plain.json()
    assert router.get(url(fleet), headers={"If-None-Match": packed["ETag"]}).status_code == 304


def test_a_destination_that_goes_down_is_a_new_version(router, cast, fleet):
    before = router.get(url(fleet)).json()
    change_destination(acting_user=cast.linus, destination=fleet.destinations.get(index=2), state="down")
    after = router.get(url(fleet)).json()
    assert after["version"] == before["version"] + 1
    assert after["digest"] != before["digest"]
    assert after["destinations"][2]["state"] == "down"


def test_the_scope_route_opens_it_and_read_does_not(clients, cast, fleet, problem):
    problem(clients.token(cast.linus, ["read"]).get(url(fleet)), 403, "permission-denied")
    assert clients.vera.get(url(fleet)).status_code == 200


@pytest.mark.parametrize("wait", ["x", "-1", "1.5", "nan", "%00"])
def test_a_wait_that_is_no_number_of_seconds_is_a_400(router, fleet, problem, wait):
    problem(router.get(url(fleet, wait)), 400, "invalid", "/wait" if wait != "%00" else None)


def test_a_router_that_knows_the_newest_waits_and_gets_a_304(router, fleet, django_db_blocker, transactional_db):
    tag = router.get(url(fleet))["ETag"]
    started = time.monotonic()
    response = router.get(url(fleet, 1), headers={"If-None-Match": tag})
    assert 0.4 < time.monotonic() - started < 2 * lateness()
    assert (response.status_code, response["ETag"]) == (304, tag)


def test_a_waiting_router_receives_a_fall_back_at_once(clients, cast, fleet, transactional_db):
    rollout = start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))
    advance_rollout(acting_user=cast.linus, rollout=make.pass_step(rollout))
    router = clients.token(cast.linus, ["route"], fleet)
    table = router.get(url(fleet))
    assert table.json()["arms"][0]["keys"]
    heard = {}

    def wait():
        heard["response"] = router.get(url(fleet, 20), headers={"If-None-Match": table["ETag"]})
        heard["at"] = time.monotonic()
        connection.close()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(1.0)
    assert thread.is_alive()
    fell_back = clients.token(cast.linus, ["deploy"]).post(f"/api/v1/fleets/{fleet.slug}/fall-back/")
    at = time.monotonic()
    thread.join(10)
    assert fell_back.status_code == 200
    assert heard["response"].status_code == 200
    assert heard["at"] - at < 1.5 * lateness()
    body = heard["response"].json()
    assert body["arms"] == [{"name": "incumbent", "plan": 0, "kind": "flat", "weight": 1.0, "keys": {}, "backup": {}}]
    assert body["version"] > table.json()["version"]


def test_routers_beyond_the_places_to_wait_are_answered_at_once(router, fleet, transactional_db):
    tag = router.get(url(fleet))["ETag"]

    def wait():
        router.get(url(fleet, 2), headers={"If-None-Match": tag})
        connection.close()

    waiting = [threading.Thread(target=wait) for _ in range(view.MAX_WAITING)]
    for thread in waiting:
        thread.start()
    time.sleep(0.8)
    started = time.monotonic()
    response = router.get(url(fleet, 20), headers={"If-None-Match": tag})
    assert time.monotonic() - started < 0.5 * lateness()
    assert response.status_code == 304
    for thread in waiting:
        thread.join()
    started = time.monotonic()
    assert router.get(url(fleet, 1), headers={"If-None-Match": tag}).status_code == 304
    assert time.monotonic() - started > 0.4  # their places are free again


def test_a_version_is_rendered_once_and_a_change_renders_anew(router, cast, fleet, canary, monkeypatch):
    rendered = []
    document = routing_tables._document
    monkeypatch.setattr(routing_tables, "_document", lambda fleet: rendered.append(1) or document(fleet))
    first = router.get(url(fleet)).content
    assert router.get(url(fleet)).content == first
    assert len(rendered) == 1
    fall_back(acting_user=cast.linus, fleet=fleet)
    assert router.get(url(fleet)).json()["arms"][0]["plan"] == 0
    assert len(rendered) == 2
