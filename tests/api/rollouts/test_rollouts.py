"""Rollouts by the API: state, If-Match on every action, and fallback with any body."""

import datetime as dt

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from planner.models import AuditEvent, Freeze, Rollout
from planner.services.access.break_glass import open_break_glass
from planner.services.rollouts.freezes import freeze
from planner.services.rollouts.rollback import roll_back
from planner.services.rollouts.steps import pause_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db

API = "/api/v1"
STEPS = {"canary_weights": [0.01, 0.5], "canary_holds_s": [300.0]}


@pytest.fixture
def stepped(cast):
    return make.make_fleet(cast, "stepped", **STEPS)


@pytest.fixture
def plan(cast, stepped):
    return make.approved_plan(cast, stepped)


@pytest.fixture
def canary(cast, stepped, plan):
    return make.canary(cast, stepped, plan)


def at(rollout, action=""):
    return f"{API}/rollouts/{rollout.pk}/{action}"


def tag(rollout):
    return {"If-Match": f'"{Rollout.objects.get(pk=rollout.pk).version}"'}


def arms(client, fleet):
    return [(a["plan"], a["weight"]) for a in client.get(f"{API}/fleets/{fleet.slug}/routing-table/").json()["arms"]]


def test_a_rollout_tells_where_it_stands_and_what_holds_it(clients, cast, stepped, plan, canary):
    make.pass_step(canary, "inconclusive", "412 of 1,000 requests")
    pause_rollout(acting_user=cast.linus, rollout=canary, reason="lunch")
    freeze(acting_user=cast.root, fleet=None, reason="holidays")
    body = clients.vera.get(at(canary)).json()
    assert (body["state"], body["kind"], body["weight"], body["step"]) == ("canary", "canary", 0.01, 1)
    assert body["planned_steps"] == [{"weight": 0.01, "hold_s": 300.0}, {"weight": 0.5, "hold_s": 300.0}]
    assert [step["weight"] for step in body["steps"]] == [0.01]
    assert body["next_weight"] == 0.5
    assert 290 < body["hold_left_s"] <= 300
    assert (body["analysis"]["verdict"], body["analysis"]["step"]) == ("inconclusive", 1)
    assert [held["code"] for held in body["held"]] == ["frozen", "paused", "watching", "analysis"]
    assert "412 of 1,000 requests" in body["held"][3]["message"]
    assert (body["paused_by"], body["pause_reason"]) == ("linus", "lunch")
    assert body["evidence_digest"] == make.evaluation_of(plan).evidence_digest
    (listed,) = clients.vera.get(f"{API}/rollouts/?state=canary").json()["results"]
    assert {**listed, "hold_left_s": 0} == {**body, "hold_left_s": 0}


def test_what_is_active_or_over_is_held_by_nothing(clients, cast, fleet):
    plan = make.active_plan(cast, fleet)
    body = clients.vera.get(at(fleet.rollouts.get(plan=plan))).json()
    assert (body["held"], body["next_weight"], body["hold_left_s"], body["step"]) == ([], None, 0.0, 2)


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("advance", {}),
        ("promote", {"reason": "now"}),
        ("pause", {}),
        ("resume", {}),
        ("abort", {}),
        ("reschedule", {"scheduled_for": "2036-03-14T10:00:00Z"}),
    ],
)
def test_every_move_wants_the_version_that_was_read(clients, canary, problem, action, body):
    problem(clients.linus.post(at(canary, f"{action}/"), body), 428, "precondition-required")
    stale = {"If-Match": f'"{canary.version + 7}"'}
    problem(clients.linus.post(at(canary, f"{action}/"), body, headers=stale), 412, "stale-version")
    problem(clients.vera.post(at(canary, f"{action}/"), body, headers=tag(canary)), 403, "not-allowed")


def test_a_held_canary_answers_409_with_what_to_do(clients, canary, problem):
    answer = problem(clients.linus.post(at(canary, "advance/"), headers=tag(canary)), 409, "held")
    assert "5 min are left" in answer["detail"]
    assert "telemetry of both arms" in answer["detail"]


