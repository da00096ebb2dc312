"""Replays by real workers: cancelled within two seconds, resumed after a crash, equal however many work at them."""

from __future__ import annotations

import pytest

from planner.models import Job, Replay, ReplayCell
from planner.services.jobs.sweep import sweep
from planner.services.replays import cells
from planner.services.replays import orders as replay_orders
from tests import factories as make
from tests.integration.test_workers import _advisory_locks, freeze_in_a_cell, order, start_long_replay, state_of
from tests.integration.workers import Worker, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
SMALL = {"loads_rps": [4.0, 8.0, 24.0], "seeds": [1, 2], "requests": 1_000}


def figures_of(row):
    return {(c.policy, c.load_rps, c.seed): c.figures for c in row.cells.all()}


def by_workers(cast, plan, processes, **options):
    """The replay, done by so many processes."""
    with Worker(processes=processes):
        row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **options)
        wait_for(lambda: not Job.objects.get(pk=job.pk).is_open, 120, f"replay by {processes}")
    row = Replay.objects.get(pk=row.pk)
    assert row.state == Replay.State.SUCCEEDED, row.failure
    return row


def test_a_worker_inside_a_big_cell_takes_other_work_within_two_seconds_of_the_cancel(client, cast, fleet):
    rates_only = make.make_workload(cast, fleet, with_trace=False)
    plan = make.built_plan(cast, fleet, workload=rates_only)
    # The slowest policy, so that a whole cell takes much longer than the cancel on a fast machine too.
    big = {"loads_rps": [8.0], "seeds": [1, 2, 3], "requests": 2_000_000, "policies": ["preble"]}
    with Worker() as worker:
        row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **big)
        # The first cell makes the requests, which all of them share.
        wait_for(lambda: row.cells.filter(state="succeeded").exists(), 120, "the first cell is done")
        took = row.cells.filter(state="succeeded").latest("finished_at")
        wait_for(lambda: row.cells.filter(state="running").exists(), 20, "another is under way")
        assert client.post(f"/api/v1/jobs/{job.pk}/cancel/").status_code == 200
        wait_for(lambda: not _advisory_locks(), 2, "the worker left the cell")
        following = order(client, cast, fleet, workload=rates_only)
        wait_for(lambda: state_of(following) == "succeeded", 20, "the worker took other work")
        assert worker.process.poll() is None
    # It was in the middle of a cell: a whole one of the same size takes far longer than this one ran.
    left = row.cells.get(state="cancelled", attempt=1)
    ran_s = (Job.objects.get(pk=job.pk).cancel_requested_at - left.started_at).total_seconds()
    assert ran_s < 0.5 * (took.finished_at - took.started_at).total_seconds()
    build = Job.objects.get(pk=following)
    assert (build.started_at - build.created_at).total_seconds() < 2
    assert left.figures == {}
    assert row.cells.filter(state="cancelled", attempt=0).exists()


def test_figures_are_equal_to_the_last_bit_in_process_with_one_worker_and_with_two(cast, fleet):
    plan = make.built_plan(cast, fleet)
    options = {**SMALL, "refine": 2, "arrivals": "gamma", "cv": 1.9}
    here = make.run_replay(cast, plan, **options)
    while here.state == Replay.State.RUNNING:  # cells that bisection added
        for cell in here.cells.filter(state="queued"):
            cells.run_cell(cell.pk)
        here.refresh_from_db()
    assert here.refine_rounds == 2
    one, two = (by_workers(cast, plan, processes, **options) for processes in (1, 2))
    assert figures_of(here) == figures_of(one) == figures_of(two)
    assert here.figures_digest == one.figures_digest == two.figures_digest != ""
    assert here.refined_loads == one.refined_loads == two.refined_loads
    assert here.verdict == one.verdict == two.verdict


def test_a_replay_whose_worker_is_killed_ends_with_the_figures_of_an_undisturbed_one(cast, fleet):
    with Worker() as first:
        plan, row, job = start_long_replay(cast, fleet)
        wait_for(lambda: row.cells.filter(state="succeeded").count() >= 2, 90, "some cells are done")
        lost = freeze_in_a_cell(first, row)
        kept = dict(row.cells.filter(state="succeeded").values_list("pk", "attempt"))
        started = dict(row.cells.filter(pk__in=kept).values_list("pk", "started_at"))
        first.kill()
    wait_for(lambda: sweep()["cells_requeued"] == 1, 10, "the lock of the dead worker is freed")
    with Worker(processes=2):
        wait_for(lambda: not Job.objects.get(pk=job.pk).is_open, 150, "others ended it")
    assert set(kept.values()) == {1}
    assert ReplayCell.objects.get(pk=lost).attempt == 2
    assert dict(row.cells.filter(pk__in=kept).values_list("pk", "started_at")) == started
    options = {"loads_rps": row.loads_rps, "seeds": row.seeds, "requests": row.parameters["requests"]}
    undisturbed = by_workers(cast, plan, 2, **options)
    assert Replay.objects.get(pk=row.pk).figures_digest == undisturbed.figures_digest != ""
