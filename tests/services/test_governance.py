"""Review, rollout and fallback: a second person, the same evidence, one active plan, always a way back."""

import threading

import pytest
from django.db import IntegrityError, connection, transaction

from planner.errors import Conflict, Invalid, NotAllowed, StaleVersion
from planner.models import Approval, AuditEvent, Plan, Rollout
from planner.selectors.routing_tables import routing_table
from planner.services import fleets, reviews, rollouts
from tests import factories as make

pytestmark = pytest.mark.django_db


def approve(user, plan, **more):
    digest = more.pop("evidence_digest", None) or make.evaluation_of(plan).evidence_digest
    return reviews.approve_plan(acting_user=user, plan=plan, evidence_digest=digest, **more)


def test_another_person_approves(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    approval = approve(cast.grace, plan, comment="looks right")
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED
    assert approval.evidence_digest == make.evaluation_of(plan).evidence_digest
    event = AuditEvent.objects.get(action="plan.approved")
    assert (event.actor_name, event.evidence_digest) == ("grace", approval.evidence_digest)


def test_neither_author_nor_administrator_who_is_author_approves(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    from django.contrib.auth.models import Group

    cast.ada.groups.add(Group.objects.get(name="approver"))
    ada = type(cast.ada).objects.get(pk=cast.ada.pk)
    with pytest.raises(NotAllowed) as refusal:
        approve(ada, plan)
    assert refusal.value.code == "second-person"
    Plan.objects.filter(pk=plan.pk).update(author=cast.root)
    with pytest.raises(NotAllowed):
        approve(cast.root, plan)


def test_the_database_itself_refuses_an_approval_by_the_author(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    evaluation = make.evaluation_of(plan)
    with pytest.raises(IntegrityError, match="approval_by_another_person"), transaction.atomic():
        Approval.objects.create(
            plan=plan,
            evaluation=evaluation,
            decision="approve",
            evidence_digest=evaluation.evidence_digest,
            approver=cast.ada,
            author=cast.ada,
            submitter=cast.ada,
        )


@pytest.mark.parametrize("who", ["vera", "linus"])
def test_only_approvers_approve(cast, fleet, who):
    with pytest.raises(NotAllowed):
        approve(getattr(cast, who), make.submitted_plan(cast, fleet))


def test_approving_on_other_evidence_than_the_latest_is_refused(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    with pytest.raises(StaleVersion) as refusal:
        approve(cast.grace, plan, evidence_digest="0" * 64)
    assert refusal.value.code == "evidence-stale"


def test_a_change_of_policy_makes_the_evidence_stale(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4)
    with pytest.raises(Conflict) as refusal:
        approve(cast.grace, plan)
    assert refusal.value.code == "evidence-stale"
    assert "policy" in refusal.value.message


def test_a_plan_that_does_not_pass_cannot_be_submitted(cast):
    fleet = make.make_fleet(cast, "strict", max_rates_age_days=1)
    plan = make.built_plan(cast, fleet)
    with pytest.raises(Conflict) as refusal:
        reviews.submit_plan(acting_user=cast.ada, plan=plan)
    assert refusal.value.code == "gate-missing"
    evaluation = make.judge_again(cast, plan)
    assert not evaluation.passed
    with pytest.raises(Conflict) as refusal:
        reviews.submit_plan(acting_user=cast.ada, plan=plan)
    assert refusal.value.code == "gate-not-passed"


def test_quorum_of_two_needs_two_different_people(cast):
    fleet = make.make_fleet(cast, "quorum", min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    approve(cast.grace, plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.IN_REVIEW
    with pytest.raises(Conflict) as refusal:
        approve(cast.grace, plan)
    assert refusal.value.code == "decided"
    approve(cast.hopper, plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED


def test_rejecting_needs_a_reason(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    with pytest.raises(Invalid):
        reviews.reject_plan(acting_user=cast.grace, plan=plan, comment="  ")
    reviews.reject_plan(acting_user=cast.grace, plan=plan, comment="the trace is too short")
    plan.refresh_from_db()
    assert plan.state == Plan.State.REJECTED


def test_a_stale_version_is_refused_under_the_lock(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    with pytest.raises(StaleVersion):
        approve(cast.grace, plan, expected_version=plan.version - 1)


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
    fleet.serving_profile = fleets.serving_profile("qwen-32b-h100")
    fleet.save()
    with pytest.raises(Conflict) as refusal:
        rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "evidence-stale"
    assert "fingerprints" in refusal.value.message


def test_a_newer_evaluation_needs_approvals_of_its_own(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    make.judge_again(cast, plan)
    with pytest.raises(Conflict) as refusal:
        rollouts.start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "evidence-stale"


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


@pytest.mark.django_db(transaction=True)
def test_a_hundred_approvals_at_once_count_each_person_once(cast):
    fleet = make.make_fleet(cast, "crowd", min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    people = [make.make_user(f"person-{i}", "approver") for i in range(10)]
    digest = make.evaluation_of(plan).evidence_digest
    outcomes: list[str] = []
    gate = threading.Barrier(10)

    def press(person):
        gate.wait()
        for _ in range(10):
            try:
                approve(person, plan, evidence_digest=digest)
                outcomes.append("approved")
            except (Conflict, StaleVersion):
                outcomes.append("refused")
            except Exception as crash:  # noqa: BLE001 - the point of the test is that there is none
                outcomes.append(repr(crash))
        connection.close()

    threads = [threading.Thread(target=press, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(outcomes)) == ["approved", "refused"]
    assert outcomes.count("approved") == 2
    assert plan.approvals.values("approver").distinct().count() == 2
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED
