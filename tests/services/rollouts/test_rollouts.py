"""Rollouts: nothing unapproved reaches traffic, one canary at a time, and always a way back."""

import datetime as dt

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from planner import artifacts
from planner.errors import ArtifactLost, Conflict, NotAllowed
from planner.models import AuditEvent, BreakGlass, Plan, Publication, Rollout
from planner.selectors.fleets.routing_tables import routing_table
from planner.services.fleets import fleets
from planner.services.fleets.destinations import change_destination
from planner.services.reviews.approvals import approve_plan
from planner.services.reviews.submissions import retire_plan, submit_plan
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.freezes import freeze, unfreeze
from planner.services.rollouts.rollback import roll_back
from planner.services.rollouts.starts import reschedule_rollout, start_rollout
from planner.services.rollouts.steps import (
    abort_rollout,
    advance_rollout,
    pause_rollout,
    promote_rollout,
    resume_rollout,
)
from tests import factories as make

pytestmark = pytest.mark.django_db


def test_canary_then_active_and_the_table_follows(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    version = routing_table(fleet)["version"]
    rollout = start_rollout(acting_user=cast.linus, plan=plan)
    fleet.refresh_from_db()
    table = routing_table(fleet)
    assert table["version"] == version + 1
    assert [(a["name"], a["plan"], a["weight"]) for a in table["arms"]] == [
        ("incumbent", 0, 0.9),
        ("canary", plan.number, 0.1),
    ]
    assert table["arms"][0]["keys"] == {}
    assert len(table["arms"][1]["keys"]) == plan.summary["admitted"]
    advance_rollout(acting_user=cast.linus, rollout=make.pass_step(rollout))
    fleet.refresh_from_db()
    table = routing_table(fleet)
    assert [(a["name"], a["plan"], a["weight"]) for a in table["arms"]] == [("incumbent", plan.number, 1.0)]
    assert fleet.rollouts.filter(state="superseded").get().plan.kind == Plan.Kind.FLAT


def test_the_published_members_are_those_of_the_stored_table(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    start_rollout(acting_user=cast.linus, plan=plan)
    table, names = artifacts.load_table(plan.table)
    arm = routing_table(fleet)["arms"][1]
    for at, name in enumerate(names):
        assert arm["keys"][name] == table.members[table.offsets[at] : table.offsets[at + 1]].tolist()
        assert arm["backup"][name] == table.backup[at]
        assert arm["backup"][name] not in arm["keys"][name]


def test_canary_weights_of_the_policy_are_taken_in_order(cast):
    fleet = make.make_fleet(cast, "steps", canary_weights=[0.01, 0.1, 0.5])
    rollout = start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))
    seen = [rollout.weight]
    while rollout.state == Rollout.State.CANARY:
        rollout = advance_rollout(acting_user=cast.linus, rollout=make.pass_step(rollout))
        seen.append(rollout.weight)
    assert seen == [0.01, 0.1, 0.5, 1.0]
    assert list(rollout.steps.order_by("number").values_list("weight", flat=True)) == seen


