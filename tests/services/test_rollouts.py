"""Rollouts: nothing unapproved reaches traffic, one canary at a time, and always a way back."""

import pytest
from django.db import IntegrityError, transaction

from planner.errors import ArtifactLost, Conflict, NotAllowed
from planner.models import AuditEvent, Plan, Rollout
from planner.selectors.routing_tables import routing_table
from planner.services import fleets, reviews, rollouts
from tests import factories as make

pytestmark = pytest.mark.django_db


def test_canary_then_active_and_the_table_follows(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    version = routing_table(fleet)["version"]
    rollout = rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    fleet.refresh_from_db()
    table = routing_table(fleet)
    assert table["version"] == version + 1
    assert [(a["name"], a["plan"], a["weight"]) for a in table["arms"]] == [
        ("incumbent", 0, 0.9),
        ("canary", plan.number, 0.1),
    ]
    assert table["arms"][0]["keys"] == {}
    assert len(table["arms"][1]["keys"]) == plan.summary["admitted"]
    rollouts.advance_rollout(acting_user=cast.linus, rollout=rollout)
    fleet.refresh_from_db()
    table = routing_table(fleet)
    assert [(a["name"], a["plan"], a["weight"]) for a in table["arms"]] == [("incumbent", plan.number, 1.0)]
    assert fleet.rollouts.filter(state="superseded").get().plan.kind == Plan.Kind.FLAT


def test_the_published_members_are_those_of_the_stored_table(cast, fleet):
    from planner import artifacts

    plan = make.approved_plan(cast, fleet)
    rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    table, names = artifacts.load_table(plan.table)
    arm = routing_table(fleet)["arms"][1]
    for at, name in enumerate(names):
        assert arm["keys"][name] == table.members[table.offsets[at] : table.offsets[at + 1]].tolist()
        assert arm["backup"][name] == table.backup[at]
        assert arm["backup"][name] not in arm["keys"][name]


def test_canary_weights_of_the_policy_are_taken_in_order(cast):
    fleet = make.make_fleet(cast, "steps", canary_weights=[0.01, 0.1, 0.5])
    rollout = rollouts.start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))
    seen = [rollout.weight]
    while rollout.state == Rollout.State.CANARY:
        rollout = rollouts.advance_rollout(acting_user=cast.linus, rollout=rollout)
        seen.append(rollout.weight)
    assert seen == [0.01, 0.1, 0.5, 1.0]
    assert list(rollout.steps.order_by("number").values_list("weight", flat=True)) == seen


def test_nothing_unapproved_reaches_traffic(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    with pytest.raises(Conflict) as refusal:
        rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "not-approved"


def test_an_approval_does_not_outlive_its_evidence(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    fleets.change_serving_profile(acting_user=cast.root, fleet=fleet, engine_profile="qwen-32b-h100")
    with pytest.raises(Conflict) as refusal:
        rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "evidence-stale"
    assert "the serving profile" in refusal.value.message


def test_a_plan_whose_table_is_lost_is_not_deployed(cast, fleet):
    from django.core.files.storage import default_storage

    plan = make.approved_plan(cast, fleet)
    default_storage.delete(plan.table.path)
    with pytest.raises(ArtifactLost):
        rollouts.start_rollout(acting_user=cast.linus, plan=plan)


def test_a_plan_for_four_destinations_is_not_deployed_on_one(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    for destination in fleet.destinations.exclude(index=0):
        fleets.change_destination(acting_user=cast.linus, destination=destination, state="down")
    with pytest.raises(Conflict) as refusal:
        rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    assert "the destinations that are up" in refusal.value.message


def test_a_plan_that_carries_traffic_is_not_put_away(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    with pytest.raises(Conflict, match="carries traffic"):
        reviews.retire_plan(acting_user=cast.ada, plan=plan)
    rollouts.fall_back(acting_user=cast.linus, fleet=fleet)
    reviews.retire_plan(acting_user=cast.ada, plan=plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.RETIRED


def test_one_canary_a_fleet(cast, fleet):
    one, two = make.approved_plan(cast, fleet), make.approved_plan(cast, fleet)
    rollouts.start_rollout(acting_user=cast.linus, plan=one)
    with pytest.raises(Conflict) as refusal:
        rollouts.start_rollout(acting_user=cast.linus, plan=two)
    assert refusal.value.code == "canary-running"
    with pytest.raises(IntegrityError, match="rollout_one_canary_a_fleet"), transaction.atomic():
        Rollout.objects.create(fleet=fleet, plan=two, state="canary", weight=0.2)


def test_aborting_a_canary_leaves_what_was_active(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    rollout = rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    rollouts.abort_rollout(acting_user=cast.linus, rollout=rollout, reason="p99 up")
    assert [a["plan"] for a in routing_table(fleet)["arms"]] == [0]
    with pytest.raises(Conflict):
        rollouts.advance_rollout(acting_user=cast.linus, rollout=rollout)


@pytest.mark.parametrize("stage", ["flat", "canary", "active", "active and canary"])
def test_fall_back_works_from_every_state_and_twice(cast, fleet, stage):
    if stage != "flat":
        rollout = rollouts.start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))
        if stage != "canary":
            rollouts.advance_rollout(acting_user=cast.linus, rollout=rollout)
        if stage == "active and canary":
            rollouts.start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))
    fleet.refresh_from_db()
    before = fleet.table_version
    rollouts.fall_back(acting_user=cast.linus, fleet=fleet, reason="drill")
    fleet.refresh_from_db()
    assert [(a["plan"], a["weight"]) for a in routing_table(fleet)["arms"]] == [(0, 1.0)]
    assert fleet.table_version == before + (stage != "flat")
    again = rollouts.fall_back(acting_user=cast.linus, fleet=fleet)
    fleet.refresh_from_db()
    assert fleet.table_version == before + (stage != "flat")
    assert again.state == Rollout.State.ACTIVE
    assert AuditEvent.objects.filter(action="fleet.fell_back").count() == (stage != "flat")


def test_a_plan_that_was_rolled_back_may_be_rolled_out_again(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    rollouts.fall_back(acting_user=cast.linus, fleet=fleet)
    assert rollouts.start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


def test_viewers_and_planners_do_not_operate(cast, fleet):
    for user in (cast.vera, cast.ada):
        with pytest.raises(NotAllowed):
            rollouts.fall_back(acting_user=user, fleet=fleet)
