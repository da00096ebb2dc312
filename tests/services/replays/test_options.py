"""What a replay may be ordered with; what cannot be used is refused by the pointer to its field."""

import numpy as np
import pytest

from planner.errors import Conflict, Invalid
from planner.ingest import ImportedWorkload
from planner.models import Replay
from planner.services.fleets.destinations import change_destination
from planner.services.replays import orders as replay_orders
from planner.services.replays.options import MIN_MEASURED, check_options
from planner.services.workloads import imports
from planner.simulation import Blocks, Trace
from planner.simulation.synthetic import synthetic_key_names
from tests import factories as make

pytestmark = pytest.mark.django_db


def parsed(trace, keys, **values):
    given = {
        "format": "generated", "key_names": synthetic_key_names(keys), "rates": np.ones(keys), "tenants": None,
        "trace": trace, "window_s": 1.0, "requests": len(trace) if trace else 0, "rows": keys, "notices": [],
        "parameters": {}, "source_name": "generated", "source_sha256": "2" * 64, "source_bytes": 1,
    }  # fmt: skip
    return ImportedWorkload(**given | values)


def trace_at(arrival_s):
    n = len(arrival_s)
    return Trace(
        arrival_s=np.asarray(arrival_s, dtype=float),
        key=np.zeros(n, dtype=np.int64),
        blocks=Blocks.from_lists([[1]] * n),
        prompt_tokens=np.full(n, 100),
        output_tokens=np.full(n, 5),
        block_tokens=512,
    )


def plan_of(cast, fleet, trace, **values):
    workload = imports.store_workload(
        acting_user=cast.ada, fleet=fleet, parsed=parsed(trace, 3, **values), name=f"w{fleet.workloads.count()}"
    )
    return make.built_plan(cast, fleet, workload=workload)


