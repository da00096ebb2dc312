"""Replays with faults or a plan switch: they run, they show what happens, and they are no evidence."""

import pytest

from planner.models import AuditEvent, Plan, Replay
from planner.selectors.replays.verdict_page import ReplayVerdict, event_labels
from planner.services.jobs.cancellation import cancel_job
from planner.services.replays import cells
from planner.services.replays import orders as replay_orders
from planner.services.replays.options import check_options
from planner.services.replays.policy_parameters import known_parameters
from planner.services.reviews.evidence_changes import changed_since
from tests import factories as make

pytestmark = pytest.mark.django_db
FAULT = {"kind": "down", "destination": "d1", "start": 0.4, "end": 0.6}
SMALL = {"loads_rps": [4.0, 8.0], "seeds": [1, 2], "requests": 1_000, "policies": ["flat-lb"]}


def state_of(plan):
    return Plan.objects.get(pk=plan.pk).state


def figures(row, policy, load=8.0, seed=1):
    return row.cells.get(policy=policy, load_rps=load, seed=seed).figures


def test_a_destination_that_dies_sends_its_requests_elsewhere_and_takes_the_hit_rate_down(cast, fleet):
    plan = make.built_plan(cast, fleet)
    with_fault = make.run_replay(cast, plan, **SMALL, faults=[FAULT])
    without = make.run_replay(cast, plan, **SMALL)
    assert with_fault.what_if
    assert with_fault.parameters["what_if"] == ["faults"]
    assert not without.what_if
    hit, fault = figures(without, "cacheroute"), figures(with_fault, "cacheroute")
    assert hit["redispatched"] == 0
    assert fault["redispatched"] > 0
    assert fault["requests_per_destination"][1] < hit["requests_per_destination"][1]
    assert fault["hit_rate"] < hit["hit_rate"]
    assert len(fault["dips"]) == 2  # when it dies, and when it is back with nothing in its cache
    assert "dips" not in hit


def test_the_page_lists_what_happened_and_when_and_the_return_of_the_dead(client, cast, fleet):
    client.force_login(cast.grace)
    plan = make.built_plan(cast, fleet)
    slow = {"kind": "slow", "destination": "d2", "start": 0.3, "factor": 4}
    row = make.run_replay(cast, plan, **SMALL, faults=[FAULT, slow])
    assert event_labels(ReplayVerdict(row), "flat-lb") == ["d2 slow", "d1 down", "d1 back, cold"]
    body = client.get(f"/fleets/{fleet.slug}/plans/{plan.number}/?replay={row.pk}").content.decode()
    assert "d1 down from 40% of the arrival span to 60%; d2 slow ×4 from 30% of the arrival span to the end." in body
    assert "d1 back, cold" in body
    to_the_end = {**FAULT, "end": 1.0}
    assert event_labels(ReplayVerdict(make.run_replay(cast, plan, **SMALL, faults=[to_the_end])), "flat-lb") == [
        "d1 down"
    ]


def test_times_of_faults_are_shares_of_the_arrivals_so_that_each_load_has_them_at_the_same_requests(cast, fleet):
    row = make.run_replay(cast, make.built_plan(cast, fleet), **SMALL, faults=[{**FAULT, "kind": "drain", "end": None}])
    at_load = [figures(row, "flat-lb", load)["requests_per_destination"] for load in SMALL["loads_rps"]]
    for counts in at_load:
        # 0.4 of the span comes at request 400 or so, of which 200 are the warm-up: 200 of 800 measured over four.
        assert counts[1] == pytest.approx(50, abs=30)
        assert sum(counts) == 800


def test_a_slow_destination_takes_its_factor_longer(cast, fleet):
    plan = make.built_plan(cast, fleet)
    p99 = [
        figures(make.run_replay(cast, plan, **SMALL, faults=[{
            "kind": "slow", "destination": "d1", "start": 0, "factor": factor
        }]), "cacheroute")["p99_s"]
        for factor in (2, 8)
    ]  # fmt: skip
    normal = figures(make.run_replay(cast, plan, **SMALL), "cacheroute")["p99_s"]
    assert normal < p99[0] < p99[1]


