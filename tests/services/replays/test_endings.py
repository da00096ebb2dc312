"""Replays that fail or are cancelled: the plan is as before, and no computed figure becomes evidence."""

import pytest

from planner.digests import code_version
from planner.errors import Conflict
from planner.models import AuditEvent, Job, Plan, Replay, ReplayCell
from planner.services.gate import preload
from planner.services.jobs.cancellation import cancel_job
from planner.services.jobs.sweep import sweep
from planner.services.replays import cells, completion
from planner.services.replays import orders as replay_orders
from planner.services.replays.cell_runs import figures_of
from planner.services.reviews.approvals import count_approvals, require_approved
from planner.services.reviews.submissions import submit_plan
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import advance_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db
SMALL = {"loads_rps": [4.0, 8.0], "seeds": [1, 2], "requests": 1_000, "policies": ["flat-lb"]}
FAULT = {"kind": "down", "destination": "d1", "start": 0.4, "end": 0.6}
OLDER = "0.0.1+000000000000"


def start(cast, plan, **options):
    return replay_orders.start_replay(acting_user=cast.ada, plan=plan, **{**SMALL, **options})


def state_of(row):
    return type(row).objects.values_list("state", flat=True).get(pk=row.pk)


def cell_states(row):
    return sorted(row.cells.values_list("state", flat=True))


def started_by_older_code(row):
    Replay.objects.filter(pk=row.pk).update(code_version=OLDER)


def end(cast, row, job, how):
    if how == "cancelled":
        cancel_job(acting_user=cast.ada, job=job)
        return
    if how == "outdated":
        started_by_older_code(row)
    else:
        Replay.objects.filter(pk=row.pk).update(arrivals="no such process")
    cells.run_cell(row.cells.filter(state="queued").first().pk)


# --- Two versions of the code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["a message", "a cell"])
def test_a_replay_that_other_code_started_fails_before_a_cell_of_this_code_is_run(cast, fleet, run):
    plan = make.built_plan(cast, fleet)
    row, job = start(cast, plan)
    done = row.cells.first()
    cells.run_cell(done.pk)
    started_by_older_code(row)
    if run == "a message":
        cells.run_next_cell(row.pk)
    else:
        assert not cells.run_cell(row.cells.last().pk)
    row.refresh_from_db()
    assert row.state == Replay.State.FAILED
    assert row.failure.startswith("the console was updated while this replay ran: start it again")
    assert OLDER in row.failure
    assert code_version() in row.failure
    assert cell_states(row) == ["cancelled"] * 7 + ["succeeded"]
    job.refresh_from_db()
    assert (job.state, job.error) == (Job.State.FAILED, row.failure)
    assert state_of(plan) == Plan.State.BUILT
    assert not plan.gate_evaluations.exists()


