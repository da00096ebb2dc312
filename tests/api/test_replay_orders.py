"""Ordering replays by API: every option, strictly, and how far the job is."""

import pytest

from planner.models import Job, Replay
from planner.services import cells
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
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_a_400_with_a_pointer(clients, plan, problem, options, pointer):
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
    table = plan.table.digest
    assert stored["switch"] == {"plan": plan.number, "id": plan.pk, "table": table, "at": 0.5}
    assert stored["also"] == [{"plan": plan.number, "id": plan.pk, "table": table}]
    assert {name: stored[name] for name in ("policy_parameters", "run_length", "warmup", "refine", "extend")} == {
        "policy_parameters": {"sticky": {"vnodes": 20}}, "run_length": 7, "warmup": 0.1, "refine": 1, "extend": True
    }  # fmt: skip


def test_a_replay_can_be_ordered_by_a_plain_form(clients, plan):
    answer = clients.ada.post(URL, {"plan": plan.pk, "requests": 500}, format="multipart")
    assert answer.status_code == 202, answer.content
    row = Replay.objects.get()
    assert (row.what_if, row.parameters["faults"], row.parameters["switch"]) == (False, [], None)


def test_the_job_says_how_long_it_ran_and_what_is_left_and_the_replay_its_digest(clients, plan):
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
