"""Jobs by real workers: done, done once, and done although workers and brokers die."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from planner.ingest import ImportedWorkload
from planner.models import Artifact, AuditEvent, Job, Plan, Replay
from planner.services.jobs import jobs
from planner.services.jobs.sweep import sweep
from planner.services.replays import orders as replay_orders
from planner.services.workloads import imports
from planner.simulation.synthetic import source_rate_shape, synthetic_key_names
from tests import factories as make
from tests.integration.workers import Worker, wait_for
from tests.speed import lateness

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
API = "/api/v1"


def state_of(job: Job | int) -> str:
    return Job.objects.values_list("state", flat=True).get(pk=getattr(job, "pk", job))


def order(client, cast, fleet, **options):
    """POST a plan; its job's id."""
    workload = options.pop("workload", None) or fleet.workloads.first() or make.make_workload(cast, fleet)
    calibration = fleet.calibrations.first() or make.make_calibration(cast, fleet)
    body = {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk, **options}
    response = client.post(f"{API}/plans/", body)
    assert response.status_code == 202, response.content
    return response.json()["job"]


def large_workload(cast, fleet, keys=600_000):
    """Rates alone, enough of them that a build can be caught in the middle."""
    rates = source_rate_shape(keys, total_rps=30.0)
    parsed = ImportedWorkload(
        format="generated", key_names=synthetic_key_names(keys), rates=rates, tenants=None, trace=None, window_s=1.0,
        requests=0, rows=keys, notices=[], parameters={}, source_name="large", source_sha256="1" * 64, source_bytes=1,
    )  # fmt: skip
    return imports.store_workload(acting_user=cast.ada, fleet=fleet, parsed=parsed, name="large")


def test_from_a_click_to_a_finished_plan_and_replay(client, cast, fleet):
    with Worker():
        make.hear(fleet)  # the gate asks whether routers report and somebody watches
        job = order(client, cast, fleet, replay=make.REPLAY)
        wait_for(lambda: state_of(job) == "succeeded", 20, "build")
        done = client.get(f"{API}/jobs/{job}/").json()
        assert (done["done"], done["total"], done["error"]) == (3, 3, "")
        following = done["result"]["replay_job"]
        wait_for(lambda: state_of(following) == "succeeded", 60, "replay")
    plan = Plan.objects.get(pk=done["result"]["plan"])
    assert plan.state == Plan.State.REPLAYED
    assert make.evaluation_of(plan).passed
    assert set(plan.replays.get().cells.values_list("state", "attempt")) == {("succeeded", 1)}


def test_a_build_whose_worker_is_killed_is_done_once_by_another(client, cast, fleet):
    workload = large_workload(cast, fleet)
    with Worker() as first:
        job = order(client, cast, fleet, workload=workload)
        wait_for(lambda: state_of(job) == "running", 20, "a worker is at it")
        first.freeze()
        assert state_of(job) == "running", "caught too late: the build was over already"
        first.kill()
        wait_for(lambda: Job.objects.get(pk=job).state == "running" and sweep()["sent"] == 1, 5, "lock is freed")
    with Worker():
        wait_for(lambda: state_of(job) == "succeeded", 30, "the other worker finished it")
    row = Job.objects.get(pk=job)
    assert row.attempt == 2
    assert AuditEvent.objects.filter(action="plan.built").count() == 1
    assert Artifact.objects.filter(kind="table").count() == 1
    assert Plan.objects.get(pk=row.subject_id).state == Plan.State.BUILT


def start_long_replay(cast, fleet):
    """A replay whose cells take a good part of a second each; its requests are synthesised from the rates."""
    plan = make.built_plan(cast, fleet, workload=make.make_workload(cast, fleet, with_trace=False))
    row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **{**make.REPLAY, "requests": 400_000})
    return plan, row, job


def freeze_in_a_cell(worker, row):
    """Stop the worker while it runs a cell; the cell's id."""

    def caught():
        worker.freeze()
        running = list(row.cells.filter(state="running").values_list("pk", flat=True))
        if not running:
            worker.thaw()
        return running

    (cell,) = wait_for(caught, 30, "frozen in a cell")
    return cell