def test_a_plan_switch_shows_the_dip_of_a_plan_whose_keys_are_cold(cast, fleet):
    # The same rates placed on fewer slots: keys lie elsewhere.
    before = make.built_plan(cast, fleet, slots_per_destination=3)
    plan = make.built_plan(cast, fleet)
    row = make.run_replay(cast, plan, **SMALL, switch={"from_plan": before.number, "at": 0.5}, also=[plan.number])
    assert row.parameters["what_if"] == ["a plan switch"]
    assert row.policies == ["flat-lb", "cacheroute", f"cacheroute@{plan.number}"]
    switched, steady = figures(row, "cacheroute"), figures(row, f"cacheroute@{plan.number}")
    assert switched["hit_rate"] < steady["hit_rate"]
    assert len(switched["dips"]) == 1
    ordinary = make.run_replay(cast, plan, **SMALL)
    assert figures(ordinary, "cacheroute")["p99_s"] == steady["p99_s"]


def test_an_older_plan_of_another_workload_is_replayed_beside_by_the_names_of_its_keys(cast, fleet):
    lines = [f"k{n:06d},{1 / (n + 1)}" for n in range(300)]
    older_rates = make.import_rates(cast, fleet, "key,rate\nnobody,9\n" + "\n".join(reversed(lines)))
    older = make.built_plan(cast, fleet, workload=older_rates)
    plan = make.built_plan(cast, fleet, workload=make.make_workload(cast, fleet))
    row = make.run_replay(cast, plan, **SMALL, also=[older.number])
    label = f"cacheroute@{older.number}"
    assert row.policies[-1] == label
    assert not row.what_if
    stale, fresh = figures(row, label), figures(row, "cacheroute")
    # Read by position, the reversed keys would be cold as under Flat-LB.
    assert figures(row, "flat-lb")["hit_rate"] + 0.05 < stale["hit_rate"] <= fresh["hit_rate"] + 0.02
    assert set(row.verdict["against_candidate"]) == {label}


def test_a_what_if_leaves_the_plan_and_what_was_judged_as_they_are(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    evaluation = make.evaluation_of(plan)
    row = make.run_replay(cast, plan, **SMALL, faults=[FAULT])
    assert row.state == Replay.State.SUCCEEDED
    assert state_of(plan) == Plan.State.APPROVED
    assert make.evaluation_of(plan) == evaluation
    assert changed_since(plan, evaluation) == []
    assert make.judge_again(cast, plan).replay_id == evaluation.replay_id != row.pk


def test_a_plan_that_was_replayed_only_as_a_what_if_does_not_pass_and_says_why(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row = make.run_replay(cast, plan, faults=[FAULT])
    assert state_of(plan) == Plan.State.BUILT
    evaluation = make.evaluation_of(plan)
    assert not evaluation.passed
    items = {item.number: item for item in evaluation.items.all()}
    assert items[3].verdict == items[4].verdict == items[5].verdict == "missing"
    assert f"replay {row.pk} has faults" in items[3].explanation
    make.run_replay(cast, plan)
    assert make.evaluation_of(plan).passed


def test_other_parameters_of_what_is_compared_make_a_replay_a_what_if(cast, fleet):
    plan = make.built_plan(cast, fleet)
    for name in ("flat-lb", "cacheroute"):
        if known := known_parameters(name):
            parameter, value = next(iter(known.items()))
            chosen = check_options(plan, policy_parameters={name: {parameter: value}}).to_json()
            assert chosen["what_if"] == [f"other parameters of {name}"]
    assert check_options(plan, policy_parameters={"sticky": {"vnodes": 9}}).to_json()["what_if"] == []


def test_a_cancelled_what_if_leaves_the_plan_as_it_is(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **SMALL, faults=[FAULT])
    cells.run_cell(row.cells.first().pk)
    cancel_job(acting_user=cast.ada, job=job)
    assert state_of(plan) == Plan.State.REPLAYED
    assert Replay.objects.get(pk=row.pk).state == Replay.State.CANCELLED


def test_a_what_if_that_fails_leaves_the_plan_as_it_is(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    row, _ = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **SMALL, faults=[FAULT])
    Replay.objects.filter(pk=row.pk).update(fingerprint="f" * 64)
    for cell in row.cells.all():
        cells.run_cell(cell.pk)
    assert Replay.objects.get(pk=row.pk).state == Replay.State.FAILED
    assert state_of(plan) == Plan.State.REPLAYED
    assert AuditEvent.objects.filter(action="replay.failed").count() == 1
