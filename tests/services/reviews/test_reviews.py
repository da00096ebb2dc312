"""Review: a second person decides, on evidence that is still true, and what makes it stale."""

import threading

import pgtrigger
import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from planner.errors import Conflict, Invalid, NotAllowed, StaleVersion
from planner.models import Approval, AuditEvent, GateEvaluation, Plan, Rollout
from planner.services.fleets import fleets
from planner.services.gate import evaluations
from planner.services.gate.evidence import collect_evidence
from planner.services.reviews.approvals import approve_plan, reject_plan
from planner.services.reviews.submissions import retire_plan, submit_plan, withdraw_plan
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import advance_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db


def approve(user, plan, **more):
    digest = more.pop("evidence_digest", None) or make.evaluation_of(plan).evidence_digest
    return approve_plan(acting_user=user, plan=plan, evidence_digest=digest, **more)


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
    with pgtrigger.ignore():  # the database would refuse it
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
        submit_plan(acting_user=cast.ada, plan=plan)
    assert refusal.value.code == "gate-missing"
    evaluation = make.judge_again(cast, plan)
    assert not evaluation.passed
    with pytest.raises(Conflict) as refusal:
        submit_plan(acting_user=cast.ada, plan=plan)
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
        reject_plan(acting_user=cast.grace, plan=plan, comment="  ")
    reject_plan(acting_user=cast.grace, plan=plan, comment="the trace is too short")
    plan.refresh_from_db()
    assert plan.state == Plan.State.REJECTED


def test_a_stale_version_is_refused_under_the_lock(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    with pytest.raises(StaleVersion):
        approve(cast.grace, plan, expected_version=plan.version - 1)


def test_judging_the_same_evidence_again_takes_no_approval_away(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    make.judge_again(cast, plan)
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


def test_a_re_evaluation_between_two_votes_keeps_the_first(cast):
    fleet = make.make_fleet(cast, "votes", min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    approve(cast.grace, plan)
    make.judge_again(cast, plan)
    approve(cast.hopper, plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED


def test_a_user_who_submits_after_voting_is_no_second_person(cast):
    fleet = make.make_fleet(cast, "turncoat", min_approvals=2)
    root2 = make.make_user("root2", "admin", superuser=True)
    plan = make.submitted_plan(cast, fleet)
    approve(root2, plan)
    withdraw_plan(acting_user=cast.ada, plan=plan)
    submit_plan(acting_user=root2, plan=plan)
    approve(cast.grace, plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.IN_REVIEW
    approve(cast.hopper, plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED


def test_viewers_cannot_evaluate(cast, fleet):
    with pytest.raises(NotAllowed):
        evaluations.evaluate_gate(acting_user=cast.vera, plan=make.replayed_plan(cast, fleet))


def test_an_approved_plan_whose_evidence_changed_is_reviewed_again(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4)
    with pytest.raises(Conflict):
        start_rollout(acting_user=cast.linus, plan=plan)
    make.judge_again(cast, plan)
    plan = submit_plan(acting_user=cast.ada, plan=plan)
    assert plan.state == Plan.State.IN_REVIEW
    approve(cast.grace, plan)
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


def test_an_approved_plan_is_not_submitted_again_without_a_reason(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    with pytest.raises(Conflict, match="already"):
        submit_plan(acting_user=cast.ada, plan=plan)


def test_an_approver_who_then_finds_a_fault_may_reject(cast):
    fleet = make.make_fleet(cast, "doubt", min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    approve(cast.grace, plan)
    reject_plan(acting_user=cast.grace, plan=plan, comment="the load is too high")
    plan.refresh_from_db()
    assert plan.state == Plan.State.REJECTED


def test_a_plan_is_withdrawn_from_review_and_archived(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    with pytest.raises(Conflict):
        retire_plan(acting_user=cast.ada, plan=plan)
    withdraw_plan(acting_user=cast.ada, plan=plan)
    with pytest.raises(Conflict):
        approve(cast.grace, plan)
    retire_plan(acting_user=cast.ada, plan=plan, reason="superseded")
    plan.refresh_from_db()
    assert plan.state == Plan.State.CANCELLED


def test_another_slo_needs_another_replay(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, slo_p99_s=0.001)
    assert not make.judge_again(cast, plan).passed


def test_a_table_that_was_built_is_not_exchanged(cast, fleet):
    plan, other = make.built_plan(cast, fleet), make.built_plan(cast, fleet, slots_per_destination=1)
    with pytest.raises(DatabaseError, match="Cannot update"), transaction.atomic():
        Plan.objects.filter(pk=plan.pk).update(table=other.table)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slo_p99_s", 0), ("slo_p99_s", float("inf")), ("slo_p99_s", None), ("min_approvals", 0),
        ("min_approvals", True), ("max_rates_age_days", 0.5), ("max_imbalance", 0.9), ("max_imbalance", float("nan")),
        ("accept_simulated", "no"), ("canary_weights", []),
        ("canary_weights", [0.5, 0.1]), ("canary_weights", [1.0]), ("canary_weights", "10%"),
        ("colour", "red"),
    ],
)  # fmt: skip
def test_policy_values_that_no_gate_could_be_judged_by_name_their_field(cast, fleet, field, value):
    with pytest.raises(Invalid) as refusal:
        fleets.change_policy(acting_user=cast.root, fleet=fleet, **{field: value})
    assert refusal.value.field == field


def test_the_envelope_is_the_part_of_the_ladder_that_passes_without_a_gap(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    replay = plan.replays.get()
    loads = replay.verdict["policies"]["cacheroute"]["loads"]
    loads[0]["p99_s"]["mean"] = 99.0  # the lowest load fails, the others pass
    replay.save()
    assert collect_evidence(plan).document["envelope"] is None


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


def test_evidence_of_an_older_version_of_the_console_is_named_as_that(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    latest = make.evaluation_of(plan)
    GateEvaluation.objects.create(
        plan=plan,
        replay=latest.replay,
        passed=True,
        evidence={**latest.evidence, "format": "cacheroute.evidence/1"},
        evidence_digest="0" * 64,
    )
    with pytest.raises(Conflict, match="evaluated by an older version of the console"):
        submit_plan(acting_user=cast.ada, plan=plan)


def test_an_approved_replan_is_stale_when_what_it_starts_from_is_not_live_any_more(cast, fleet):
    live = make.approved_plan(cast, fleet)
    rollout = start_rollout(acting_user=cast.linus, plan=live)
    while rollout.state != Rollout.State.ACTIVE:
        rollout = advance_rollout(acting_user=cast.linus, rollout=make.pass_step(rollout))
    replan = make.replayed_plan(cast, fleet, incumbent=live)
    evidence = make.evaluation_of(replan).evidence["replan"]
    assert (evidence["incumbent"], evidence["incumbent_is_live"]) == (live.number, True)
    submit_plan(acting_user=cast.ada, plan=replan)
    digest = make.evaluation_of(replan).evidence_digest
    approve_plan(acting_user=cast.grace, plan=replan, evidence_digest=digest)
    fall_back(acting_user=cast.linus, fleet=fleet, reason="p99")
    with pytest.raises(Conflict, match="the live plan that it starts from"):
        start_rollout(acting_user=cast.linus, plan=Plan.objects.get(pk=replan.pk))
