"""Common rules of all endpoints: access, problems, values that cannot be stored."""

import itertools

import pytest
from django.test import override_settings

from planner.api.urls import router
from planner.models import Calibration, Fleet, Plan
from planner.services.rollouts import freezes
from tests import factories as make

pytestmark = pytest.mark.django_db

API = "/api/v1"
NOUNS = [
    "fleets", "destinations", "workloads", "calibrations", "plans", "replays", "gates", "approvals", "rollouts",
    "waivers", "freezes", "telemetry", "drift-checks", "jobs", "audit-events", "tokens", "policy-versions",
    "break-glass", "webhooks", "webhook-deliveries", "audit-checkpoints",
]  # fmt: skip


def calibration(fleet, **values):
    return {"fleet": fleet.slug, "q_cap": 8, "slots_measured": 60, **values}


# --- who may ask -------------------------------------------------------------------------------------
@pytest.mark.parametrize("noun", NOUNS)
def test_without_signing_in_every_noun_is_a_401_problem(client, noun, problem):
    response = client.get(f"{API}/{noun}/")
    problem(response, 401, "not-authenticated")
    assert response["WWW-Authenticate"] == "Token"


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_lists_for_each_signed_in_user(clients, fleet, noun):
    body = clients.vera.get(f"{API}/{noun}/").json()
    assert set(body) == {"next", "previous", "results"}


@pytest.mark.parametrize("noun", sorted(set(NOUNS) - {"tokens"}))
def test_a_token_reads_with_the_scope_read_only(clients, cast, fleet, noun, problem):
    others = ["ingest", "plan", "deploy", "route"]
    problem(clients.token(cast.ada, others).get(f"{API}/{noun}/"), 403, "permission-denied")
    assert clients.token(cast.ada, ["read"]).get(f"{API}/{noun}/").status_code == 200


WRITES = {
    "/workloads/": "ingest",
    "/calibrations/": "plan",
    "/calibrations/simulate/": "plan",
    "/calibrations/import/": "plan",
    "/calibrations/{calibration}/fit/": "plan",
    "/plans/": "plan",
    "/plans/{plan}/submit/": "plan",
    "/replays/": "plan",
    "/gates/": "plan",
    "/rollouts/": "deploy",
    "/rollouts/{rollout}/advance/": "deploy",
    "/rollouts/{rollout}/promote/": "deploy",
    "/rollouts/{rollout}/pause/": "deploy",
    "/rollouts/{rollout}/resume/": "deploy",
    "/rollouts/{rollout}/abort/": "deploy",
    "/rollouts/{rollout}/reschedule/": "deploy",
    "/freezes/": "deploy",
    "/freezes/{freeze}/lift/": "deploy",
    "/fleets/": "deploy",
    "/destinations/": "deploy",
    "/fleets/{fleet}/fall-back/": "deploy",
    "/fleets/{fleet}/roll-back/": "deploy",
    "/fleets/{fleet}/freeze/": "deploy",
    "/fleets/{fleet}/unfreeze/": "deploy",
    "/jobs/{job}/cancel/": "plan",
}


@pytest.mark.parametrize(("path", "scope"), WRITES.items())
def test_a_write_asks_for_exactly_one_scope(clients, cast, fleet, path, scope, problem):
    plan, job = make.order_plan(cast, fleet)
    freeze = freezes.freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")
    rows = {"calibration": plan.calibration_id, "rollout": fleet.rollouts.get().pk, "freeze": freeze.pk}
    url = API + path.format(plan=plan.pk, fleet=fleet.slug, job=job.pk, **rows)
    without = [s for s in ("read", "ingest", "plan", "deploy", "route") if s != scope]
    problem(clients.token(cast.root, without).post(url, {}, format=None), 403, "permission-denied")
    assert clients.token(cast.root, [scope]).post(url, {}, format=None).status_code != 403


@pytest.mark.parametrize("action", ["approve", "reject"])
def test_no_token_ever_decides_on_a_plan(clients, cast, fleet, action, problem):
    plan = make.submitted_plan(cast, fleet)
    body = {"evidence_digest": make.evaluation_of(plan).evidence_digest, "comment": "fine"}
    token = clients.token(cast.grace)
    url = f"{API}/plans/{plan.pk}/{action}/"
    answer = problem(token.post(url, body, headers={"If-Match": f'"{plan.version}"'}), 403, "permission-denied")
    assert "Sign in" in answer["detail"]
    assert Plan.objects.get(pk=plan.pk).state == Plan.State.IN_REVIEW