def test_from_the_first_step_to_active(clients, cast, stepped, canary):
    client = clients.token(cast.linus, ["deploy"])
    make.pass_step(make.watched(canary, 301))
    second = client.post(at(canary, "advance/"), headers=tag(canary))
    assert (second.status_code, second.json()["weight"], second.json()["step"]) == (200, 0.5, 2)
    assert second["ETag"] == f'"{second.json()["version"]}"'
    make.pass_step(make.watched(canary, 301))
    paused = client.post(at(canary, "pause/"), {"reason": "lunch"}, headers=tag(canary))
    assert paused.json()["paused_by"] == "linus"
    assert client.post(at(canary, "resume/"), headers=tag(canary)).json()["paused_at"] is None
    active = client.post(at(canary, "advance/"), headers=tag(canary)).json()
    assert (active["state"], active["weight"]) == ("active", 1.0)
    assert [row["verdict"] for row in clients.vera.get(at(canary, "analyses/")).json()["results"]] == ["pass", "pass"]


def test_promote_is_a_move_with_a_reason(clients, canary, problem):
    make.pass_step(canary)
    problem(clients.linus.post(at(canary, "promote/"), {}, headers=tag(canary)), 400, "invalid", "/reason")
    done = clients.linus.post(at(canary, "promote/"), {"reason": "the fix cannot wait"}, headers=tag(canary))
    assert done.json()["state"] == "active"


def test_abort_of_what_is_active_names_the_ways_out(clients, cast, fleet, problem):
    rollout = make.activate(cast, make.canary(cast, fleet))
    answer = problem(clients.linus.post(at(rollout, "abort/"), headers=tag(rollout)), 409, "active")
    assert "roll back" in answer["detail"]


# --- schedules ------------------------------------------------------------------------------------------------
def test_a_start_is_scheduled_moved_and_called_off(clients, stepped, plan):
    first, later = timezone.now() + dt.timedelta(hours=1), timezone.now() + dt.timedelta(hours=5)
    made = clients.linus.post(f"{API}/rollouts/", {"plan": plan.pk, "scheduled_for": first.isoformat()})
    assert (made.status_code, made.json()["state"], made.json()["steps"]) == (201, "scheduled", [])
    rollout = Rollout.objects.get(pk=made.json()["id"])
    assert arms(clients.vera, stepped) == [(0, 1.0)]
    moved = clients.linus.post(at(rollout, "reschedule/"), {"scheduled_for": later.isoformat()}, headers=tag(rollout))
    assert dt.datetime.fromisoformat(moved.json()["scheduled_for"]) == later
    gone = clients.linus.post(at(rollout, "abort/"), {"reason": "not today"}, headers=tag(rollout)).json()
    assert (gone["state"], gone["end_reason"]) == ("aborted", "not today")


@pytest.mark.parametrize("when", ["2001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+15:00", "soon"])
def test_a_time_that_cannot_be_is_pointed_to(clients, plan, when, problem):
    answer = clients.linus.post(f"{API}/rollouts/", {"plan": plan.pk, "scheduled_for": when})
    problem(answer, 400, "invalid", "/scheduled_for")


def test_one_ahead_a_fleet_is_a_409(clients, cast, stepped, canary, problem):
    other = make.approved_plan(cast, stepped)
    problem(clients.linus.post(f"{API}/rollouts/", {"plan": other.pk}), 409, "canary-running")


# --- ways back ------------------------------------------------------------------------------------------------
def test_rolling_back_needs_a_plan_and_a_reason_and_no_more(clients, cast, fleet, problem):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    client, url = clients.token(cast.linus, ["deploy"], fleet), f"{API}/fleets/{fleet.slug}/roll-back/"
    problem(client.post(url, {"plan": first.pk}), 400, "invalid", "/reason")
    problem(client.post(url, {"plan": first.pk, "reason": " "}), 400, "invalid", "/reason")
    body = client.post(url, {"plan": first.pk, "reason": "p99 up"}).json()
    assert (body["state"], body["kind"], body["plan"]) == ("active", "rollback", first.pk)
    assert arms(clients.vera, fleet) == [(first.number, 1.0)]
    problem(client.post(url, {"plan": make.approved_plan(cast, fleet).pk, "reason": "x"}), 409, "never-active")


