"""Calibrations and fits by real workers: cancelled while they compute, and done once although a worker is killed."""

from __future__ import annotations

import io
import time

import pytest

from planner.models import AuditEvent, Calibration, Job, ServingProfile
from planner.services.calibrations import calibrations, fits, sweep_imports
from planner.services.jobs import jobs
from planner.services.jobs import sweep as sweep_module
from planner.services.jobs.cancellation import cancel_job
from tests import factories as make
from tests.integration.workers import Worker, wait_for
from tests.speed import lateness

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

# Enough points to be caught in the middle of them.
MANY = [0.02 * n for n in range(1, 51)]


def state(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


@pytest.fixture
def job(cast, fleet) -> Job:
    workload = make.make_workload(cast, fleet)
    return calibrations.order_calibration(acting_user=cast.ada, fleet=fleet, workload=workload, loads=MANY)


def test_a_calibration_ordered_by_api_is_done_by_a_worker(cast, fleet, client):
    workload = make.make_workload(cast, fleet)
    body = {"fleet": fleet.slug, "workload": workload.pk, "loads": [1.0, 2.0, 4.0]}
    answer = client.post("/api/v1/calibrations/simulate/", body, format="json")
    assert answer.status_code == 202
    with Worker():
        shown = wait_for(
            lambda: (found := client.get(answer.json()["job_url"]).json())["state"] == "succeeded" and found, 60, "done"
        )
    made = client.get(f"/api/v1/calibrations/{shown['result']['calibration']}/").json()
    assert [point["load_rps"] for point in made["points"]] == [1.0, 2.0, 4.0]
    at_once = calibrations.simulate_calibration(
        acting_user=cast.ada, fleet=fleet, workload=workload, loads=[1.0, 2.0, 4.0]
    )
    assert made["points"] == at_once.points, "the worker and this process agree to the last bit"


def test_a_cancelled_calibration_leaves_its_worker_free_within_two_seconds(cast, fleet, job):
    with Worker() as worker:
        wait_for(lambda: state(job).done >= 1, 60, "the first point is there")
        cancel_job(acting_user=cast.ada, job=state(job))
        started = time.monotonic()
        wait_for(lambda: jobs.locking.is_free(jobs.locking.JOB_SPACE, job.pk), 10, "the worker let go of the job")
        took = time.monotonic() - started
        done = state(job)
        plan, build = make.order_plan(cast, fleet)
        wait_for(lambda: state(build).state == "succeeded", 60, "the worker does the next job")
        assert worker.process.poll() is None
    assert took < 2.0 * lateness()
    assert (done.state, done.done < done.total) == ("cancelled", True)
    assert state(job).done == done.done, "nothing was recorded afterwards"
    assert not Calibration.objects.exclude(pk=plan.calibration_id).exists()


def test_a_calibration_whose_worker_is_killed_is_done_once_by_another(cast, fleet, job):
    with Worker() as first:
        wait_for(lambda: state(job).done >= 2, 60, "a part is done")
        first.freeze()
        assert state(job).state == "running", "caught too late: it was over already"
        first.kill()
        wait_for(lambda: sweep_module.sweep()["sent"] == 1, 5, "lock is freed")
    assert not Calibration.objects.exists()
    with Worker():
        wait_for(lambda: state(job).state == "succeeded", 60, "the other worker finished it")
    assert state(job).attempt == 2
    assert Calibration.objects.get().pk == state(job).result["calibration"]
    assert AuditEvent.objects.filter(action="calibration.recorded").count() == 1


def test_a_fit_is_done_by_a_worker(cast, fleet):
    workload = make.make_workload(cast, fleet)
    sweep = io.BytesIO(b"load_rps,p50_s,p99_s\n1,1.2,3.1\n2,1.3,3.4\n3,1.35,3.6\n")
    calibration = sweep_imports.import_sweep(
        acting_user=cast.ada, fleet=fleet, file=sweep, file_name="sweep.csv", slots_measured=50
    )
    job = fits.order_fit(acting_user=cast.ada, calibration=calibration, name="mine", workload=workload)
    with Worker():
        wait_for(lambda: state(job).state == "succeeded", 60, f"fitted: {state(job).error}")
    profile = ServingProfile.objects.get(name="mine")
    assert profile.pk == state(job).result["serving_profile"]
    assert len(profile.fit["residuals"]) == 3