def test_cells_whose_worker_is_killed_run_again_and_only_they(cast, fleet):
    with Worker(beat=True) as first:
        _, row, job = start_long_replay(cast, fleet)
        wait_for(lambda: row.cells.filter(state="succeeded").count() >= 2, 60, "some cells are done")
        lost = freeze_in_a_cell(first, row)
        kept = dict(row.cells.filter(state="succeeded").values_list("pk", "figures"))
        first.kill()
    with Worker(processes=2, beat=True):
        wait_for(lambda: state_of(job) == "succeeded", 150, "the sweep of the other worker brought it to its end")
    attempts = dict(row.cells.values_list("pk", "attempt"))
    assert attempts.pop(lost) == 2
    assert set(attempts.values()) == {1}
    assert dict(row.cells.filter(pk__in=kept).values_list("pk", "figures")) == kept
    assert AuditEvent.objects.filter(action="replay.finished").count() == 1


def test_a_worker_that_is_stopped_puts_its_cell_back_at_once_and_that_is_no_death(cast, fleet):
    with Worker() as first:
        _, row, job = start_long_replay(cast, fleet)
        wait_for(lambda: row.cells.filter(state="running").exists(), 30, "a cell is running")
        first.process.terminate()
        first.process.wait(20)
        assert not row.cells.filter(state="running").exists()
        assert state_of(job) == "running"
    with Worker(processes=2):
        wait_for(lambda: state_of(job) == "succeeded", 150, "the other worker took the message that was sent on")
    assert set(row.cells.values_list("state", "attempt")) == {("succeeded", 1)}


def test_a_message_that_comes_many_times_is_worked_once(client, cast, fleet):
    job = order(client, cast, fleet)
    for _ in range(5):
        jobs.send(Job.objects.get(pk=job))
    plan = make.built_plan(cast, fleet)
    row, replay_job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
    for _ in range(2):
        jobs.send(replay_job)
    with Worker(processes=2):
        wait_for(lambda: {state_of(job), state_of(replay_job)} == {"succeeded"}, 60, "both are done")
        time.sleep(1)
    assert Job.objects.get(pk=job).attempt == 1
    assert set(row.cells.values_list("state", "attempt")) == {("succeeded", 1)}
    assert AuditEvent.objects.filter(action="plan.built").count() == 2
    assert AuditEvent.objects.filter(action="replay.finished").count() == 1


def test_a_running_replay_is_cancelled_at_once(client, cast, fleet):
    with Worker(processes=2):
        plan, row, job = start_long_replay(cast, fleet)
        wait_for(lambda: row.cells.filter(state="running").exists(), 20, "a cell is running")
        started = time.monotonic()
        response = client.post(f"{API}/jobs/{job.pk}/cancel/")
        assert time.monotonic() - started < 2 * lateness()
        assert (response.status_code, response.json()["state"]) == (200, "cancelled")
        states = set(row.cells.values_list("state", flat=True))
        assert states <= {"cancelled", "succeeded"}
        wait_for(lambda: not _advisory_locks(), 60, "workers are free again")
        assert set(row.cells.values_list("state", flat=True)) == states
        following = order(client, cast, fleet)
        wait_for(lambda: state_of(following) == "succeeded", 20, "the workers take other work")
    assert Replay.objects.get(pk=row.pk).state == Replay.State.CANCELLED
    assert Plan.objects.get(pk=plan.pk).state == Plan.State.BUILT
    assert not AuditEvent.objects.filter(action="replay.finished").exists()


def _advisory_locks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_figures_are_the_same_with_one_worker_process_and_with_two(client, cast, fleet):
    found = []
    plan = make.built_plan(cast, fleet)
    for processes in (1, 2):
        with Worker(processes=processes):
            row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
            wait_for(lambda job=job: state_of(job) == "succeeded", 60, f"replay by {processes}")
        cells = row.cells.order_by("policy", "load_rps", "seed")
        found.append([(c.policy, c.load_rps, c.seed, c.figures) for c in cells])
    assert found[0] == found[1]
    assert len(found[0]) == 27
    one, two = Replay.objects.order_by("id")
    assert one.verdict == two.verdict


def test_a_cell_that_crashes_fails_the_replay_and_is_not_tried_without_end(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
    Replay.objects.filter(pk=row.pk).update(fingerprint="f" * 64)  # a serving profile that is not there
    with Worker(processes=2):
        wait_for(lambda: state_of(job) == "failed", 30, "the replay failed")
    assert set(row.cells.values_list("state", flat=True)) == {"failed", "cancelled"}
    # Two processes may have had one each when the first failed; what waited was not begun.
    assert 1 <= row.cells.filter(attempt=1).count() <= 2
    assert not row.cells.filter(attempt__gt=1).exists()
    assert "DoesNotExist" in row.cells.filter(state="failed").first().error
    assert sweep() == {"sent": 0, "cells_requeued": 0}
    assert Plan.objects.get(pk=plan.pk).state == Plan.State.BUILT
