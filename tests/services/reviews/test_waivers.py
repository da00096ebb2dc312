"""Waivers: one person asks, another grants, for 30 days at most; the check stays red."""

import datetime as dt

import pgtrigger
import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone

from planner.checklist import CHECKS
from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import AuditEvent, Rollout, Waiver
from planner.services.reviews import waivers
from planner.services.reviews.approvals import approve_plan
from planner.services.reviews.submissions import submit_plan
from planner.services.rollouts.starts import start_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db
SOON = dt.timedelta(days=10)


@pytest.fixture
def stuck(cast):
    """A plan that passes but for the load after a loss: the fleet wants it as even as before."""
    fleet = make.make_fleet(cast, "stuck", max_loss_imbalance=1.0)
    plan = make.replayed_plan(cast, fleet)
    evaluation = make.evaluation_of(plan)
    red = [c["name"] for item in evaluation.items.all() for c in item.checks if c["verdict"] != "pass"]
    assert (evaluation.passed, red) == (False, ["loss-bounded"])
    return plan


def ask(user, plan, check_name="loss-bounded", reason="two racks come on Friday", expires_at=None):
    return waivers.request_waiver(
        acting_user=user,
        plan=plan,
        check_name=check_name,
        reason=reason,
        expires_at=expires_at or timezone.now() + SOON,
    )


def item_2(plan):
    return make.evaluation_of(plan).items.get(number=2)


def approve(user, plan):
    return approve_plan(acting_user=user, plan=plan, evidence_digest=make.evaluation_of(plan).evidence_digest)


def test_a_waiver_lets_a_plan_continue_and_the_check_stays_failed(cast, stuck):
    row = ask(cast.ada, stuck)
    assert not make.judge_again(cast, stuck).passed  # asked for is not granted
    waivers.grant_waiver(acting_user=cast.grace, waiver=row)
    with pytest.raises(Conflict):  # judged before it was granted
        submit_plan(acting_user=cast.ada, plan=stuck)
    evaluation = make.judge_again(cast, stuck)
    item = item_2(stuck)
    assert (evaluation.passed, item.verdict, item.waived) == (True, "fail", True)
    check = next(c for c in item.checks if c["name"] == "loss-bounded")
    assert (check["verdict"], check["waiver"]["granted_by"]) == ("fail", "grace")
    assert [w["id"] for w in evaluation.evidence["waivers"]] == [row.pk]
    plan = submit_plan(acting_user=cast.ada, plan=stuck)
    approve(cast.hopper, plan)
    assert start_rollout(acting_user=cast.linus, plan=plan).state == Rollout.State.CANARY
    assert [e.action for e in AuditEvent.objects.filter(action__startswith="waiver").order_by("id")] == [
        "waiver.requested", "waiver.granted",
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_the_end_of_a_waiver_makes_approvals_stale(cast, stuck, how, monkeypatch):
    row = waivers.grant_waiver(acting_user=cast.grace, waiver=ask(cast.ada, stuck))
    make.judge_again(cast, stuck)
    plan = submit_plan(acting_user=cast.ada, plan=stuck)
    approve(cast.hopper, plan)
    if how == "revoked":
        waivers.revoke_waiver(acting_user=cast.hopper, waiver=row, reason="the racks are late")
    else:
        with pgtrigger.ignore():
            Waiver.objects.filter(pk=row.pk).update(
                created_at=timezone.now() - SOON, expires_at=timezone.now() - dt.timedelta(seconds=1)
            )
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert refusal.value.code == "evidence-stale"
    assert "the waivers in force" in refusal.value.message
    assert not make.judge_again(cast, plan).passed
    # After its end another can be asked for.
    assert ask(cast.ada, plan).pk != row.pk


def test_neither_who_asked_nor_author_nor_submitter_grants_admin_or_not(cast, stuck):
    cast.ada.groups.add(Group.objects.get(name="approver"))
    ada = type(cast.ada).objects.get(pk=cast.ada.pk)
    row = ask(cast.root, stuck)
    for own in (cast.root, ada):
        with pytest.raises(NotAllowed) as refusal:
            waivers.grant_waiver(acting_user=own, waiver=row)
        assert refusal.value.code == "second-person"
    for who in (cast.vera, cast.linus):
        with pytest.raises(NotAllowed):
            waivers.grant_waiver(acting_user=who, waiver=stuck.waivers.get())
    waivers.grant_waiver(acting_user=cast.grace, waiver=stuck.waivers.get())
    with pytest.raises(Conflict, match="already granted"):
        waivers.grant_waiver(acting_user=cast.hopper, waiver=stuck.waivers.get())


def test_the_database_refuses_a_waiver_by_the_same_person_too(cast, stuck):
    row = ask(cast.ada, stuck)
    with pytest.raises(IntegrityError, match="waiver_by_a_second_person"), transaction.atomic():
        Waiver.objects.filter(pk=row.pk).update(granted_by=cast.ada, granted_at=timezone.now())
    waivers.grant_waiver(acting_user=cast.grace, waiver=row)
    for change in ({"expires_at": timezone.now() + 9 * SOON}, {"reason": "other"}, {"granted_by": cast.hopper}):
        with pytest.raises(DatabaseError), transaction.atomic():
            Waiver.objects.filter(pk=row.pk).update(**change)
    with pytest.raises(DatabaseError), transaction.atomic():
        row.delete()


def test_who_granted_a_waiver_does_not_submit_the_plan(cast, stuck):
    root2 = make.make_user("root2", "admin", superuser=True)
    waivers.grant_waiver(acting_user=root2, waiver=ask(cast.ada, stuck))
    make.judge_again(cast, stuck)
    with pytest.raises(NotAllowed) as refusal:
        submit_plan(acting_user=root2, plan=stuck)
    assert refusal.value.code == "second-person"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reason": "   "}, "reason"),
        ({"check_name": "no-such-check"}, "check_name"),
        ({"expires_at": timezone.now() + dt.timedelta(days=31)}, "expires_at"),
        ({"expires_at": timezone.now() - dt.timedelta(days=1)}, "expires_at"),
        *(({"check_name": name}, "check_name") for name, check in CHECKS.items() if not check.waivable),
    ],
)
def test_a_waiver_needs_a_reason_an_end_within_30_days_and_a_check_that_can_be_waived(cast, stuck, changes, field):
    with pytest.raises(Invalid) as refusal:
        ask(cast.ada, stuck, **changes)
    assert refusal.value.field == field
    assert not Waiver.objects.exists()