@pytest.mark.parametrize(
    ("options", "field", "says"),
    [
        ({"policy_parameters": {"chicken": {}}}, "policy_parameters/chicken", "not among the policies"),
        ({"policy_parameters": {"hash": {"x": 1}}}, "policy_parameters/hash", "not among the policies"),
        ({"policy_parameters": {"sticky": 3}}, "policy_parameters/sticky", "named"),
        ({"policy_parameters": {"sticky": {"vnode": 3}}}, "policy_parameters/sticky/vnode", "vnodes"),
        ({"policy_parameters": {"sticky": {"a/b": 3}}}, "policy_parameters/sticky/a~1b", "no parameter"),
        ({"policy_parameters": {"sticky": {"vnodes": "3"}}}, "policy_parameters/sticky/vnodes", "whole number"),
        ({"policy_parameters": {"sticky": {"vnodes": True}}}, "policy_parameters/sticky/vnodes", "whole number"),
        ({"policy_parameters": {"sticky": {"vnodes": 2.5}}}, "policy_parameters/sticky/vnodes", "whole number"),
        ({"policy_parameters": {"sticky": {"vnodes": 0}}}, "policy_parameters/sticky/vnodes", "vnodes"),
        ({"run_length": 3}, "run_length", "bootstrap"),
        ({"arrivals": "bootstrap", "run_length": 0}, "run_length", "one gap"),
        ({"arrivals": "bootstrap", "run_length": 2_000}, "run_length", "1,999 gaps"),
        ({"refine": 99}, "refine", "rounds"),
        ({"extend": True}, "extend", "refine"),
        ({"also": [99]}, "also/0", "no built plan 99"),
        ({"also": [0]}, "also/0", "number of a plan"),  # Flat-LB, which has no table
        ({"also": [1]}, "also/0", "already the candidate"),
        ({"switch": {"from_plan": 1, "at": 0.5}}, "switch/from_plan", "itself"),
        ({"switch": {"from_plan": 99, "at": 0.5}}, "switch/from_plan", "no built plan"),
        ({"switch": {"from_plan": 99, "at": 1.0}}, "switch/at", "between 0 and 1"),
        ({"switch": {"from_plan": 99}}, "switch/at", "between 0 and 1"),
        ({"switch": {"plan": 99, "at": 0.5}}, "switch/plan", "from_plan"),
        ({"faults": [{"kind": "burn", "destination": "d1", "start": 0}]}, "faults/0/kind", "down, drain, slow"),
        ({"faults": [{"kind": "down", "destination": "d9", "start": 0}]}, "faults/0/destination", "d0, d1, d2, d3"),
        ({"faults": [{"kind": "down", "destination": "d1"}]}, "faults/0/start", "starts at a share"),
        ({"faults": [{"kind": "down", "destination": "d1", "start": 1}]}, "faults/0/start", "below 1"),
        ({"faults": [{"kind": "down", "destination": "d1", "start": 0.5, "end": 0.5}]}, "faults/0/end", "after"),
        ({"faults": [{"kind": "down", "destination": "d1", "start": 0, "factor": 3}]}, "faults/0/factor", "only a"),
        ({"faults": [{"kind": "slow", "destination": "d1", "start": 0, "factor": 1}]}, "faults/0/factor", "above 1"),
        ({"faults": [{"kind": "slow", "destination": "d1", "start": 0, "after": 1}]}, "faults/0/after", "a fault has"),
        (
            {"faults": [{"kind": "down", "destination": f"d{i}", "start": i / 10} for i in range(4)]},
            "faults",
            "no destination is left",
        ),
        (
            {"faults": [{"kind": "down", "destination": "d1", "start": start} for start in (0.1, 0.5)]},
            "faults/1/start",
            "already",
        ),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_used_is_named_by_its_pointer(cast, fleet, options, field, says):
    plan = make.built_plan(cast, fleet)
    assert plan.number == 1
    with pytest.raises(Invalid) as refusal:
        replay_orders.start_replay(acting_user=cast.ada, plan=plan, **options)
    assert refusal.value.field == field
    assert says in refusal.value.message
    assert not Replay.objects.exists()


def test_faults_that_leave_somebody_to_serve_at_every_moment_are_taken(cast, fleet):
    plan = make.built_plan(cast, fleet)
    faults = [{"kind": "down", "destination": f"d{i}", "start": i / 4, "end": (i + 1) / 4} for i in range(4)]
    chosen = check_options(plan, faults=faults).to_json()
    assert [(f["position"], f["start"], f["end"]) for f in chosen["faults"]] == [
        (0, 0.0, 0.25), (1, 0.25, 0.5), (2, 0.5, 0.75), (3, 0.75, 1.0)
    ]  # fmt: skip
    assert chosen["what_if"] == ["faults"]


def test_parameters_are_stored_as_the_policy_has_them(cast, fleet):
    plan = make.built_plan(cast, fleet)
    chosen = check_options(plan, policy_parameters={"sticky": {"vnodes": 80.0}, "flat-lb": {}}).to_json()
    assert chosen["policy_parameters"] == {"sticky": {"vnodes": 80}}
    assert chosen["what_if"] == []


def test_another_plan_for_other_destinations_cannot_be_replayed_beside(cast, fleet):
    older = make.built_plan(cast, fleet)
    change_destination(acting_user=cast.linus, destination=fleet.destinations.get(index=1), state="draining")
    plan = make.built_plan(cast, fleet)
    with pytest.raises(Invalid, match="other destinations") as refusal:
        check_options(plan, also=[older.number])
    assert refusal.value.field == "also/0"


def test_another_plan_for_other_speeds_cannot_be_replayed_beside_or_before(cast, fleet):
    older = make.built_plan(cast, fleet)
    change_destination(acting_user=cast.root, destination=fleet.destinations.get(index=1), weight=2.0)
    plan = make.built_plan(cast, fleet)
    for options, field in (
        ({"also": [older.number]}, "also/0"),
        ({"switch": {"from_plan": older.number, "at": 0.5}}, "switch/from_plan"),
    ):
        with pytest.raises(Invalid, match="1, and 2 here") as refusal:
            check_options(plan, **options)
        assert refusal.value.field == field


def test_keys_of_other_plans_that_are_unknown_are_counted_and_a_plan_without_any_known_is_refused(cast, fleet):
    lines = ["key,rate", "k000000,9", "k000007,7", "elsewhere,8"]
    partly = make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, "\n".join(lines)))
    foreign = make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, "key,rate\nx,1\ny,2\n"))
    workload = make.make_workload(cast, fleet)
    plan = make.built_plan(cast, fleet, workload=workload)
    chosen = check_options(plan, also=[partly.number], switch={"from_plan": partly.number, "at": 0.5}).to_json()
    for other in (chosen["also"][0], chosen["switch"]):
        assert (other["plan"], other["keys"], other["unknown"]) == (partly.number, 3, 1)
    for options, field in (
        ({"also": [partly.number, foreign.number]}, "also/1"),
        ({"switch": {"from_plan": foreign.number, "at": 0.5}}, "switch/from_plan"),
    ):
        with pytest.raises(Invalid, match="none of the 2 keys") as refusal:
            replay_orders.start_replay(acting_user=cast.ada, plan=plan, **options)
        assert refusal.value.field == field
        with pytest.raises(Invalid, match="none of the 2 keys") as refusal:
            make.order_plan(cast, fleet, workload=workload, replay=options)
        assert refusal.value.field == f"replay/{field}"
    same = check_options(plan, also=[make.built_plan(cast, fleet, workload=workload).number]).to_json()["also"][0]
    assert same["unknown"] == 0 < same["keys"]


