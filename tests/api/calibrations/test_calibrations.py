"""Calibrations by API: a simulated one is a job, a measured sweep is a file, constants are fitted by a job."""

import io

import pytest

from planner.models import Calibration, Job, ServingProfile
from planner.tasks import run_job
from tests import factories as make
from tests.services.calibrations.test_commands import SWEEP, TIMED

pytestmark = pytest.mark.django_db
API = "/api/v1"


def send(client, fleet, content=SWEEP, **fields):
    file = io.BytesIO(content.encode())
    file.name = "sweep.csv"
    body = {"fleet": fleet.slug, "file": file, **fields}
    return client.post(f"{API}/calibrations/import/", body, format="multipart")


def test_a_simulated_calibration_answers_202_and_its_job_names_the_result(clients, cast, fleet):
    workload = make.make_workload(cast, fleet)
    order = {"fleet": fleet.slug, "workload": workload.pk, "loads": [1.0, 2.0], "knee": "chord", "margin": 0.5}
    client = clients.token(cast.ada, ["read", "plan"])
    answer = client.post(f"{API}/calibrations/simulate/", order, format="json")
    assert answer.status_code == 202
    job = Job.objects.get(pk=answer.json()["job"])
    assert answer.json()["job_url"] == answer["Location"] == f"http://testserver{API}/jobs/{job.pk}/"
    shown = client.get(f"{API}/jobs/{job.pk}/").json()
    assert (shown["kind"], shown["state"], shown["done"], shown["payload"]["knee"]) == (
        "calibrate", "queued", 0, "chord",
    )  # fmt: skip
    run_job(job.pk)
    shown = client.get(f"{API}/jobs/{job.pk}/").json()
    assert (shown["state"], shown["done"]) == ("succeeded", shown["total"])
    made = client.get(f"{API}/calibrations/{shown['result']['calibration']}/").json()
    assert (made["source"], made["margin"], len(made["points"])) == ("simulated", 0.5, 2)
    assert made["knee_method"].startswith("farthest below the chord")


def test_a_second_order_with_the_workload_is_a_conflict_and_the_first_can_be_cancelled(clients, cast, fleet, problem):
    workload = make.make_workload(cast, fleet)
    order = {"fleet": fleet.slug, "workload": workload.pk}
    job = clients.ada.post(f"{API}/calibrations/simulate/", order).json()["job"]
    problem(clients.ada.post(f"{API}/calibrations/simulate/", order), 409, "conflict")
    assert clients.ada.post(f"{API}/jobs/{job}/cancel/").json()["state"] == "cancelled"
    assert clients.ada.post(f"{API}/calibrations/simulate/", order).status_code == 202


def test_a_measured_sweep_is_uploaded(clients, cast, fleet):
    fields = {"slots_measured": 60, "knee": "slo", "slo_s": 5, "note": "Tuesday"}
    answer = send(clients.token(cast.ada, ["plan"]), fleet, **fields)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert answer["Location"] == f"{API}/calibrations/{made['id']}/"
    assert (made["source"], made["q_cap"], made["q_cap_censored"], made["warm_slots"]) == ("measured", 2.0, "", 48)
    assert made["knee_method"] == "p99 within 5 s"
    assert [point["load_rps"] for point in made["points"]] == [1, 2, 4]
    assert [notice["code"] for notice in made["parameters"]["notices"]] == ["unsorted-rows"]


def test_a_fault_of_the_file_names_row_and_field(clients, fleet, problem):
    content = "load_rps,p99_s\n1,1\n1,2\n"
    answer = send(clients.ada, fleet, content, slots_measured=1)
    body = problem(answer, 400, "duplicate-load")
    assert (body["file"], body["row"], body["field"]) == ("sweep.csv", 3, "load_rps")
    assert not Calibration.objects.exists()


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({}, "/slots_measured"),
        ({"slots_measured": 1, "knee": "eye"}, "/knee"),
        ({"slots_measured": 1, "slo_s": 3}, "/slo_s"),
        ({"slots_measured": 1, "knee_factor": 1}, "/knee_factor"),
        ({"slots_measured": 1, "workload": 1}, "/workload"),
    ],
)
def test_bad_fields_are_pointed_at(clients, fleet, problem, fields, pointer):
    problem(send(clients.ada, fleet, **fields), 400, "invalid", pointer)


def test_constants_are_fitted_by_a_job_and_listed_with_what_they_came_from(clients, cast, fleet, problem):
    made = send(clients.ada, fleet, TIMED, slots_measured=1).json()
    url = f"{API}/calibrations/{made['id']}/fit/"
    assert clients.ada.get(url).json()["results"] == []
    answer = clients.ada.post(url, {"name": "mine"})
    assert answer.status_code == 202
    problem(clients.ada.post(url, {"name": "mine too"}), 409, "conflict")
    run_job(answer.json()["job"])
    job = clients.ada.get(answer.json()["job_url"]).json()
    assert job["state"] == "succeeded"
    [profile] = clients.vera.get(url).json()["results"]
    assert profile["id"] == job["result"]["serving_profile"] == ServingProfile.objects.get(name="mine").pk
    assert profile["engine_constants"]["iteration_s"] == pytest.approx(0.01)
    assert (profile["fit"]["method"], profile["fit"]["calibration"]) == ("iterations", made["id"])
    problem(clients.ada.post(url, {"name": "mine"}), 409, "exists", "/name")


def test_others_than_planners_and_tokens_without_the_scope_are_refused(clients, cast, fleet, problem):
    workload = make.make_workload(cast, fleet)
    calibration = make.make_calibration(cast, fleet)
    for client, code in ((clients.vera, "not-allowed"), (clients.token(cast.ada, ["ingest"]), "permission-denied")):
        answers = [
            client.post(f"{API}/calibrations/simulate/", {"fleet": fleet.slug, "workload": workload.pk}),
            send(client, fleet, slots_measured=1),
            client.post(f"{API}/calibrations/{calibration.pk}/fit/", {"name": "mine"}),
        ]
        for answer in answers:
            problem(answer, 403, code)


def test_a_token_of_another_fleet_neither_imports_here_nor_fits(clients, cast, fleet, other_fleet, problem):
    token = clients.token(cast.ada, fleet=other_fleet)
    problem(send(token, fleet, slots_measured=1), 403, "permission-denied")
    calibration = make.make_calibration(cast, fleet)
    problem(token.post(f"{API}/calibrations/{calibration.pk}/fit/", {"name": "mine"}), 404, "not-found")