def test_a_replay_whose_cells_are_all_in_is_not_closed_by_other_code(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, job = start(cast, plan)
    for cell in row.cells.all()[1:]:
        cells.run_cell(cell.pk)
    figures = figures_of(row.cells.get(state="queued")).to_json()
    # The last one was stored by a worker of the older code, which died before it closed the replay.
    row.cells.filter(state="queued").update(state="succeeded", figures=figures)
    started_by_older_code(row)
    Job.objects.filter(pk=job.pk).update(state="running")
    sweep()
    row.refresh_from_db()
    assert row.state == Replay.State.FAILED
    assert "the console was updated" in row.failure
    assert state_of(plan) == Plan.State.BUILT


def test_a_what_if_of_two_versions_fails_too_and_leaves_the_plan(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    row, _ = start(cast, plan, faults=[FAULT])
    started_by_older_code(row)
    cells.run_next_cell(row.pk)
    assert state_of(row) == Replay.State.FAILED
    assert state_of(plan) == Plan.State.REPLAYED


def test_a_finished_replay_of_older_code_stays_as_it_is(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    row = plan.replays.get()
    started_by_older_code(row)
    cells.run_next_cell(row.pk)
    completion.close_if_complete(row.pk)
    assert state_of(row) == Replay.State.SUCCEEDED


# --- The plan as it was ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancelled", "failed", "outdated"])
def test_an_approved_plan_stays_approved_when_another_replay_has_no_result(cast, fleet, how):
    plan = make.approved_plan(cast, fleet)
    row, job = start(cast, plan)
    assert (state_of(plan), row.plan_state) == (Plan.State.REPLAYING, Plan.State.APPROVED)
    end(cast, row, job, how)
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED
    require_approved(plan, preload.read(plan))
    assert start_rollout(acting_user=cast.linus, plan=plan).state == "canary"


@pytest.mark.parametrize("how", ["cancelled", "failed", "outdated"])
def test_a_replayed_plan_is_replayed_again_when_another_replay_has_no_result(cast, fleet, how):
    plan = make.replayed_plan(cast, fleet)
    row, job = start(cast, plan)
    end(cast, row, job, how)
    assert state_of(plan) == Plan.State.REPLAYED
    assert submit_plan(acting_user=cast.ada, plan=plan).state == Plan.State.IN_REVIEW


def test_another_replay_that_succeeds_makes_approvals_stale(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    make.run_replay(cast, plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.REPLAYED
    evaluation = make.evaluation_of(plan)
    assert count_approvals(plan, evaluation) == 0


@pytest.mark.parametrize("stage", ["canary", "active"])
def test_a_plan_that_carries_traffic_takes_no_ordinary_replay_and_goes_on(cast, fleet, stage):
    plan = make.approved_plan(cast, fleet)
    rollout = start_rollout(acting_user=cast.linus, plan=plan)
    if stage == "active":
        make.activate(cast, rollout)
    with pytest.raises(Conflict, match="carries traffic") as refusal:
        start(cast, plan)
    assert refusal.value.code == "live"
    assert state_of(plan) == Plan.State.APPROVED
    row, _ = start(cast, plan, faults=[FAULT])
    assert (row.state, row.plan_state) == (Replay.State.RUNNING, "")
    if stage == "canary":
        make.pass_step(rollout)
        assert advance_rollout(acting_user=cast.linus, rollout=rollout).weight > rollout.weight
    fall_back(acting_user=cast.linus, fleet=fleet)


def test_a_plan_that_was_taken_off_traffic_can_be_replayed_again(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    start_rollout(acting_user=cast.linus, plan=plan)
    fall_back(acting_user=cast.linus, fleet=fleet)
    assert start(cast, plan)[0].plan_state == Plan.State.APPROVED


def test_a_replay_from_before_the_state_was_recorded_gives_the_plan_back_as_built(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    row, job = start(cast, plan)
    Replay.objects.filter(pk=row.pk).update(plan_state="")
    end(cast, row, job, "cancelled")
    assert state_of(plan) == Plan.State.BUILT


# --- Endings that raise ---------------------------------------------------------------------------------------


def last_cell(row):
    *others, last = row.cells.all()
    for cell in others:
        cells.run_cell(cell.pk)
    return last


def test_a_plan_that_cannot_become_replayed_fails_the_replay_with_the_reason(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, job = start(cast, plan)
    last = last_cell(row)
    Plan.objects.filter(pk=plan.pk).update(state=Plan.State.CANCELLED)
    cells.run_cell(last.pk)
    row.refresh_from_db()
    assert row.state == Replay.State.FAILED
    assert "it cannot become Replayed" in row.failure
    assert (row.verdict, row.figures_digest) == ({}, "")
    assert Job.objects.get(pk=job.pk).state == Job.State.FAILED
    assert state_of(plan) == Plan.State.CANCELLED
    assert AuditEvent.objects.filter(action="replay.failed").count() == 1


def test_evidence_that_cannot_be_collected_fails_the_replay_with_the_reason(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, job = start(cast, plan)
    last = last_cell(row)
    figures = {k: v for k, v in figures_of(last).to_json().items() if k != "active_keys"}
    row.cells.filter(pk=last.pk).update(state="succeeded", figures=figures)
    for cell in row.cells.filter(policy="cacheroute"):
        ReplayCell.objects.filter(pk=cell.pk).update(
            figures={k: v for k, v in cell.figures.items() if k != "active_keys"}
        )
    completion.close_if_complete(row.pk)
    row.refresh_from_db()
    assert row.state == Replay.State.FAILED
    assert "could not be judged: KeyError: 'active_keys'" in row.failure
    assert Job.objects.get(pk=job.pk).state == Job.State.FAILED
    assert state_of(plan) == Plan.State.BUILT
    assert not plan.gate_evaluations.exists()
    assert not AuditEvent.objects.filter(action="replay.finished").exists()


# --- Cells that fail, and workers that stop -------------------------------------------------------------------


def test_the_first_cell_that_fails_cancels_the_queued_cells(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, job = start(cast, plan)
    cells.run_cell(row.cells.first().pk)
    Replay.objects.filter(pk=row.pk).update(arrivals="no such process")
    cells._replay.cache_clear()
    cells.run_next_cell(row.pk)
    assert cell_states(row) == ["cancelled"] * 6 + ["failed", "succeeded"]
    assert state_of(row) == Replay.State.FAILED
    assert Job.objects.get(pk=job.pk).state == Job.State.FAILED


@pytest.fixture
def stopping():
    """A worker that received the stop signal."""
    cells.stop_soon()
    yield
    cells.stop_soon(False)


def test_a_worker_that_stops_puts_its_cell_back_and_the_claim_is_not_counted(cast, fleet, stopping, monkeypatch):
    monkeypatch.setattr(cells, "LOOK_EVERY_S", 0.0)
    row, _ = start(cast, make.built_plan(cast, fleet))
    cell = row.cells.first()
    for _ in range(cells.MAX_ATTEMPTS + 2):
        assert not cells.run_cell(cell.pk)
        cell.refresh_from_db()
        assert (cell.state, cell.attempt, cell.error) == ("queued", 0, "")
    cells.stop_soon(False)
    assert cells.run_cell(cell.pk)
    cell.refresh_from_db()
    assert (cell.state, cell.attempt) == ("succeeded", 1)


def test_a_worker_that_stops_takes_no_cells_from_a_message(cast, fleet, stopping):
    row, _ = start(cast, make.built_plan(cast, fleet))
    cells.run_next_cell(row.pk)
    assert cell_states(row) == ["queued"] * 8


def test_a_cell_whose_worker_died_three_times_fails_the_replay(cast, fleet):
    row, _ = start(cast, make.built_plan(cast, fleet))
    cell = row.cells.first()
    ReplayCell.objects.filter(pk=cell.pk).update(attempt=cells.MAX_ATTEMPTS)
    cells.run_cell(cell.pk)
    row.refresh_from_db()
    assert row.state == Replay.State.FAILED
    assert "its worker died 3 times" in row.failure


def test_a_cell_that_another_worker_has_by_now_is_not_put_back(cast, fleet):
    row, _ = start(cast, make.built_plan(cast, fleet))
    cell = row.cells.first()
    ReplayCell.objects.filter(pk=cell.pk).update(state="running", attempt=3)
    cell.attempt = 2
    assert not cells._put_back(cell)
    cell.refresh_from_db()
    assert (cell.state, cell.attempt) == ("running", 3)