def test_a_token_does_no_more_than_its_person_may(clients, cast, fleet, problem):
    token = clients.token(cast.vera)
    problem(token.post(f"{API}/calibrations/", calibration(fleet)), 403, "not-allowed")
    problem(token.post(f"{API}/fleets/{fleet.slug}/fall-back/"), 403, "not-allowed")


@pytest.mark.parametrize("header", ["Token", "Token a b", "Token crt_unknown", "Token \xff", "Token " + "x" * 10_000])
def test_an_invalid_token_is_a_401(client, db, header, problem):
    problem(client.get(f"{API}/fleets/", headers={"Authorization": header}), 401, "authentication-failed")


def test_a_write_by_session_wants_the_csrf_token(cast, fleet, problem):
    from rest_framework.test import APIClient

    browser = APIClient(enforce_csrf_checks=True)
    browser.force_login(cast.linus)
    problem(browser.post(f"{API}/fleets/{fleet.slug}/fall-back/"), 403, "permission-denied")


# --- a token of one fleet ------------------------------------------------------------------------------
@pytest.fixture
def both_busy(cast, fleet, other_fleet):
    """Both fleets with something in every list that a fleet has."""
    for one in (fleet, other_fleet):
        make.approved_plan(cast, one)


def test_a_token_of_one_fleet_sees_that_fleet_only(clients, cast, fleet, other_fleet, both_busy):
    token = clients.token(cast.root, fleet=fleet)
    everything = clients.token(cast.root)
    filled = 0
    for noun in sorted(set(NOUNS) - {"tokens", "audit-checkpoints"}):
        mine = {row["id"] for row in token.get(f"{API}/{noun}/?page_size=500").json()["results"]}
        every = {row["id"] for row in everything.get(f"{API}/{noun}/?page_size=500").json()["results"]}
        assert mine <= every
        filled += bool(mine) and mine < every
        for pk in every - mine:
            where = Fleet.objects.get(pk=pk).slug if noun == "fleets" else pk
            assert token.get(f"{API}/{noun}/{where}/").status_code == 404
    assert filled == 14  # all that a fleet has but waivers, freezes, break-glass and webhooks


def test_a_token_of_one_fleet_names_no_other(clients, cast, fleet, other_fleet, problem):
    token = clients.token(cast.root, fleet=fleet)
    workload, figures = make.make_workload(cast, other_fleet), make.make_calibration(cast, other_fleet)
    plan = make.built_plan(cast, other_fleet)
    bodies = {
        "/calibrations/": calibration(other_fleet),
        "/destinations/": {"fleet": other_fleet.slug, "name": "d9", "url": "http://127.0.0.1:9109"},
        "/calibrations/simulate/": {"fleet": other_fleet.slug, "workload": workload.pk},
        "/plans/": {"fleet": other_fleet.slug, "workload": workload.pk, "calibration": figures.pk},
        "/replays/": {"plan": plan.pk},
        "/gates/": {"plan": plan.pk},
        "/rollouts/": {"plan": plan.pk},
        "/freezes/": {"fleet": other_fleet.slug, "reason": "holidays"},
    }
    for path, body in bodies.items():
        problem(token.post(API + path, body), 403, "permission-denied")
    own = make.make_workload(cast, fleet)
    mixed = {"fleet": fleet.slug, "workload": own.pk, "calibration": figures.pk}
    problem(token.post(f"{API}/plans/", mixed), 403, "permission-denied")
    problem(token.post(f"{API}/fleets/{other_fleet.slug}/fall-back/"), 404, "not-found")
    problem(token.get(f"{API}/fleets/{other_fleet.slug}/routing-table/"), 404, "not-found")


def test_a_token_of_one_fleet_makes_no_fleets(clients, cast, fleet, problem):
    body = {
        "slug": "gamma", "name": "Gamma", "engine_profile": "llama-3.1-8b-h100",
        "destinations": [{"name": "d0", "url": "http://127.0.0.1:9000"}],
    }  # fmt: skip
    problem(clients.token(cast.root, fleet=fleet).post(f"{API}/fleets/", body), 403, "permission-denied")
    assert not Fleet.objects.filter(slug="gamma").exists()
    assert clients.token(cast.root).post(f"{API}/fleets/", body).status_code == 201


