"""Approvals hold for a time, are withdrawn by who gave them, and are counted once, however many come at once."""

import datetime as dt
import io
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pgtrigger
import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from planner.errors import Conflict, Invalid, NotAllowed, Refused
from planner.models import Approval, AuditEvent, DriftCheck, Plan, PlanComment, Rollout, TelemetryWindow
from planner.services.access import roles
from planner.services.access.roles import remove_role
from planner.services.fleets import fleets
from planner.services.fleets.destinations import change_destination
from planner.services.replays import orders as replay_orders
from planner.services.reviews import comments
from planner.services.reviews.approvals import approve_plan, reject_plan, withdraw_approval
from planner.services.reviews.evidence_changes import changed_since
from planner.services.reviews.submissions import submit_plan, withdraw_plan
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import abort_rollout, advance_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db


def approve(user, plan, **more):
    digest = more.pop("evidence_digest", None) or make.evaluation_of(plan).evidence_digest
    return approve_plan(acting_user=user, plan=plan, evidence_digest=digest, **more)


def expire(approval):
    with pgtrigger.ignore():  # the database would refuse it
        Approval.objects.filter(pk=approval.pk).update(
            created_at=timezone.now() - dt.timedelta(days=20), expires_at=timezone.now() - dt.timedelta(seconds=1)
        )


def test_an_approval_holds_for_as_long_as_the_policy_says(cast):
    fleet = make.make_fleet(cast, "days", approval_days=3)
    approval = approve(cast.grace, make.submitted_plan(cast, fleet))
    assert abs(approval.expires_at - timezone.now() - dt.timedelta(days=3)) < dt.timedelta(minutes=1)


