"""The main job, from rates to a verdict, by the services alone."""

import datetime as dt
import io

import numpy as np
import pytest

from planner import artifacts
from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import AuditEvent, Job, Plan, Replay, ReplayCell
from planner.routing import build_table
from planner.services.base.states import move_plan
from planner.services.fleets.destinations import change_destination
from planner.services.jobs.cancellation import cancel_job
from planner.services.jobs.jobs import claimed
from planner.services.plans import builds
from planner.services.plans.orders import order_plan
from planner.services.replays import cells
from planner.services.replays import orders as replay_orders
from planner.services.replays.cell_runs import figures_of
from planner.services.workloads import imports
from planner.tasks import run_job
from tests import factories as make

pytestmark = pytest.mark.django_db


def test_a_built_plan_holds_the_table_that_algorithm_1_gives(cast, fleet):
    plan = make.built_plan(cast, fleet)
    assert plan.state == Plan.State.BUILT
    _, rates = artifacts.load_rates(plan.workload.rates)
    expected = build_table(rates, destinations=4, q_cap=8.0, slots=48 * 4)
    stored, names = artifacts.load_table(plan.table)
    assert stored == expected
    assert names == [f"k{i:06d}" for i in expected.admitted]
    assert plan.summary["slots_used"] == expected.slots_used
    assert plan.summary["imbalance"] == expected.imbalance


def test_equal_inputs_give_plans_with_one_artifact(cast, fleet):
    one, two = make.built_plan(cast, fleet), make.built_plan(cast, fleet)
    assert one.table_id == two.table_id
    assert one.inputs_digest == two.inputs_digest
    assert (one.number, two.number) == (1, 2)


def test_destinations_that_are_not_up_take_nothing(cast, fleet):
    drained = fleet.destinations.get(index=1)
    change_destination(acting_user=cast.linus, destination=drained, state="draining")
    plan = make.built_plan(cast, fleet)
    assert plan.parameters["destinations"] == [0, 2, 3]
    assert len(plan.summary["load"]) == 3


def test_a_build_that_is_delivered_twice_is_done_once(cast, fleet):
    plan, job = make.order_plan(cast, fleet)
    make.build(job)
    before = Plan.objects.get(pk=plan.pk).version
    run_job(job.pk)
    assert Plan.objects.get(pk=plan.pk).version == before
    assert AuditEvent.objects.filter(action="plan.built").count() == 1


def test_a_build_that_was_cancelled_meanwhile_stores_nothing(cast, fleet):
    plan, job = make.order_plan(cast, fleet)
    with claimed(job.pk) as mine:
        cancel_job(acting_user=cast.ada, job=job)
        with pytest.raises(Conflict):
            move_plan(Plan.objects.get(pk=plan.pk), Plan.State.BUILDING)
        builds.build_plan(mine)
    plan.refresh_from_db()
    assert (plan.state, plan.table) == (Plan.State.CANCELLED, None)
    assert Job.objects.get(pk=job.pk).state == Job.State.CANCELLED


