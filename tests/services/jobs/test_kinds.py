"""The row of a job says what is done, whatever the message that led to it was called."""

import pytest
from celery import current_app

from planner import tasks
from planner.models import AuditEvent, Job, Plan, ReplayCell, Study
from planner.services.base.states import lock_plan, move_plan
from planner.services.jobs import jobs, kinds
from planner.services.plans import studies
from planner.services.replays import orders as replay_orders
from tests import factories as make

pytestmark = pytest.mark.django_db

TASKS = (tasks.run_job, *(current_app.tasks[name] for name in tasks.EARLIER_NAMES))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_build_is_built_once(cast, fleet, task):
    plan, job = make.order_plan(cast, fleet)
    task(job.pk)
    for again in TASKS:
        again(job.pk)
    assert Plan.objects.get(pk=plan.pk).state == Plan.State.BUILT
    assert AuditEvent.objects.filter(action="plan.built").count() == 1
    job.refresh_from_db()
    assert (job.state, job.attempt) == (Job.State.SUCCEEDED, 1)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_study_is_studied_once(cast, fleet, task):
    plan = make.built_plan(cast, fleet)
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    task(job.pk)
    for again in TASKS:
        again(job.pk)
    assert Study.objects.get().plan == plan
    job.refresh_from_db()
    assert (job.state, job.attempt) == (Job.State.SUCCEEDED, 1)
    assert Plan.objects.get(pk=plan.pk).version == plan.version


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_message_for_a_replay_runs_its_cells_for_a_turn_and_each_once(cast, fleet, task):
    plan = make.built_plan(cast, fleet)
    row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
    task(job.pk)
    ran = row.cells.filter(state=ReplayCell.State.SUCCEEDED).count()
    assert ran >= 1
    assert row.cells.filter(state=ReplayCell.State.QUEUED).count() == row.cells.count() - ran
    job.refresh_from_db()
    assert job.done == ran
    while job.is_open:
        task(job.pk)
        job.refresh_from_db()
    task(job.pk)
    assert set(row.cells.values_list("attempt", flat=True)) == {1}
    assert job.state == Job.State.SUCCEEDED
    assert Plan.objects.get(pk=plan.pk).state == Plan.State.REPLAYED


def test_a_message_for_no_job_does_nothing(cast, fleet):
    for task in (*TASKS, tasks.run_cell):
        task(10**9)
    assert not Job.objects.exists()


def test_every_kind_of_job_is_registered():
    assert kinds.registered() == {kind.value for kind in Job.Kind}


def test_a_kind_is_registered_once_and_with_its_work():
    functions = kinds.find(Job.Kind.BUILD_PLAN)
    with pytest.raises(ValueError, match="'build_plan' is registered already"):
        kinds.register(Job.Kind.BUILD_PLAN, functions)
    with pytest.raises(ValueError, match="needs run and failed, or run_part"):
        kinds.register("export", kinds.JobKind(run=functions.run))


def test_a_build_whose_plan_was_cancelled_without_its_job_is_cancelled(cast, fleet):
    plan, job = make.order_plan(cast, fleet)
    move_plan(plan, Plan.State.CANCELLED)
    tasks.run_job(job.pk)
    job.refresh_from_db()
    assert (job.state, job.error) == (Job.State.CANCELLED, f"{plan} was cancelled")
    plan.refresh_from_db()
    assert (plan.state, plan.table) == (Plan.State.CANCELLED, None)


def test_a_build_of_a_plan_that_has_its_table_fails_and_leaves_the_plan_alone(cast, fleet):
    plan = make.built_plan(cast, fleet)
    job = jobs.file_job(acting_user=cast.ada, fleet=fleet, kind=Job.Kind.BUILD_PLAN, subject_id=plan.pk)
    tasks.run_job(job.pk)
    job.refresh_from_db()
    assert (job.state, job.error) == (Job.State.FAILED, f"{plan} is already Built: there is nothing to build")
    assert Plan.objects.get(pk=plan.pk).version == plan.version


def test_a_plan_that_was_cancelled_while_it_was_built_ends_its_job(cast, fleet, monkeypatch):
    plan, job = make.order_plan(cast, fleet)
    told = jobs.progress

    def cancel_at_the_end(job, done, message=""):
        if done == 2:
            move_plan(lock_plan(plan.pk), Plan.State.CANCELLED)
        return told(job, done, message)

    monkeypatch.setattr(jobs, "progress", cancel_at_the_end)
    tasks.run_job(job.pk)
    job.refresh_from_db()
    assert job.state == Job.State.CANCELLED
    assert Plan.objects.get(pk=plan.pk).table is None


@pytest.mark.parametrize("where", ["row", "parameters"])
def test_a_replan_whose_incumbent_is_not_the_one_that_was_ordered_is_not_built(cast, fleet, where):
    incumbent = make.built_plan(cast, fleet)
    plan, job = make.order_plan(cast, fleet, incumbent=incumbent)
    change = {"incumbent": None} if where == "row" else {"parameters": {**plan.parameters, "incumbent": None}}
    Plan.objects.filter(pk=plan.pk).update(**change)
    tasks.run_job(job.pk)
    job.refresh_from_db()
    assert job.state == Job.State.FAILED
    assert job.error.startswith("incumbent: the plan was ordered with")
    assert Plan.objects.get(pk=plan.pk).state == Plan.State.FAILED