# --- problems --------------------------------------------------------------------------------------------
def test_a_value_that_cannot_be_used_is_pointed_at(clients, fleet, problem):
    answer = problem(
        clients.ada.post(f"{API}/calibrations/", calibration(fleet, q_cap="many")), 400, "invalid", "/q_cap"
    )
    assert "q_cap" in answer["detail"]


def test_pointers_reach_into_lists_and_objects(clients, cast, fleet, problem):
    workload, figures = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    body = {
        "fleet": fleet.slug, "workload": workload.pk, "calibration": figures.pk,
        "replay": {"loads_rps": [1, -1], "policies": ["flat-lb", "magic"]},
    }  # fmt: skip
    response = clients.ada.post(f"{API}/plans/", body)
    problem(response, 400, "invalid", "/replay/loads_rps/1")
    problem(response, 400, "invalid", "/replay/policies/1")
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_a_refusal_of_the_rules_points_to_its_field(clients, fleet, problem):
    problem(clients.ada.post(f"{API}/calibrations/", calibration(fleet, margin=0)), 400, "invalid", "/margin")


@pytest.mark.parametrize(
    "path", ["/plans/0/", "/plans/x/", "/plans/9999999999999999999999/", "/fleets/none/", "/no/", "/a/b/c/"]
)
def test_a_missing_row_is_a_404_problem(clients, fleet, path, problem):
    problem(clients.vera.get(API + path), 404, "not-found")


def test_an_address_without_its_slash_is_redirected(clients, fleet):
    response = clients.vera.get(f"{API}/plans")
    assert (response.status_code, response["Location"]) == (301, f"{API}/plans/")


def test_a_method_that_is_not_there_is_a_405_problem(clients, fleet, problem):
    response = clients.root.put(f"{API}/fleets/{fleet.slug}/", {})
    problem(response, 405, "method-not-allowed")
    assert "PATCH" in response["Allow"]


def test_a_body_of_another_type_is_a_415_problem(clients, fleet, problem):
    response = clients.ada.generic("POST", f"{API}/plans/", "<plan/>", content_type="application/xml")
    problem(response, 415, "unsupported-media-type")


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"\xff\xfe", b"[" * 100_000, b'{"q_cap": NaN}', b'{"q_cap": Infinity}', b'{"q_cap": ' + b"9" * 5000,
        b"[]", b"[1]", b'"text"', b"1", b"null",
    ],
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_a_400(clients, fleet, body, problem):
    for more in ({}, {"Idempotency-Key": "weird"}):
        response = clients.ada.generic(
            "POST", f"{API}/calibrations/", body, content_type="application/json", headers=more
        )
        assert response.status_code == 400, response.content
        assert response["Content-Type"] == "application/problem+json"
    assert not Calibration.objects.exists()


@override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=1000)
@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
def test_a_body_that_is_too_large_for_memory_is_a_413(clients, cast, fleet, kind, problem):
    for client in (clients.ada, clients.token(cast.ada)):
        response = client.generic("POST", f"{API}/calibrations/", b" " * 1001, content_type=kind)
        problem(response, 413, "too-large")


@override_settings(DATA_UPLOAD_MAX_NUMBER_FIELDS=3)
def test_a_form_of_too_many_fields_is_a_400(clients, cast, fleet, problem):
    body = "&".join(f"f{i}=1" for i in range(9))
    for client in (clients.ada, clients.token(cast.ada)):
        response = client.generic(
            "POST", f"{API}/calibrations/", body, content_type="application/x-www-form-urlencoded"
        )
        problem(response, 400, "invalid")


# --- what the database cannot hold -------------------------------------------------------------------------
WEIRD = {
    "NUL": "a\0b", "half a surrogate pair": "\ud800", "infinite": float("inf"), "huge": 10**400, "long": 10**30,
    "text that reads as NaN": "nan", "true": True, "null": None, "list": [], "object": {"\0": 1},
}  # fmt: skip