def test_a_replay_covers_every_policy_load_and_seed_and_is_judged_at_its_end(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row = make.run_replay(cast, plan)
    assert row.state == Replay.State.SUCCEEDED
    assert row.cells.count() == 3 * 3 * 3
    assert set(row.verdict["policies"]) == {"flat-lb", "sticky", "cacheroute"}
    plan.refresh_from_db()
    assert plan.state == Plan.State.REPLAYED
    evaluation = make.evaluation_of(plan)
    assert [item.number for item in evaluation.items.all()] == [1, 2, 3, 4, 5, 6]
    assert evaluation.passed, [str(i) + i.explanation for i in evaluation.items.all()]


def test_the_verdict_is_the_mean_of_its_cells(cast, fleet):
    row = make.run_replay(cast, make.built_plan(cast, fleet))
    cells = row.cells.filter(policy="flat-lb", load_rps=8.0)
    mean = np.mean([cell.figures["p99_s"] for cell in cells])
    line = row.verdict["policies"]["flat-lb"]["loads"][1]
    assert line["load_rps"] == 8.0
    assert line["p99_s"]["mean"] == pytest.approx(mean)


def test_every_policy_sees_the_same_arrivals(cast, fleet):
    row = make.run_replay(cast, make.built_plan(cast, fleet))
    for load in row.loads_rps:
        for seed in row.seeds:
            offered = {c.figures["offered_rps"] for c in row.cells.filter(load_rps=load, seed=seed)}
            assert len(offered) == 1


def test_a_cell_that_is_delivered_twice_runs_once(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, _ = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
    cell = row.cells.first()
    cells.run_cell(cell.pk)
    first = ReplayCell.objects.get(pk=cell.pk)
    cells.run_cell(cell.pk)
    assert ReplayCell.objects.get(pk=cell.pk).attempt == first.attempt == 1


def test_a_cell_runs_to_the_same_figures_again(cast, fleet):
    row = make.run_replay(cast, make.built_plan(cast, fleet))
    cell = row.cells.first()
    stored = cell.figures
    again = figures_of(cell).to_json()
    assert again == stored


def test_a_cancelled_replay_leaves_the_plan_built_and_its_open_cells_cancelled(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
    done = row.cells.first()
    cells.run_cell(done.pk)
    cancel_job(acting_user=cast.ada, job=job)
    plan.refresh_from_db()
    assert plan.state == Plan.State.BUILT
    states = set(row.cells.exclude(pk=done.pk).values_list("state", flat=True))
    assert states == {"cancelled"}
    cells.run_cell(row.cells.last().pk)
    assert row.cells.last().state == "cancelled"


def test_a_workload_of_rates_alone_is_replayed_on_synthetic_requests_and_says_so(cast, fleet):
    workload = make.make_workload(cast, fleet, with_trace=False)
    plan = make.built_plan(cast, fleet, workload=workload)
    row = make.run_replay(cast, plan, requests=2_000)
    assert row.parameters["synthetic_trace"]["active_keys"] == 400
    item = make.evaluation_of(plan).items.get(number=3)
    assert item.verdict == "missing"
    assert "synthetic" in item.explanation


def test_a_replay_that_fails_says_which_cell_and_why(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
    Replay.objects.filter(pk=row.pk).update(arrivals="no such process")
    for cell in row.cells.all():
        cells.run_cell(cell.pk)
    row.refresh_from_db()
    assert row.state == Replay.State.FAILED
    assert "no such process" in row.failure
    assert Job.objects.get(pk=job.pk).state == Job.State.FAILED
    plan.refresh_from_db()
    assert plan.state == Plan.State.BUILT


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"policies": ["nonsense"]}, "policies"),
        ({"loads_rps": [0.0]}, "loads_rps"),
        ({"loads_rps": [float("nan")]}, "loads_rps"),
        ({"seeds": [-1]}, "seeds"),
        ({"requests": 1}, "requests"),
        ({"warmup": 1.0}, "warmup"),
        ({"arrivals": "psychic"}, "arrivals"),
        ({"arrivals": "scaled"}, "seeds"),
        ({"arrivals": "gamma"}, "cv"),
        ({"arrivals": "gamma", "cv": 0.0}, "cv"),
        ({"cv": 2.0}, "cv"),
        ({"loads_rps": [float(n) for n in range(1, 1000)]}, "loads_rps"),
    ],
)
def test_replay_options_that_cannot_be_used_name_their_field(cast, fleet, options, field):
    plan = make.built_plan(cast, fleet)
    with pytest.raises(Invalid) as refusal:
        replay_orders.start_replay(acting_user=cast.ada, plan=plan, **options)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"admission": "by lot"}, "admission"),
        ({"balance_target": 0.5}, "balance_target"),
        ({"balance_target": float("nan")}, "balance_target"),
        ({"slots_per_destination": -1}, "slots_per_destination"),
    ],
)
def test_plan_options_that_cannot_be_used_name_their_field(cast, fleet, options, field):
    with pytest.raises(Invalid) as refusal:
        make.order_plan(cast, fleet, **options)
    assert refusal.value.field == field
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_inputs_of_another_fleet_are_refused(cast, fleet):
    other = make.make_fleet(cast, "beta")
    with pytest.raises(Invalid):
        make.order_plan(cast, fleet, workload=make.make_workload(cast, other))


@pytest.mark.parametrize("who", ["vera", "grace", "linus"])
def test_only_planners_order_plans(cast, fleet, who):
    workload, calibration = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    with pytest.raises(NotAllowed):
        order_plan(acting_user=getattr(cast, who), fleet=fleet, workload=workload, calibration=calibration)


def test_a_plan_whose_replay_follows_the_build_has_both_jobs_without_a_gap(cast, fleet):
    plan, job = make.order_plan(cast, fleet, replay=make.REPLAY)
    make.build(job)
    plan.refresh_from_db()
    assert plan.state == Plan.State.REPLAYING
    assert Job.objects.get(pk=job.pk).result["replay"] == plan.replays.get().pk


def test_a_trace_that_is_shorter_than_what_was_asked_for_is_judged_by_what_it_served(cast, fleet):
    row = make.run_replay(cast, make.built_plan(cast, fleet), requests=20_000)  # the trace has 2,000
    item = make.evaluation_of(row.plan).items.get(number=3)
    assert item.numbers["measured_requests"] == 1_600


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"measured_at": dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14)))}, "measured_at"),
        ({"measured_at": dt.datetime(2026, 1, 1)}, "measured_at"),  # noqa: DTZ001 - no zone is the point
        ({"measured_at": dt.datetime(2999, 1, 1, tzinfo=dt.UTC)}, "measured_at"),
        ({"key_depth": 0}, "key_depth"),
        ({"block_tokens": 10**30}, "block_tokens"),
    ],
)
def test_import_arguments_that_cannot_be_used_name_their_field(cast, fleet, value, field):
    with pytest.raises(Invalid) as refusal:
        imports.import_workload(
            acting_user=cast.ada, fleet=fleet, file=io.BytesIO(b"key,rate\na,1\n"), file_name="r.csv", **value
        )
    assert refusal.value.field == field
    assert not fleet.workloads.exists()


def test_when_rates_were_measured_is_missing_evidence_unless_it_was_stated(cast, fleet):
    workload = imports.import_workload(
        acting_user=cast.ada, fleet=fleet, file=io.BytesIO(b"key,rate\na,1\nb,2\n"), file_name="r.csv"
    )
    plan = make.built_plan(cast, fleet, workload=workload)
    item = make.judge_again(cast, plan).items.get(number=1)
    assert item.verdict == "missing"
    assert "not stated" in item.explanation