def test_nothing_unapproved_reaches_traffic(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "not-approved"


def test_an_approval_does_not_outlive_its_evidence(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    fleets.change_serving_profile(acting_user=cast.root, fleet=fleet, engine_profile="qwen-32b-h100")
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "evidence-stale"
    assert "the serving profile" in refusal.value.message


def test_a_plan_whose_table_is_lost_is_not_deployed(cast, fleet):
    from django.core.files.storage import default_storage

    plan = make.approved_plan(cast, fleet)
    default_storage.delete(plan.table.path)
    with pytest.raises(ArtifactLost):
        start_rollout(acting_user=cast.linus, plan=plan)


def test_a_plan_for_four_destinations_is_not_deployed_on_one(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    for destination in fleet.destinations.exclude(index=0):
        change_destination(acting_user=cast.linus, destination=destination, state="down")
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert "the destinations that are up" in refusal.value.message


def test_a_plan_that_carries_traffic_is_not_archived(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    start_rollout(acting_user=cast.linus, plan=plan)
    with pytest.raises(Conflict, match="carries traffic"):
        retire_plan(acting_user=cast.ada, plan=plan)
    fall_back(acting_user=cast.linus, fleet=fleet)
    retire_plan(acting_user=cast.ada, plan=plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.RETIRED


def test_one_canary_a_fleet(cast, fleet):
    one, two = make.approved_plan(cast, fleet), make.approved_plan(cast, fleet)
    start_rollout(acting_user=cast.linus, plan=one)
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=two)
    assert refusal.value.code == "canary-running"
    with pytest.raises(IntegrityError, match="rollout_one_ahead_a_fleet"), transaction.atomic():
        Rollout.objects.create(fleet=fleet, plan=two, state="canary", weight=0.2)


def test_a_plan_that_was_rolled_back_may_be_rolled_out_again(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    start_rollout(acting_user=cast.linus, plan=plan)
    fall_back(acting_user=cast.linus, fleet=fleet)
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


def test_a_rollout_keeps_what_it_started_with(cast):
    fleet = make.make_fleet(cast, "kept", canary_weights=[0.01, 0.2], canary_holds_s=[10.0, 20.0])
    plan = make.approved_plan(cast, fleet)
    rollout = make.canary(cast, fleet, plan)
    assert rollout.planned_steps == [{"weight": 0.01, "hold_s": 10.0}, {"weight": 0.2, "hold_s": 20.0}]
    assert rollout.incumbent.kind == Plan.Kind.FLAT
    assert rollout.evidence_digest == make.evaluation_of(plan).evidence_digest
    assert rollout.step_started_at == rollout.steps.get().entered_at
    event = AuditEvent.objects.get(action="rollout.started")
    assert event.evidence_digest == rollout.evidence_digest
    assert event.after["steps"] == rollout.planned_steps


def test_every_version_of_the_table_is_kept_with_its_arms(cast, fleet):
    first = make.active_plan(cast, fleet)
    second = make.approved_plan(cast, fleet)
    rollout = make.canary(cast, fleet, second)
    fleet.refresh_from_db()
    assert list(Publication.objects.filter(fleet=fleet).order_by("version").values_list("version", flat=True)) == list(
        range(1, fleet.table_version + 1)
    )
    newest = Publication.objects.get(fleet=fleet, version=fleet.table_version)
    assert [(a["name"], a["plan"], a["number"], a["weight"]) for a in newest.arms] == [
        ("incumbent", first.pk, first.number, 0.9),
        ("canary", second.pk, second.number, 0.1),
    ]
    assert newest.arms[1]["rollout"] == rollout.pk


def test_a_refused_start_leaves_the_plan_approved_and_startable(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4)
    with pytest.raises(Conflict) as refusal:
        make.canary(cast, fleet, plan)
    assert refusal.value.code == "evidence-stale"
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED
    assert not fleet.rollouts.filter(plan=plan).exists()
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.5)
    evaluation = make.judge_again(cast, plan)
    submit_plan(acting_user=cast.ada, plan=plan)
    approve_plan(acting_user=cast.grace, plan=plan, evidence_digest=evaluation.evidence_digest)
    assert make.canary(cast, fleet, plan).state == Rollout.State.CANARY


def test_no_canary_starts_while_the_fleet_rests_after_an_automatic_fallback(cast, fleet):
    plan = make.active_plan(cast, fleet)
    fall_back(acting_user=None, fleet=fleet, reason="p99 left the envelope")
    with pytest.raises(Conflict) as refusal:
        make.canary(cast, fleet, plan)
    assert refusal.value.code == "cooling-down"
    fleets.change_policy(acting_user=cast.root, fleet=fleet, cool_down_s=0.0)
    with pytest.raises(Conflict) as refusal:
        make.canary(cast, fleet, plan)
    assert refusal.value.code == "evidence-stale"  # by the policy, and no more by the cool-down


def test_no_canary_starts_before_an_emergency_was_reviewed(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    now = timezone.now()
    emergency = BreakGlass.objects.create(
        fleet=fleet, opened_by=cast.ada, reason="all is slow", expires_at=now - dt.timedelta(seconds=1)
    )
    with pytest.raises(Conflict) as refusal:
        make.canary(cast, fleet, plan)
    assert refusal.value.code == "review-open"
    emergency.reviewed_by, emergency.reviewed_at = cast.grace, now
    emergency.save()
    assert make.canary(cast, fleet, plan).state == Rollout.State.CANARY


def test_viewers_and_planners_do_not_operate(cast, fleet):
    rollout = make.canary(cast, fleet)
    for user in (cast.vera, cast.ada):
        for call, values in (
            (start_rollout, {"plan": rollout.plan}),
            (advance_rollout, {"rollout": rollout}),
            (promote_rollout, {"rollout": rollout, "reason": "now"}),
            (pause_rollout, {"rollout": rollout}),
            (resume_rollout, {"rollout": rollout}),
            (abort_rollout, {"rollout": rollout}),
            (reschedule_rollout, {"rollout": rollout, "scheduled_for": timezone.now()}),
            (roll_back, {"fleet": fleet, "plan": rollout.plan, "reason": "now"}),
            (fall_back, {"fleet": fleet}),
            (freeze, {"fleet": fleet, "reason": "now"}),
            (freeze, {"fleet": None, "reason": "now"}),
            (unfreeze, {"fleet": fleet}),
        ):
            with pytest.raises(NotAllowed):
                call(acting_user=user, **values)