def test_an_expired_approval_counts_neither_at_the_next_vote_nor_at_a_deployment(cast):
    fleet = make.make_fleet(cast, "expiry", min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    expire(approve(cast.grace, plan))
    approve(cast.hopper, plan)
    plan.refresh_from_db()
    assert plan.state == Plan.State.IN_REVIEW  # one of two stands
    approve(cast.grace, plan)  # again, in the place of the one that ran out
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED
    expire(plan.approvals.get(approver=cast.hopper))
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "approval-expired"
    assert "the approval of hopper expired on" in refusal.value.message
    assert "1 of 2 approvals count" in refusal.value.message


def test_a_plan_whose_approval_expired_is_submitted_and_approved_again_on_the_same_evidence(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    expire(plan.approvals.get())
    plan = submit_plan(acting_user=cast.ada, plan=plan)
    assert plan.state == Plan.State.IN_REVIEW
    approve(cast.grace, plan)
    first, second = plan.approvals.order_by("id")
    assert first.withdrawn_at >= first.expires_at
    assert second.withdrawn_at is None
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


def lose_the_role(cast, user):
    remove_role(acting_user=cast.root, user=user, role="approver")


def lose_the_account(cast, user):
    roles.set_active(acting_user=cast.root, user=user, active=False)


@pytest.mark.parametrize("lose", [lose_the_role, lose_the_account])
def test_the_vote_of_a_user_who_lost_the_right_counts_neither_at_approval_nor_at_deployment(client, cast, fleet, lose):
    fleets.change_policy(acting_user=cast.root, fleet=fleet, min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    approve(cast.grace, plan)
    lose(cast, cast.grace)
    assert (approve(cast.hopper, plan).plan_id, Plan.objects.get(pk=plan.pk).state) == (plan.pk, Plan.State.IN_REVIEW)
    approve(cast.root, plan)  # the second who may
    assert Plan.objects.get(pk=plan.pk).state == Plan.State.APPROVED
    lose(cast, cast.hopper)
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=Plan.objects.get(pk=plan.pk))
    assert refusal.value.code == "approver-lost-right"
    assert "grace, hopper approved but may no longer approve on this fleet: 1 of 2" in refusal.value.message
    client.force_login(cast.ada)
    page = client.get(f"/fleets/{fleet.slug}/plans/{plan.number}/").content.decode()
    assert page.count("approver lost the role") == 2
    assert "grace, hopper approved but may no longer approve" in page
    roles.grant_role(acting_user=cast.root, user=cast.hopper, role="approver", fleet=fleet)
    roles.set_active(acting_user=cast.root, user=cast.hopper, active=True)
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


def test_an_approval_is_withdrawn_by_who_gave_it_and_the_plan_cannot_be_deployed(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    approval = plan.approvals.get()
    for other in (cast.hopper, cast.root, cast.ada):
        with pytest.raises(NotAllowed):
            withdraw_approval(acting_user=other, approval=approval)
    before = Plan.objects.get(pk=plan.pk).version
    withdraw_approval(acting_user=cast.grace, approval=approval, reason="the trace was last week's")
    plan.refresh_from_db()
    assert (plan.state, plan.version) == (Plan.State.APPROVED, before + 1)
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "approval-withdrawn"
    assert "grace withdrew the approval (the trace was last week's): 0 of 1 approvals count" in refusal.value.message
    event = AuditEvent.objects.get(action="approval.withdrawn")
    assert (event.actor_name, event.reason, event.evidence_digest) == (
        "grace", "the trace was last week's", approval.evidence_digest,
    )  # fmt: skip
    with pytest.raises(Conflict, match="already withdrawn"):
        withdraw_approval(acting_user=cast.grace, approval=approval)
    # The same person may come to think otherwise, in another review.
    approve(cast.grace, submit_plan(acting_user=cast.ada, plan=plan))
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


def test_a_canary_that_lost_its_approval_goes_no_further_and_can_be_aborted(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    rollout = make.pass_step(start_rollout(acting_user=cast.linus, plan=plan))
    withdraw_approval(acting_user=cast.grace, approval=plan.approvals.get())
    with pytest.raises(Conflict) as refusal:
        advance_rollout(acting_user=cast.linus, rollout=rollout)
    assert refusal.value.code == "approval-withdrawn"
    assert abort_rollout(acting_user=cast.linus, rollout=rollout).state == Rollout.State.ABORTED


def test_a_withdrawn_approval_cannot_be_given_back_nor_a_rejection_withdrawn(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    approval = approve(cast.grace, plan)
    withdraw_approval(acting_user=cast.grace, approval=approval)
    with pytest.raises(DatabaseError, match="withdrawal_is_final"), transaction.atomic():
        Approval.objects.filter(pk=approval.pk).update(withdrawn_at=None)
    with pytest.raises(DatabaseError, match="decision_is_final"), transaction.atomic():
        Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() + dt.timedelta(days=900))
    other = make.submitted_plan(cast, make.make_fleet(cast, "no"))
    rejected = reject_plan(acting_user=cast.grace, plan=other, comment="no")
    with pytest.raises(Conflict, match="final"):
        withdraw_approval(acting_user=cast.grace, approval=rejected)


def test_a_higher_quorum_takes_an_approved_plan_back_to_review(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, min_approvals=2)
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "evidence-stale"
    assert "the fleet's policy (min approvals)" in refusal.value.message


@pytest.mark.parametrize("quorum", [0, -1])
def test_there_is_no_quorum_of_nobody(cast, fleet, quorum):
    with pytest.raises(Invalid):
        fleets.change_policy(acting_user=cast.root, fleet=fleet, min_approvals=quorum)
    with pytest.raises(DatabaseError), transaction.atomic():
        type(fleet).objects.filter(pk=fleet.pk).update(min_approvals=quorum)


def second_account(cast, name, email, group="approver"):
    user = User.objects.create_user(name, email=email, password=make.PASSWORD)
    user.groups.add(Group.objects.get(name=group))
    return user


def test_an_approval_by_a_second_account_of_the_same_address_is_recorded_as_that(cast, fleet):
    ada2 = second_account(cast, "ada-private", "ADA@example.test ")
    approval = approve(ada2, make.submitted_plan(cast, fleet))
    assert approval.shared_email == "ADA@example.test"
    event = AuditEvent.objects.get(action="plan.approved")
    assert event.after["shared_email"] == "ADA@example.test"


def test_accounts_without_an_address_share_none(cast, fleet):
    User.objects.filter(pk=cast.ada.pk).update(email="")
    nobody = second_account(cast, "nobody", "")
    assert approve(nobody, make.submitted_plan(cast, fleet)).shared_email == ""
    assert approve(cast.grace, make.submitted_plan(cast, make.make_fleet(cast, "apart"))).shared_email == ""


@pytest.mark.parametrize("silence", ["monitor", "telemetry"])
def test_silence_refuses_approvals_and_deployments_and_keeps_older_approvals(cast, fleet, silence, monkeypatch):
    plan = make.approved_plan(cast, fleet)
    evidence = make.evaluation_of(plan).evidence_digest
    later = timezone.now() + dt.timedelta(minutes=10)
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: later)
    if silence == "monitor":
        TelemetryWindow.objects.create(
            fleet=fleet, plan=plan, arm="incumbent", source="r", table_version=1, figures={},
            started_at=later - dt.timedelta(seconds=20), ended_at=later,
        )  # fmt: skip
    else:
        DriftCheck.objects.create(fleet=fleet, plan=plan, verdict="silent")
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "evidence-lapsed"
    words = {"monitor": "The monitor last ran 0:10:0", "telemetry": "The last telemetry is 0:10:0"}
    assert words[silence] in refusal.value.message
    monkeypatch.setattr(timezone, "now", real)
    assert make.judge_again(cast, plan).evidence_digest == evidence
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


def test_a_review_of_what_is_stale_can_be_taken_back(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4)
    assert changed_since(plan, make.evaluation_of(plan)) == ["the fleet's policy (max imbalance)"]
    with pytest.raises(Conflict):
        approve(cast.grace, plan)
    assert withdraw_plan(acting_user=cast.ada, plan=plan).state == Plan.State.REPLAYED


# --- Comments ---------------------------------------------------------------------------------------------
def test_a_comment_is_kept_with_the_evidence_of_the_moment_and_never_changed(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    row = comments.comment_plan(acting_user=cast.vera, plan=plan, text="  why W 48?  ")
    assert (row.text, row.evidence_digest) == ("why W 48?", make.evaluation_of(plan).evidence_digest)
    assert AuditEvent.objects.get(action="plan.commented").actor_name == "vera"
    for change in (lambda: PlanComment.objects.update(text="fine"), PlanComment.objects.all().delete):
        with pytest.raises(DatabaseError), transaction.atomic():
            change()
    with pytest.raises(Invalid):
        comments.comment_plan(acting_user=cast.vera, plan=plan, text=" \n")
    stranger = make.make_user("stranger")
    with pytest.raises(NotAllowed):
        comments.comment_plan(acting_user=stranger, plan=plan, text="hello")


# --- Many at once -----------------------------------------------------------------------------------------
def in_threads(calls, workers):
    """Outcomes of calls that start together, each on a connection of its own: "ok" or the code of the refusal."""
    barrier = threading.Barrier(workers, timeout=60)

    def run(call):
        if call < workers:
            barrier.wait()
        try:
            calls[call]()
            return "ok"
        except Refused as refusal:
            return refusal.code
        finally:
            connection.close()

    with ThreadPoolExecutor(workers) as pool:
        return Counter(pool.map(run, range(len(calls))))


@pytest.mark.django_db(transaction=True)
def test_of_100_concurrent_approvals_of_one_plan_5_make_the_quorum_and_95_are_refused_in_words(cast):
    fleet = make.make_fleet(cast, "hundred", min_approvals=5)
    plan = make.submitted_plan(cast, fleet)
    digest, before = make.evaluation_of(plan).evidence_digest, plan.version
    people = [make.make_user(f"approver-{n}", "approver") for n in range(100)]

    def vote_of(person):
        return lambda: approve_plan(acting_user=person, plan=plan, evidence_digest=digest, comment="me")

    outcomes = in_threads([vote_of(person) for person in people], workers=50)
    assert outcomes == {"ok": 5, "conflict": 95}
    plan.refresh_from_db()
    assert (plan.state, plan.version) == (Plan.State.APPROVED, before + 5)  # no update was lost
    given = plan.approvals.filter(decision="approve", evidence_digest=digest, withdrawn_at=None)
    assert (given.count(), given.values_list("approver", flat=True).distinct().count()) == (5, 5)
    events = AuditEvent.objects.filter(action="plan.approved", subject_id=plan.pk)
    assert sorted(event.after["approvals"] for event in events) == [1, 2, 3, 4, 5]
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY


@pytest.mark.django_db(transaction=True)
def test_of_100_people_of_whom_all_must_approve_every_one_counts_once_though_each_votes_twice_at_once(cast):
    fleet = make.make_fleet(cast, "everybody", min_approvals=100)
    plan = make.submitted_plan(cast, fleet)
    digest = make.evaluation_of(plan).evidence_digest
    people = [make.make_user(f"approver-{n}", "approver") for n in range(100)]
    calls = [
        lambda person=person: approve_plan(acting_user=person, plan=plan, evidence_digest=digest)
        for person in people
        for _ in range(2)
    ]
    outcomes = in_threads(calls, workers=50)
    assert outcomes["ok"] == 100
    assert set(outcomes) <= {"ok", "decided", "conflict"}  # the last ones find it approved
    assert sum(outcomes.values()) == 200
    plan.refresh_from_db()
    assert plan.state == Plan.State.APPROVED
    assert Counter(plan.approvals.values_list("approver", flat=True)) == {person.pk: 1 for person in people}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("edit", ["policy", "replay", "evaluate", "speed"])
def test_an_edit_at_the_moment_of_the_vote_never_ends_in_a_deployment_of_what_was_not_approved(cast, edit):
    fleet = make.make_fleet(cast, "race", min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    digest = make.evaluation_of(plan).evidence_digest
    approve(cast.grace, plan)

    def change():
        if edit == "policy":
            fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.45)
        elif edit == "speed":
            change_destination(acting_user=cast.root, destination=fleet.destinations.first(), weight=1.5)
        elif edit == "replay":
            replay_orders.start_replay(acting_user=cast.ada, plan=plan, **make.REPLAY)
        else:
            make.judge_again(cast, plan)

    def vote():
        approve_plan(acting_user=cast.hopper, plan=plan, evidence_digest=digest)

    in_threads([change, vote], workers=2)
    plan.refresh_from_db()
    try:
        start_rollout(acting_user=cast.linus, plan=plan)
        deployed = True
    except Refused:
        deployed = False
    if deployed:
        assert edit in ("evaluate", "replay")  # judged again on the same facts; or the replay came too late
        assert changed_since(plan, make.evaluation_of(plan)) == []
        assert make.evaluation_of(plan).evidence_digest == digest
    else:
        assert edit != "evaluate"


# --- Commands ---------------------------------------------------------------------------------------------
def command(name, *args, **options):
    out = io.StringIO()
    call_command(name, *args, "--json", stdout=out, **options)
    return json.loads(out.getvalue())


def test_by_command_a_plan_is_judged_approved_and_the_approval_withdrawn(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    judged = command("evaluate_gate", plan.number, fleet=fleet.slug, user="ada")
    assert (judged["passed"], judged["policy_version"], len(judged["items"])) == (True, 1, 6)
    assert {c["verdict"] for item in judged["items"] for c in item["checks"]} == {"pass"}
    by = {"fleet": fleet.slug, "user": "grace"}
    found = command("approve_plan", plan.number, evidence=judged["evidence_digest"], **by)
    assert (found["state"], found["approvals"], found["needed"]) == ("approved", 1, 1)
    found = command("approve_plan", plan.number, withdraw=True, comment="too early", **by)
    assert (found["state"], found["approvals"]) == ("approved", 0)
    with pytest.raises(CommandError, match="no approval"):
        command("approve_plan", plan.number, withdraw=True, **by)