def test_a_plan_of_another_fleet_is_no_way_back(clients, cast, fleet, other_fleet, problem):
    plan = make.active_plan(cast, other_fleet)
    url, body = f"{API}/fleets/{fleet.slug}/roll-back/", {"plan": plan.pk, "reason": "x"}
    problem(clients.linus.post(url, body), 409, "conflict", "/plan")
    problem(clients.token(cast.linus, fleet=fleet).post(url, body), 403, "permission-denied")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"reason": "p99 up"}', "application/json"),
        (b'{"reason": "p99 up"}', "application/x-www-form-urlencoded"),  # curl -d without a header
        (b"reason=p99+up", "application/x-www-form-urlencoded"),
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"[1]", "application/json"),
        (b'{"reason": "a\\u0000b"}', "application/json"),
        (b'{"reason": "\\ud800"}', "application/json"),
        (b'{"reason": {"a": 1}, "more": 1e999}', "application/json"),
        (b'{"reason": "' + b"x" * 9_000 + b'"}', "application/json"),
        (b"<reason/>", "application/xml"),
        (b"\xff\xfe", "text/plain"),
    ],
)
def test_nothing_in_a_body_keeps_a_fleet_from_falling_back(clients, cast, fleet, body, kind):
    make.active_plan(cast, fleet)
    response = clients.linus.generic("POST", f"{API}/fleets/{fleet.slug}/fall-back/", body, content_type=kind)
    assert response.status_code == 200, response.content
    assert (response.json()["kind"], response.json()["plan"]) == ("fallback", fleet.plans.get(kind="flat").pk)
    assert arms(clients.vera, fleet) == [(0, 1.0)]
    if b'"p99 up"' in body and kind == "application/json":
        assert AuditEvent.objects.get(action="fleet.fell_back").reason == "p99 up"


def test_a_repeated_key_falls_back_again_for_what_was_true_at_the_first_may_not_be_now(clients, cast, fleet):
    plan = make.active_plan(cast, fleet)
    url, key = f"{API}/fleets/{fleet.slug}/fall-back/", {"Idempotency-Key": "drill"}
    for _ in range(2):
        assert clients.linus.post(url, headers=key).json()["kind"] == "fallback"
    assert AuditEvent.objects.filter(action="fleet.fell_back").count() == 1
    roll_back(acting_user=cast.linus, fleet=fleet, plan=plan, reason="it was the network")
    assert clients.linus.post(url, {"reason": "again"}, headers=key).status_code == 200
    assert arms(clients.vera, fleet) == [(0, 1.0)]


@pytest.mark.parametrize(
    ("body", "headers", "query"),
    [
        (b'{"reason":', {"Content-Type": "application/json"}, ""),
        (b"[" * 100_000, {"Content-Type": "application/json"}, ""),
        (b"\xff", {"Content-Type": "application/json; charset=nobody-knows"}, ""),
        (b"--x", {"Content-Type": "multipart/form-data"}, ""),
        (b"a=1", {"Content-Type": "application/x-unheard-of"}, ""),
        (b"{}", {"Content-Type": "application/json", "Idempotency-Key": "k" * 300}, ""),
        (b"{}", {"Content-Type": "application/json", "Accept": "text/xml"}, ""),
        (b"{}", {"Content-Type": "application/json"}, "?format=xml"),
        (b"{}", {"Content-Type": "application/json"}, "?x=%00"),
        (b'{"reason": "' + b"x" * 3_000_000 + b'"}', {"Content-Type": "application/json"}, ""),
    ],
)
def test_nothing_in_a_request_keeps_a_person_in_a_browser_from_falling_back(cast, fleet, body, headers, query):
    make.active_plan(cast, fleet)
    browser = APIClient(enforce_csrf_checks=True)
    browser.force_login(cast.linus)
    token = "a" * 32
    browser.cookies["csrftoken"] = token
    kind = headers.pop("Content-Type")
    response = browser.generic(
        "POST", f"{API}/fleets/{fleet.slug}/fall-back/{query}", body, content_type=kind,
        headers={**headers, "X-CSRFToken": token},
    )  # fmt: skip
    assert response.status_code == 200, response.content
    assert fleet.rollouts.get(state="active").plan.kind == "flat"


