"""How long a replay will still take, from what its cells took."""

import datetime as dt

import pytest
from django.utils import timezone

from planner.models import Job, ReplayCell
from planner.selectors.jobs.progress import elapsed_s, eta_s, with_progress
from planner.services.replays import orders as replay_orders
from tests import factories as make

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def ago(seconds):
    return timezone.now() - dt.timedelta(seconds=seconds)


@pytest.fixture
def replay(cast, fleet):
    """A replay of 27 cells, begun 20 s ago; nothing finished."""
    row, job = replay_orders.start_replay(acting_user=cast.ada, plan=make.built_plan(cast, fleet), **make.REPLAY)
    Job.objects.filter(pk=job.pk).update(state="running", started_at=ago(20))
    return row


def job_of(row):
    return Job.objects.get(kind="replay", subject_id=row.pk)


def finish(row, policy, seconds, count=1, end=0.0):
    """So many cells of a policy took so long, the last ending some seconds ago."""
    for cell in row.cells.filter(policy=policy, state="queued")[:count]:
        ReplayCell.objects.filter(pk=cell.pk).update(
            state="succeeded", started_at=ago(seconds + end), finished_at=ago(end)
        )


def test_nothing_is_said_before_a_cell_is_finished(replay):
    job = job_of(replay)
    assert eta_s([job]) == {job.pk: None}
    assert elapsed_s(job) == pytest.approx(20, abs=1)


def test_the_estimate_is_the_remaining_cost_per_policy_divided_by_the_cells_at_a_time(replay):
    finish(replay, "flat-lb", 2.0, count=4)
    finish(replay, "sticky", 3.0, count=4)
    finish(replay, "cacheroute", 5.0, count=4)
    # 40 s of cells in 20 s: two at a time. 5 cells of each are left: 5 * (2 + 3 + 5) / 2.
    assert eta_s([job_of(replay)])[job_of(replay).pk] == pytest.approx(25, abs=1)


def test_a_policy_of_which_nothing_is_known_costs_what_the_others_do(replay):
    finish(replay, "flat-lb", 4.0, count=5)
    # One at a time; 4 of flat-lb and 18 of others at 4 s.
    assert eta_s([job_of(replay)])[job_of(replay).pk] == pytest.approx(88, abs=3)


def test_a_running_cell_counts_with_what_it_has_not_run_yet(replay):
    finish(replay, "flat-lb", 10.0, count=8)
    finish(replay, "sticky", 10.0, count=9)
    finish(replay, "cacheroute", 10.0, count=9)
    replay.cells.filter(state="queued").update(state="running", started_at=ago(4))
    # 260 s of cells in 20 s: thirteen at a time, and 6 s are left of one.
    assert eta_s([job_of(replay)])[job_of(replay).pk] == pytest.approx(6 / 13, abs=0.05)


def test_nothing_is_said_while_nobody_is_at_it(replay):
    finish(replay, "flat-lb", 1.0, end=60.0)
    assert eta_s([job_of(replay)])[job_of(replay).pk] is None


def test_jobs_that_are_over_and_of_other_kinds_have_no_time_left(cast, fleet, replay, django_assert_num_queries):
    _, build = make.order_plan(cast, fleet)
    finish(replay, "flat-lb", 1.0)
    job = job_of(replay)
    with django_assert_num_queries(1):
        rows = with_progress([job, build])
    assert rows[0].eta_s > 0
    assert (rows[1].elapsed_s, rows[1].eta_s) == (None, None)
    job.state = "succeeded"
    assert eta_s([job]) == {}