def test_options_are_refused_when_a_plan_is_ordered_with_them(cast, fleet):
    with pytest.raises(Invalid) as refusal:
        make.order_plan(cast, fleet, replay={"faults": [{"kind": "down", "destination": "elsewhere", "start": 0.5}]})
    assert refusal.value.field == "replay/faults/0/destination"
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_a_plan_is_not_ordered_with_a_replay_that_its_workload_cannot_serve(cast, fleet):
    workload = imports.store_workload(
        acting_user=cast.ada, fleet=fleet, parsed=parsed(None, 3, rates=np.zeros(3)), name="silent"
    )
    with pytest.raises(Invalid, match="no requests to replay") as refusal:
        make.order_plan(cast, fleet, workload=workload, replay={})
    assert refusal.value.field == "workload"
    with pytest.raises(Invalid, match="after the warm-up") as refusal:
        make.order_plan(cast, fleet, workload=make.make_workload(cast, fleet), replay={"warmup": 0.999})
    assert refusal.value.field == "replay/warmup"
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_fewer_requests_than_the_warm_up_needs_are_refused(cast, fleet):
    plan = plan_of(cast, fleet, trace_at(np.arange(100.0)))
    with pytest.raises(
        Invalid, match=f"of 100 requests 10 are left after the warm-up; at least {MIN_MEASURED}"
    ) as refusal:
        replay_orders.start_replay(acting_user=cast.ada, plan=plan, warmup=0.9)
    assert refusal.value.field == "warmup"
    short = plan_of(cast, fleet, trace_at(np.arange(10.0)))
    with pytest.raises(Invalid, match="of 10 requests") as refusal:
        replay_orders.start_replay(acting_user=cast.ada, plan=short)
    assert refusal.value.field == "requests"


def test_a_workload_without_requests_is_refused(cast, fleet):
    silent = plan_of(cast, fleet, None, rates=np.zeros(3))
    with pytest.raises(Invalid, match="no requests to replay") as refusal:
        replay_orders.start_replay(acting_user=cast.ada, plan=silent)
    assert refusal.value.field == "plan"


@pytest.mark.parametrize("arrivals", ["scaled", "bootstrap"])
def test_a_trace_with_one_instant_has_no_gaps_to_use(cast, fleet, arrivals):
    plan = plan_of(cast, fleet, trace_at([5.0] * 200 + [9.0]))
    with pytest.raises(Invalid, match="one instant") as refusal:
        replay_orders.start_replay(acting_user=cast.ada, plan=plan, arrivals=arrivals, seeds=[1], requests=200)
    assert refusal.value.field == "arrivals"
    row, _ = replay_orders.start_replay(acting_user=cast.ada, plan=plan, arrivals=arrivals, seeds=[1], requests=201)
    assert row.parameters["requests"] == 201


def test_a_plan_has_one_replay_at_a_time_of_any_kind(cast, fleet):
    plan = make.built_plan(cast, fleet)
    fault = [{"kind": "slow", "destination": "d1", "start": 0.5}]
    replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY, faults=fault)
    for options in (make.REPLAY, {**make.REPLAY, "faults": fault}):
        with pytest.raises(Conflict, match="is queued or running"):
            replay_orders.start_replay(acting_user=cast.ada, plan=plan, **options)