# --- freezes ---------------------------------------------------------------------------------------------------
def test_a_fleet_is_frozen_and_freed_by_who_operates_it(clients, cast, stepped, canary, problem):
    url = f"{API}/fleets/{stepped.slug}/"
    problem(clients.linus.post(f"{url}freeze/", {}), 400, "invalid", "/reason")
    problem(clients.vera.post(f"{url}freeze/", {"reason": "holidays"}), 403, "not-allowed")
    made = clients.linus.post(f"{url}freeze/", {"reason": "holidays"})
    assert (made.status_code, made.json()["fleet"], made.json()["frozen_by"]) == (201, stepped.slug, "linus")
    assert clients.vera.get(made["Location"]).json() == made.json()
    problem(clients.linus.post(at(canary, "advance/"), headers=tag(canary)), 409, "frozen")
    assert clients.grace.post(f"{url}unfreeze/").json()["lifted_by"] == "grace"
    problem(clients.linus.post(f"{url}unfreeze/"), 409, "not-frozen")


def test_all_fleets_are_frozen_by_who_manages_them(clients, cast, fleet, problem):
    problem(clients.linus.post(f"{API}/freezes/", {"reason": "holidays"}), 403, "not-allowed")
    one = clients.token(cast.root, ["deploy"], fleet)
    problem(one.post(f"{API}/freezes/", {"reason": "holidays"}), 403, "permission-denied")
    made = clients.token(cast.root, ["deploy"]).post(f"{API}/freezes/", {"reason": "holidays"})
    assert (made.status_code, made.json()["fleet"]) == (201, None)
    problem(one.post(f"{API}/freezes/{made.json()['id']}/lift/"), 403, "permission-denied")
    problem(clients.linus.post(f"{API}/freezes/{made.json()['id']}/lift/"), 403, "not-allowed")
    lifted = clients.root.post(f"{API}/freezes/{made.json()['id']}/lift/", {"reason": "back"})
    assert lifted.json()["lifted_by"] == "root"
    assert not Freeze.objects.filter(lifted_at=None).exists()


def test_a_freeze_of_one_fleet_by_the_list_of_freezes(clients, cast, fleet, other_fleet, problem):
    body = {"reason": "holidays", "fleet": fleet.slug}
    problem(clients.token(cast.linus, fleet=other_fleet).post(f"{API}/freezes/", body), 403, "permission-denied")
    assert clients.linus.post(f"{API}/freezes/", body).status_code == 201
    freeze(acting_user=cast.root, fleet=None, reason="audit week")
    mine = clients.token(cast.linus, fleet=other_fleet).get(f"{API}/freezes/?lifted_at__isnull=true").json()["results"]
    assert [row["fleet"] for row in mine] == [None]  # its own and those of all
    every = clients.vera.get(f"{API}/freezes/").json()["results"]
    assert [row["fleet"] for row in every] == [None, fleet.slug]


# --- blast radius ----------------------------------------------------------------------------------------------
def test_the_blast_radius_is_read_before_the_approval(clients, cast, fleet, problem):
    plan = make.submitted_plan(cast, fleet)
    body = clients.token(cast.vera, ["read"]).get(f"{API}/plans/{plan.pk}/blast-radius/").json()
    assert (body["against"], body["keys_gained"], body["estimate"]) == (0, plan.summary["admitted"], True)
    assert 0 < body["dip"]["cold_share"] <= body["rate_moved"] <= 1
    waiting, _job = make.order_plan(cast, fleet)
    problem(clients.vera.get(f"{API}/plans/{waiting.pk}/blast-radius/"), 409, "not-built")
    problem(clients.vera.get(f"{API}/plans/0/blast-radius/"), 404, "not-found")


# --- break-glass ----------------------------------------------------------------------------------------------
def test_a_token_does_not_have_the_break_glass_of_its_owner(clients, problem, cast, stepped, plan, canary):
    """Break-glass is for people: their program neither gains the right by it nor passes what holds a canary."""
    for person in (cast.ada, cast.linus):
        open_break_glass(acting_user=person, fleet=stepped, reason="p99 doubled, nobody else answers")
    fall_back = f"{API}/fleets/{stepped.slug}/fall-back/"
    problem(clients.token(cast.ada).post(fall_back), 403, "not-allowed")
    problem(clients.token(cast.linus).post(at(canary, "advance/"), headers=tag(canary)), 409, "held")
    assert Rollout.objects.get(pk=canary.pk).weight == 0.01
    # What the token may do by role is not done in the emergency.
    assert clients.token(cast.linus).post(at(canary, "pause/"), headers=tag(canary)).status_code == 200
    assert "emergency" not in AuditEvent.objects.get(action="rollout.paused").after
    assert clients.linus.post(at(canary, "advance/"), headers=tag(canary)).status_code == 200
    assert clients.ada.post(fall_back).status_code == 200
