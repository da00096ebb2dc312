"""Explanations and sensitivity studies by the API."""

import pytest

from planner.models import Job, Study
from planner.tasks import run_job
from tests import factories as make

pytestmark = pytest.mark.django_db
CSV = "key,rate\nbig,9\nmid,3\nsmall,2\ntail,1.5\nlast,0.5\n"


@pytest.fixture
def plan(cast, fleet):
    calibration = make.make_calibration(cast, fleet, q_cap=5.0)
    workload = make.import_rates(cast, fleet, CSV)
    return make.built_plan(cast, fleet, workload=workload, calibration=calibration, slots_per_destination=1)


def explain(client, plan, **query):
    return client.get(f"/api/v1/plans/{plan.pk}/explain/", query)


def test_a_key_is_explained_by_name_to_each_reader(clients, cast, plan):
    told = explain(clients.token(cast.vera, ["read"]), plan, key="tail").json()
    assert (told["plan"], told["kind"], told["name"], told["rank"]) == (plan.pk, "key", "tail", 4)
    assert (told["reason"], told["figures"]["keys_before"]) == ("slots_gone", 3)
    assert told["sentence"].startswith("tail has rank 4 of 5 by rate")
    placed = explain(clients.vera, plan, key="mid").json()
    assert [member["destination"] for member in placed["members"]] == ["d2"]


def test_a_destination_is_explained_by_name(clients, plan):
    told = explain(clients.vera, plan, destination="d2").json()
    assert (told["kind"], told["load"], told["keys"]) == ("destination", 3.5, 1)
    assert told["busiest"][0]["key"] == "mid"
    assert told["receivers"][0]["destination"] == "d3"


@pytest.mark.parametrize(
    ("query", "pointer", "words"),
    [
        ({}, "/key", "not both"),
        ({"key": "big", "destination": "d0"}, "/destination", "not both"),
        ({"key": "bgi"}, "/key", "the closest: big"),
        ({"key": ""}, "/key", "no key named ''"),
        ({"key": "a\0b"}, "/key/0", "NUL"),
        ({"destination": "d9"}, "/destination", "the closest: d"),
    ],
)
def test_an_unknown_key_or_destination_is_pointed_to(clients, plan, problem, query, pointer, words):
    assert words in problem(explain(clients.vera, plan, **query), 400, "invalid", pointer)["detail"]


def test_a_plan_without_a_table_and_a_missing_plan_have_no_explanation(clients, cast, fleet, plan, problem):
    waiting, _job = make.order_plan(cast, fleet)
    problem(explain(clients.vera, waiting, key="big"), 409, "conflict")
    problem(explain(clients.vera, fleet.plans.get(kind="flat"), key="big"), 409, "conflict")
    problem(clients.vera.get(f"/api/v1/plans/{10**30}/explain/?key=big"), 404, "not-found")
    problem(clients.vera.get("/api/v1/plans/x/sensitivity/"), 404, "not-found")


def test_accounts_without_a_role_and_tokens_of_another_fleet_are_refused(clients, cast, other_fleet, plan, problem):
    problem(explain(clients.anonymous, plan, key="big"), 401, "not-authenticated")
    problem(explain(clients.token(cast.ada, ["ingest"]), plan, key="big"), 403, "permission-denied")
    problem(explain(clients.token(cast.ada, fleet=other_fleet), plan, key="big"), 404, "not-found")


def test_a_study_is_ordered_run_and_read(clients, cast, plan, problem):
    address = f"/api/v1/plans/{plan.pk}/sensitivity/"
    problem(clients.vera.get(address), 404, "not-found")
    token = clients.token(cast.ada, ["read", "plan"])
    ordered = token.post(address)
    assert ordered.status_code == 202, ordered.content
    job = Job.objects.get(pk=ordered.json()["job"])
    assert (job.kind, ordered.json()["plan"]) == ("study", plan.pk)
    assert ordered["Location"] == ordered.json()["job_url"] == f"http://testserver/api/v1/jobs/{job.pk}/"
    problem(token.post(address), 409, "conflict")
    run_job(job.pk)
    study = clients.vera.get(address).json()
    assert (study["plan"], study["kind"], study["created_by"]) == (plan.pk, "sensitivity", "ada")
    assert len(study["results"]["settings"]) == 125
    shown = clients.vera.get(f"/api/v1/jobs/{job.pk}/").json()
    assert (shown["kind"], shown["state"], shown["result"]["study"]) == ("study", "succeeded", study["id"])


def test_the_same_idempotency_key_orders_one_study(clients, cast, plan):
    token = clients.token(cast.ada, ["plan"])
    address, headers = f"/api/v1/plans/{plan.pk}/sensitivity/", {"Idempotency-Key": "study-1"}
    first, again = (token.post(address, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert again["Idempotency-Replayed"] == "true"
    assert Job.objects.filter(kind="study").count() == 1


def test_ordering_needs_the_scope_and_the_right(clients, cast, fleet, plan, problem):
    address = f"/api/v1/plans/{plan.pk}/sensitivity/"
    problem(clients.token(cast.ada, ["read"]).post(address), 403, "permission-denied")
    problem(clients.vera.post(address), 403, "not-allowed")
    flat = fleet.plans.get(kind="flat")
    problem(clients.ada.post(f"/api/v1/plans/{flat.pk}/sensitivity/"), 409, "conflict")
    assert not Study.objects.exists()
    assert not Job.objects.filter(kind="study").exists()