@pytest.mark.parametrize("value", WEIRD.values(), ids=WEIRD.keys())
def test_no_field_of_a_body_takes_a_weird_value_to_the_database(clients, cast, fleet, value):
    import json

    workload, figures = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    plan = make.built_plan(cast, fleet)
    good = {
        "/calibrations/": calibration(fleet, margin=0.5, q_cap_censored="", knee_method="k", points=[], note=""),
        "/calibrations/simulate/": {"fleet": fleet.slug, "workload": workload.pk, "margin": 2},
        "/plans/": {
            "fleet": fleet.slug, "workload": workload.pk, "calibration": figures.pk, "admission": "top_rate",
            "balance_target": 2, "slots_per_destination": 9, "replay": None, "note": "",
        },
        "/replays/": {"plan": 0, "loads_rps": [], "seeds": [], "policies": [], "arrivals": "", "cv": 1, "warmup": 0},
        "/gates/": {"plan": 0},
        "/rollouts/": {"plan": 0, "scheduled_for": None},
        f"/rollouts/{fleet.rollouts.get().pk}/promote/": {"reason": "now"},
        f"/rollouts/{fleet.rollouts.get().pk}/reschedule/": {"scheduled_for": "2036-03-14T10:00:00Z"},
        f"/fleets/{fleet.slug}/fall-back/": {"reason": ""},
        f"/fleets/{fleet.slug}/roll-back/": {"plan": 0, "reason": "now"},
        f"/fleets/{fleet.slug}/freeze/": {"reason": ""},
        "/freezes/": {"fleet": None, "reason": "now"},
        f"/plans/{plan.pk}/approve/": {"evidence_digest": "0", "comment": ""},
        f"/plans/{plan.pk}/reject/": {"comment": ""},
        "/tokens/": {"name": "n", "scopes": ["read"], "fleet": None, "expires_at": None},
        "/fleets/": {
            "slug": "new", "name": "New", "description": "", "engine_profile": "llama-3.1-8b-h100", "slo_p99_s": 3,
            "min_approvals": 1, "max_rates_age_days": 7, "max_imbalance": 2, "canary_weights": [0.1],
            "destinations": [],
        },
    }  # fmt: skip
    root, keys = clients.root, itertools.count()
    for path, body in good.items():
        for name in body:
            for sent in (value, [value], [{"name": value, "url": value}]):
                text = json.dumps({**body, name: sent}).replace("Infinity", "1e400")
                headers = {"If-Match": '"1"', "Idempotency-Key": f"k{next(keys)}"}
                response = root.generic("POST", API + path, text, content_type="application/json", headers=headers)
                assert response.status_code < 500, (path, name, sent)


@pytest.mark.parametrize("noun", NOUNS)
def test_no_address_or_query_takes_a_weird_value_to_the_database(clients, fleet, noun):
    weird = ["%00", "%ed%a0%80", "9" * 30, "-1", "1e400", "nan", "1.5", "%D9%A1"]
    view = next(view for prefix, view, _ in router.registry if prefix == noun)
    fields = getattr(view, "filterset_fields", None) or view.filterset_class.get_fields()
    if not isinstance(fields, list):
        fields = [name if how == "exact" else f"{name}__{how}" for name in fields for how in fields[name]]
    for value in weird:
        assert clients.root.get(f"{API}/{noun}/{value}/").status_code in (200, 404)
        for name in [*fields, "page_size", "cursor"]:
            response = clients.root.get(f"{API}/{noun}/?{name}={value}")
            assert response.status_code in (200, 400, 404), (name, value)


@pytest.mark.parametrize("cursor", ["cD1h", "cD0tMQ==", "cD0lMDA=", "cj0xJnA9eA==", "%00"])
def test_a_cursor_that_is_not_ours_is_a_problem(clients, fleet, cursor):
    response = clients.vera.get(f"{API}/fleets/?cursor={cursor}")
    assert response.status_code in (400, 404)


@pytest.mark.parametrize("key", ["a\0b", "\x7f", "\xe9", "x" * 256])
def test_an_idempotency_key_is_short_printable_ascii(clients, fleet, key, problem):
    body = {"reason": "drill"}
    response = clients.linus.post(f"{API}/fleets/{fleet.slug}/freeze/", body, headers={"Idempotency-Key": key})
    problem(response, 400, "invalid")
    assert not fleet.freezes.exists()
