"""What the evidence of a plan holds: how its replay was made, and how often it was tried."""

import pytest

from planner.digests import digest
from planner.errors import Conflict
from planner.models import GateEvaluation, Replay
from planner.services.fleets import fleets
from planner.services.gate.evidence import as_stored, collect_evidence
from planner.services.jobs.cancellation import cancel_job
from planner.services.replays import cells
from planner.services.replays import orders as replay_orders
from planner.services.reviews.evidence_changes import changed_since
from planner.services.reviews.submissions import submit_plan
from tests import factories as make

pytestmark = pytest.mark.django_db
SMALL = {"loads_rps": [4.0, 8.0], "seeds": [1, 2], "requests": 1_000, "policies": ["flat-lb"]}


def item_3(plan):
    return make.evaluation_of(plan).items.get(number=3)


def test_evidence_says_how_its_replay_was_made(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row = make.run_replay(
        cast,
        plan,
        **{**SMALL, "policies": ["chwbl"]},
        arrivals="bootstrap",
        run_length=30,
        warmup=0.1,
        policy_parameters={"chwbl": {"load_factor": 1.5}},
    )
    evidence = make.evaluation_of(plan).evidence
    assert evidence["format"] == "cacheroute.evidence/4"
    found = evidence["replay"]
    assert (found["requests"], found["warmup"], found["cv"], found["run_length"]) == (1_000, 0.1, None, 30)
    assert found["runs"] == 33
    assert found["policy_parameters"] == {"chwbl": {"load_factor": 1.5}}
    assert (found["refine"], found["extend"], found["refined_loads"]) == (0, False, {})
    assert found["figures_digest"] == row.figures_digest != ""


def test_loads_that_bisection_added_are_part_of_the_evidence(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row, _ = replay_orders.start_replay(
        acting_user=cast.ada, plan=plan, **{**SMALL, "loads_rps": [4.0, 60.0], "refine": 1}
    )
    while cell := row.cells.filter(state="queued").first():
        cells.run_cell(cell.pk)
    found = make.evaluation_of(plan).evidence["replay"]
    assert (found["refine"], found["extend"]) == (1, False)
    assert set(found["refined_loads"]) == {"flat-lb", "cacheroute"}


def test_runs_are_those_of_the_requests_that_there_are(cast, fleet):
    plan = make.built_plan(cast, fleet)
    row = make.run_replay(cast, plan, **{**SMALL, "requests": 20_000}, arrivals="bootstrap", run_length=150)
    assert collect_evidence(row.plan).document["replay"]["runs"] == 1_999 // 150  # the trace has 2,000


def test_a_plan_that_was_judged_in_the_older_format_has_to_be_judged_again(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    now = make.evaluation_of(plan)
    older = {**now.evidence, "format": "cacheroute.evidence/2"}
    GateEvaluation.objects.create(
        plan=plan, replay=now.replay, passed=True, evidence=older, evidence_digest="0" * 64, created_by=cast.ada
    )
    with pytest.raises(Conflict, match="older version of the console"):
        submit_plan(acting_user=cast.ada, plan=plan)
    make.judge_again(cast, plan)
    submit_plan(acting_user=cast.ada, plan=plan)


def test_a_replay_that_was_cancelled_or_failed_after_somebody_could_look_counts_as_an_earlier_one(cast, fleet):
    plan = make.built_plan(cast, fleet)
    for looked, how in ((False, "cancel"), (True, "cancel"), (True, "fail")):
        row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **SMALL)
        if looked:
            cells.run_cell(row.cells.first().pk)
        if how == "cancel":
            cancel_job(acting_user=cast.ada, job=job)
        else:
            Replay.objects.filter(pk=row.pk).update(arrivals="no such process")
            cells._replay.cache_clear()
            cells.run_cell(row.cells.last().pk)
            assert Replay.objects.get(pk=row.pk).state == Replay.State.FAILED
    make.run_replay(cast, plan, **SMALL, faults=[{"kind": "drain", "destination": "d1", "start": 0.5}])
    make.run_replay(cast, plan)
    assert make.evaluation_of(plan).evidence["replay"]["earlier_replays"] == 2
    assert "It is replay 3 of this plan: 2 earlier ones had figures to look at" in item_3(plan).explanation


def test_the_page_says_beside_the_verdict_how_the_replay_was_made(client, cast, fleet):
    client.force_login(cast.grace)
    plan = make.built_plan(cast, fleet)
    url = f"/fleets/{fleet.slug}/plans/{plan.number}/"
    make.run_replay(cast, plan, **SMALL)
    body = client.get(url).content.decode()
    assert "the first 20% as warm-up; poisson arrivals; no bisection; default parameters for every policy." in body
    row = make.run_replay(
        cast,
        plan,
        **{**SMALL, "policies": ["chwbl"]},
        arrivals="gamma",
        cv=0.5,
        warmup=0.1,
        policy_parameters={"chwbl": {"load_factor": 1.5}},
    )
    Replay.objects.filter(pk=row.pk).update(
        refined_loads={"cacheroute": [6.0, 7.0]}, parameters={**row.parameters, "refine": 2, "extend": True}
    )
    body = client.get(url).content.decode()
    assert "the first 10% as warm-up; gamma arrivals with a coefficient of variation of 0.5" in body
    assert (
        "up to 2 rounds of bisection and extension beyond the highest load, which added 6, 7 requests/s for cacheroute"
        in body
    )
    assert "chwbl.load_factor = 1.5" in body


def test_the_stored_evidence_has_the_digest_that_was_computed_before_it_was_stored(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    evaluation = make.evaluation_of(plan)
    assert digest(evaluation.evidence) == evaluation.evidence_digest
    assert evaluation.policy_version == evaluation.evidence["policy"]["version"] == 1


def test_a_policy_that_is_changed_and_changed_back_is_another_version_and_makes_evidence_stale(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.5)
    assert changed_since(plan, make.evaluation_of(plan)) == ["the fleet's policy (version 3)"]


def test_rates_measured_since_with_another_distribution_stop_a_plan_and_the_same_again_do_not(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    make.make_workload(cast, fleet)  # measured again, the same shape
    assert changed_since(plan, make.evaluation_of(plan)) == []
    make.import_rates(cast, fleet, "key,rate\n" + "".join(f"k{n},1\n" for n in range(400)))
    workload = fleet.workloads.latest("id")
    assert workload.measured_at > plan.workload.measured_at
    assert changed_since(plan, make.evaluation_of(plan)) == ["the distribution of the rates"]
    item = make.judge_again(cast, plan).items.get(number=6)
    assert item.verdict == "fail"
    assert workload.name in item.explanation
    assert "gini" in item.explanation


def test_minus_zero_which_the_database_does_not_keep_is_kept_out_of_digests():
    assert digest(as_stored({"a": [-0.0, (1, -0.0)]})) == digest({"a": [0.0, [1, 0.0]]})
    assert digest({"a": -0.0}) != digest({"a": 0.0})
