"""Ordering replays by API: every option, strictly, and how far the job is."""

import pytest

from planner.models import Job, Replay
from planner.services.replays import cells
from tests import factories as make

pytestmark = pytest.mark.django_db
URL = "/api/v1/replays/"
SMALL = {"loads_rps": [4.0, 8.0], "seeds": [1], "requests": 500}


@pytest.fixture
def plan(cast, fleet):
    return make.built_plan(cast, fleet)


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"refinement": 2}, "/refinement"),
        ({"faults": [{"kind": "down", "destination": "d1", "start": 0.1, "until": 0.2}]}, "/faults/0/until"),
        ({"faults": [{"kind": "down", "destination": "nowhere", "start": 0.1}]}, "/faults/0/destination"),
        ({"faults": [{"kind": "down", "destination": "d1", "start": 1.5}]}, "/faults/0/start"),
        ({"faults": [{"kind": "down", "destination": "d1", "start": True}]}, "/faults/0/start"),
        ({"faults": [{"kind": "melt", "destination": "d1", "start": 0.5}]}, "/faults/0/kind"),
        ({"faults": {"kind": "down"}}, "/faults"),
        (
            {"faults": [{"kind": "down", "destination": f"d{i}", "start": 0.1} for i in range(4)]},
            "/faults",
        ),
        ({"switch": {"from_plan": 99, "at": 0.5}}, "/switch/from_plan"),
        ({"switch": {"from_plan": 99, "at": 0.5, "to": 1}}, "/switch/to"),
        ({"switch": 3}, "/switch"),
        ({"also": [99]}, "/also/0"),
        ({"also": ["x"]}, "/also/0"),
        ({"policy_parameters": {"sticky": {"vnode": 3}}}, "/policy_parameters/sticky/vnode"),
        ({"policy_parameters": {"sticky": {"vnodes": 0}}}, "/policy_parameters/sticky/vnodes"),
        ({"policy_parameters": [1]}, "/policy_parameters"),
        ({"run_length": 3}, "/run_length"),
        ({"refine": 99}, "/refine"),
        ({"extend": True}, "/extend"),
        ({"warmup": 0.99}, "/warmup"),
        ({"loads_rps": [1e9]}, "/loads_rps/0"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_a_400_with_a_pointer(clients, plan, problem, options, pointer):
    problem(clients.ada.post(URL, {"plan": plan.pk, "requests": 500, **options}), 400, "invalid", pointer)
    assert not Replay.objects.exists()


def test_a_misspelt_name_in_the_replay_of_a_plan_is_refused_too(clients, fleet, cast, problem):
    workload, calibration = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    order = {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk}
    problem(
        clients.ada.post("/api/v1/plans/", {**order, "replay": {"load_rps": [3]}}), 400, "invalid", "/replay/load_rps"
    )
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_every_option_reaches_the_replay(clients, cast, fleet, plan):
    newer = make.built_plan(cast, fleet)
    order = {
        **SMALL, "plan": newer.pk, "policies": ["sticky"], "policy_parameters": {"sticky": {"vnodes": 20}},
        "arrivals": "bootstrap", "run_length": 7, "warmup": 0.1, "also": [plan.number], "refine": 1, "extend": True,
        "faults": [{"kind": "slow", "destination": "d2", "start": 0.2, "end": None, "factor": 3}],
        "switch": {"from_plan": plan.number, "at": 0.5},
    }  # fmt: skip
    answer = clients.ada.post(URL, order)
    assert answer.status_code == 202, answer.content
    shown = clients.ada.get(f"{URL}{answer.json()['replay']}/").json()
    assert shown["what_if"] is True
    assert shown["policies"] == ["flat-lb", "cacheroute", "sticky", f"cacheroute@{plan.number}"]
    assert shown["arrivals"] == "bootstrap"
    stored = shown["parameters"]
    assert stored["faults"] == [
        {"kind": "slow", "destination": "d2", "position": 2, "start": 0.2, "end": None, "factor": 3.0}
    ]
    other = {"plan": plan.number, "id": plan.pk, "table": plan.table.digest, "keys": plan.summary["admitted"]}
    assert stored["switch"] == {**other, "unknown": 0, "at": 0.5}
    assert stored["also"] == [{**other, "unknown": 0}]
    assert {name: stored[name] for name in ("policy_parameters", "run_length", "warmup", "refine", "extend")} == {
        "policy_parameters": {"sticky": {"vnodes": 20}}, "run_length": 7, "warmup": 0.1, "refine": 1, "extend": True
    }  # fmt: skip


def test_a_replay_can_be_ordered_by_a_plain_form(clients, plan):
    answer = clients.ada.post(URL, {"plan": plan.pk, "requests": 500}, format="multipart")
    assert answer.status_code == 202, answer.content
    row = Replay.objects.get()
    assert (row.what_if, row.parameters["faults"], row.parameters["switch"]) == (False, [], None)


def test_the_job_has_elapsed_and_remaining_time_and_the_replay_its_digest(clients, plan):
    filed = clients.ada.post(URL, {"plan": plan.pk, **SMALL}).json()
    job, row = Job.objects.get(pk=filed["job"]), Replay.objects.get(pk=filed["replay"])
    address = f"/api/v1/jobs/{job.pk}/"
    before = clients.ada.get(address).json()
    assert (before["done"], before["total"], before["elapsed_s"], before["eta_s"]) == (0, 6, None, None)
    first, *others = row.cells.all()
    cells.run_cell(first.pk)
    during = clients.ada.get(address).json()
    assert during["done"] == 1
    assert during["elapsed_s"] > 0
    assert during["eta_s"] > 0
    assert clients.ada.get("/api/v1/jobs/").json()["results"][0]["eta_s"] > 0
    for cell in others:
        cells.run_cell(cell.pk)
    after = clients.ada.get(address).json()
    assert (after["done"], after["state"], after["eta_s"]) == (6, "succeeded", None)
    digest = clients.ada.get(f"{URL}{row.pk}/").json()["figures_digest"]
    assert len(digest) == 64
    assert after["result"]["figures_digest"] == digest


@pytest.mark.parametrize(
    ("replay", "pointer"),
    [
        ({"faults": [{"kind": "down", "destination": "nowhere", "start": 0.1}]}, "/replay/faults/0/destination"),
        ({"warmup": 0.99, "requests": 500}, "/replay/warmup"),
        ({"also": [99]}, "/replay/also/0"),
        ({"switch": {"from_plan": 99, "at": 0.5}}, "/replay/switch/from_plan"),
        ({"policy_parameters": {"sticky": {"vnodes": 0}}}, "/replay/policy_parameters/sticky/vnodes"),
        ({"loads_rps": [1e9]}, "/replay/loads_rps/0"),
    ],
)
def test_an_error_in_the_replay_of_an_order_is_pointed_to_in_the_order(clients, cast, fleet, problem, replay, pointer):
    workload, calibration = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    order = {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk, "replay": replay}
    problem(clients.ada.post("/api/v1/plans/", order), 400, "invalid", pointer)
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_the_first_of_many_errors_are_named_and_the_others_counted(clients, plan, problem):
    fault = {"kind": "down", "destination": "d1", "start": 0.1, **{f"stray{n:05d}": 1 for n in range(20_000)}}
    body = problem(clients.ada.post(URL, {"plan": plan.pk, "faults": [fault]}), 400, "invalid", "/faults/0/stray00000")
    assert len(body["errors"]) == 21
    assert body["errors"][-1] == {"pointer": "", "detail": "and 19,980 more."}
    long = {"plan": plan.pk, "x" * 1_000_000: 1}
    response = clients.ada.post(URL, long)
    problem(response, 400, "invalid")
    assert len(response.content) < 10_000


def test_lists_leave_out_the_verdict_but_for_its_capacities(clients, cast, plan):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    row = make.run_replay(cast, plan, **SMALL)
    client = clients.vera
    client.get(URL)
    with CaptureQueriesContext(connection) as captured:
        (listed,) = client.get(URL).json()["results"]
    (sql,) = [query["sql"] for query in captured if "jsonb_strip_nulls" in query["sql"]]
    whole = client.get(f"{URL}{row.pk}/").json()
    assert listed["verdict"] == {"capacity": whole["verdict"]["capacity"]}
    assert set(whole["verdict"]) > {"capacity", "policies", "against_flat"}
    assert {**listed, "verdict": 0} == {**whole, "verdict": 0}
    assert '"planner_replay"."verdict",' not in sql
    response = client.post(URL, {"plan": plan.pk, **SMALL})  # of a viewer: refused
    assert response.status_code == 403
    clients.ada.post(URL, {"plan": plan.pk, **SMALL})
    assert client.get(URL).json()["results"][0]["verdict"] == {}


def test_keys_of_other_plans_that_are_unknown_are_shown_by_api_and_page(clients, cast, fleet, plan):
    older = make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, "key,rate\nk000001,3\nother,2\n"))
    row = make.run_replay(cast, plan, **SMALL, also=[older.number])
    (other,) = clients.vera.get(f"{URL}{row.pk}/").json()["parameters"]["also"]
    assert (other["plan"], other["keys"], other["unknown"]) == (older.number, 2, 1)
    page = clients.vera.get(f"/fleets/{fleet.slug}/plans/{plan.number}/").content.decode()
    assert f"1 of 2 keys of plan {older.number} are unknown here and get no request" in page