def test_checks_that_cannot_be_waived_are_these():
    """What would make the product's one sentence untrue, or a table that routes to nowhere."""
    assert {name for name, check in CHECKS.items() if not check.waivable} == {
        "flat-replayed", "better-than-flat", "flat-ready", "profile-unchanged", "destinations-unchanged",
        "speeds-unchanged", "table-readable",
    }  # fmt: skip


def test_what_passes_or_was_not_judged_has_nothing_to_waive(cast, stuck):
    with pytest.raises(Conflict) as refusal:
        ask(cast.ada, stuck, "load-balanced")
    assert refusal.value.code == "passes"
    with pytest.raises(Conflict) as refusal:
        ask(cast.ada, make.built_plan(cast, make.make_fleet(cast, "unjudged")))
    assert refusal.value.code == "gate-missing"


def test_one_waiver_of_a_check_at_a_time_and_a_request_can_be_taken_back(cast, stuck):
    row = ask(cast.ada, stuck)
    with pytest.raises(Conflict) as refusal:
        ask(cast.root, stuck)
    assert refusal.value.code == "exists"
    with pytest.raises(NotAllowed):
        waivers.refuse_waiver(acting_user=cast.vera, waiver=row)
    waivers.refuse_waiver(acting_user=cast.ada, waiver=row, reason="found another way")
    with pytest.raises(Conflict, match="ended"):
        waivers.grant_waiver(acting_user=cast.grace, waiver=row)
    row = ask(cast.ada, stuck)
    waivers.refuse_waiver(acting_user=cast.grace, waiver=row, reason="no")
    row = waivers.grant_waiver(acting_user=cast.grace, waiver=ask(cast.ada, stuck))
    with pytest.raises(Conflict, match="revoke it"):
        waivers.refuse_waiver(acting_user=cast.grace, waiver=row)
    waivers.revoke_waiver(acting_user=cast.ada, waiver=row)
    assert AuditEvent.objects.filter(action="waiver.refused").count() == 2


def test_viewers_ask_for_no_waiver(cast, stuck):
    with pytest.raises(NotAllowed):
        ask(cast.vera, stuck)
