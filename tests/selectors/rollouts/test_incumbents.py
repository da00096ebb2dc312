"""The active plan is replayed beside a candidate automatically, and the checklist compares the two."""

import pytest

from planner.errors import Conflict
from planner.models import Plan, Rollout
from planner.services.fleets.destinations import change_destination
from planner.services.gate.evidence import collect_evidence
from planner.services.replays.options import check_options
from planner.services.reviews.approvals import approve_plan
from planner.services.reviews.evidence_changes import changed_since
from planner.services.reviews.submissions import submit_plan
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import advance_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db


def bring_live(cast, plan):
    rollout = start_rollout(acting_user=cast.linus, plan=plan)
    while rollout.state != Rollout.State.ACTIVE:
        rollout = advance_rollout(acting_user=cast.linus, rollout=make.pass_step(rollout))
    return Plan.objects.get(pk=plan.pk)


@pytest.fixture
def live(cast, fleet):
    return bring_live(cast, make.approved_plan(cast, fleet))


def check(plan, name):
    items = make.evaluation_of(plan).items.all()
    return next(c for item in items for c in item.checks if c["name"] == name)


def test_the_live_plan_is_replayed_beside_a_new_one_without_being_asked_for(cast, fleet, live):
    plan = make.built_plan(cast, fleet)
    row = make.run_replay(cast, plan)
    label = f"cacheroute@{live.number}"
    assert label in row.policies
    assert [(o["plan"], o["live"], o["unknown"]) for o in row.parameters["also"]] == [(live.number, True, 0)]
    assert row.cells.filter(policy=label, state="succeeded").count() == 9
    evidence = make.evaluation_of(plan).evidence
    assert evidence["incumbent"] == {"plan": live.number, "table_digest": live.table.digest, "apart": ""}
    assert evidence["replay"]["incumbent"]["policy"] == label
    assert len(evidence["replay"]["incumbent"]["against"]["p99_s"]) == 3
    # The same rates make the same table: it is no worse than what is live.
    assert check(plan, "incumbent-replayed")["verdict"] == "pass"
    assert check(plan, "incumbent-not-better")["verdict"] == "pass"


def test_a_what_if_and_a_fleet_on_flat_lb_have_no_other_plan_beside(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    assert plan.replays.get().parameters["also"] == []
    bring_live(cast, plan)
    other = make.built_plan(cast, fleet)
    fault = [{"kind": "drain", "destination": "d1", "start": 0.5}]
    assert check_options(other, **make.REPLAY, faults=fault).to_json()["also"] == []
    # Named explicitly, it is listed once.
    also = check_options(other, **make.REPLAY, also=[plan.number]).to_json()["also"]
    assert [row["plan"] for row in also] == [plan.number]


def test_a_replay_from_before_the_live_plan_went_live_is_not_enough(cast, fleet):
    first = make.approved_plan(cast, fleet)
    second = make.replayed_plan(cast, fleet)
    assert make.evaluation_of(second).passed
    bring_live(cast, first)
    with pytest.raises(Conflict) as refusal:
        submit_plan(acting_user=cast.ada, plan=second)
    assert refusal.value.code == "evidence-stale"
    assert "the plan that is live" in refusal.value.message
    assert not make.judge_again(cast, second).passed
    assert check(second, "incumbent-replayed")["verdict"] == "missing"
    assert check(second, "incumbent-not-better")["verdict"] == "missing"
    make.run_replay(cast, second)
    assert make.evaluation_of(second).passed


def test_a_live_plan_for_other_destinations_cannot_be_compared_and_falling_back_first_helps(cast, fleet, live):
    change_destination(acting_user=cast.root, destination=fleet.destinations.get(index=3), state="down")
    plan = make.built_plan(cast, fleet)
    assert make.run_replay(cast, plan).parameters["also"] == []
    found = check(plan, "incumbent-replayed")
    assert found["verdict"] == "missing"
    assert "it is for other destinations than this one" in found["explanation"]
    fall_back(acting_user=cast.linus, fleet=fleet, reason="a rack is gone")
    make.judge_again(cast, plan)
    assert check(plan, "incumbent-replayed")["verdict"] == "pass"


def test_a_live_plan_none_of_whose_keys_are_known_is_left_out_and_missing(cast, fleet, live):
    rates = make.import_rates(cast, fleet, "key,rate\n" + "".join(f"other-{n},1\n" for n in range(8)))
    plan = make.built_plan(cast, fleet, workload=rates)
    chosen = check_options(plan, **make.REPLAY).to_json()
    assert (chosen["also"], chosen["policies"]) == ([], ["flat-lb", "cacheroute", "sticky"])


def test_becoming_active_changes_nothing_of_the_evidence_that_a_plan_was_approved_on(cast, fleet, live):
    evaluation = make.evaluation_of(live)
    assert changed_since(live, evaluation) == []
    plan = make.replayed_plan(cast, fleet, incumbent=live)
    plan = submit_plan(acting_user=cast.ada, plan=plan)
    evaluation = make.evaluation_of(plan)
    approve_plan(acting_user=cast.grace, plan=plan, evidence_digest=evaluation.evidence_digest)
    bring_live(cast, plan)
    assert collect_evidence(plan).document["incumbent"]["plan"] == live.number
    assert collect_evidence(plan).document["replan"]["incumbent_is_live"] is True
    assert changed_since(plan, evaluation) == []


def test_the_plan_ordered_with_its_replay_gets_the_live_one_beside_too(cast, fleet, live):
    plan, job = make.order_plan(cast, fleet, replay=make.REPLAY)
    make.build(job)
    assert f"cacheroute@{live.number}" in plan.replays.get().policies


def test_what_the_vote_would_touch_is_part_of_the_evidence(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    radius = make.evaluation_of(plan).evidence["blast_radius"]
    assert radius["against"] == 0
    assert radius["keys_gained"] == plan.summary["admitted"]


def _texts(value):
    if isinstance(value, str):
        return {value} if " " in value else set()
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return set().union(*map(_texts, parts))


def test_sentences_in_evidence_keep_their_wording_because_the_digest_covers_them(cast, fleet, live):
    change_destination(acting_user=cast.root, destination=fleet.destinations.get(index=3), state="down")
    plan = make.built_plan(cast, fleet)
    make.run_replay(cast, plan)
    document = collect_evidence(plan).document
    del document["policy"], document["workload"]["name"]
    # Another wording needs another `FORMAT`: plans that are approved would have to be approved again.
    assert document["format"] == "cacheroute.evidence/4"
    assert _texts(document) == {
        "it is for other destinations than this one",
        "First order: each pair of a key and a destination that is new starts cold, is warm from its first request on, "
        "requests arrive at random at the measured rates, nothing is evicted; what the old routing happens to have "
        "cached elsewhere is not counted.",
    }
