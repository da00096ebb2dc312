"""Review by forms: waivers, comments, withdrawn approvals, and stored evidence."""

import datetime as dt

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from planner.models import GateEvaluation, Plan, PlanComment, Waiver
from planner.services.fleets import fleets
from planner.services.fleets.destinations import change_destination
from planner.services.reviews import comments, waivers
from planner.services.reviews.approvals import approve_plan
from planner.services.reviews.submissions import submit_plan
from tests import factories as make
from tests.factories import Cast

pytestmark = pytest.mark.django_db


def send(client, name, plan, *more, **form):
    return client.post(reverse(name, args=[plan.fleet.slug, plan.number, *more]), form, follow=True)


def page_of(client, plan) -> str:
    return client.get(reverse("plan", args=[plan.fleet.slug, plan.number])).content.decode()


def evidence_of(client, plan, evaluation=None):
    pk = (evaluation or make.evaluation_of(plan)).pk
    return client.get(reverse("plan-evidence", args=[plan.fleet.slug, plan.number, pk]))


def test_a_waiver_is_requested_granted_and_revoked_by_forms_and_shown_in_red(sign_in, cast: Cast) -> None:
    plan = make.replayed_plan(cast, make.make_fleet(cast, "stuck", max_loss_imbalance=1.0))
    ada, grace = sign_in(cast.ada), sign_in(cast.grace)
    assert "Request a waiver" in page_of(ada, plan)
    assert "Request a waiver" not in page_of(grace, plan)
    day = (timezone.now() + dt.timedelta(days=5)).date().isoformat()
    form = {"check_name": "loss-bounded", "reason": "racks on Friday"}
    page = send(ada, "waiver-request", plan, **form, expires_on="soon")
    assert "write the last day of the waiver" in page.content.decode()
    page = send(ada, "waiver-request", plan, **form, expires_on=day)
    assert "The waiver of loss-bounded is requested" in page.content.decode()
    row = Waiver.objects.get()
    grant = reverse("waiver-grant", args=[plan.fleet.slug, plan.number, row.pk])
    assert grant not in page_of(ada, plan)
    assert grant in page_of(grace, plan)
    assert "is granted" in grace.post(grant, follow=True).content.decode()
    page = send(ada, "plan-evaluate", plan)
    body = page.content.decode()
    assert "The checklist was evaluated: it passes with waivers." in body
    assert "passes with waivers" in body
    assert "Not passed: check 2 (fail, waived)." in body
    assert "racks on Friday" in body
    send(grace, "waiver-end", plan, row.pk, reason="late")
    assert "the waivers in force changed after this evaluation" in page_of(ada, plan)


def test_the_requester_withdraws_a_waiver(sign_in, cast: Cast) -> None:
    plan = make.replayed_plan(cast, make.make_fleet(cast, "stuck", max_loss_imbalance=1.0))
    row = waivers.request_waiver(
        acting_user=cast.ada, plan=plan, check_name="loss-bounded", reason="r",
        expires_at=timezone.now() + dt.timedelta(days=1),
    )  # fmt: skip
    assert "Withdraw waiver" in page_of(sign_in(cast.ada), plan)
    assert "is refused" in send(sign_in(cast.ada), "waiver-end", plan, row.pk).content.decode()
    assert sign_in(cast.vera).post(
        reverse("waiver-end", args=[plan.fleet.slug, plan.number, row.pk])
    ).status_code == 403  # fmt: skip


def test_an_approver_withdraws_by_form_and_the_plan_says_why_it_cannot_be_deployed(sign_in, cast: Cast, fleet) -> None:
    plan = make.approved_plan(cast, fleet)
    approval = plan.approvals.get()
    grace = sign_in(cast.grace)
    body = page_of(grace, plan)
    assert "1 of 1 approval valid" in body
    assert "valid until" in body
    assert "Withdraw my approval" in body
    assert "Withdraw my approval" not in page_of(sign_in(cast.hopper), plan)
    body = send(grace, "approval-withdraw", plan, approval.pk, reason="too early").content.decode()
    assert "is withdrawn. It no longer counts" in body
    assert "Not deployable: grace withdrew the approval (too early): 0 of 1 approvals count" in body
    assert "0 of 1 approval valid" in body


def test_an_approval_by_a_second_account_of_the_same_address_is_shown_in_red(sign_in, cast: Cast, fleet) -> None:
    User.objects.filter(pk=cast.hopper.pk).update(email=cast.ada.email.upper())
    plan = make.submitted_plan(cast, fleet)
    hopper = User.objects.get(pk=cast.hopper.pk)
    approve_plan(acting_user=hopper, plan=plan, evidence_digest=make.evaluation_of(plan).evidence_digest)
    words = f"shares the address {hopper.email} with the author or submitter"
    assert words in page_of(sign_in(cast.vera), plan)
    assert words in evidence_of(sign_in(cast.vera), plan).content.decode()


def test_comments_are_written_on_the_page_and_shown_as_text(sign_in, cast: Cast, fleet) -> None:
    plan = make.replayed_plan(cast, fleet)
    body = send(sign_in(cast.vera), "plan-comment", plan, text="<b>why</b> W 48?").content.decode()
    assert "&lt;b&gt;why&lt;/b&gt; W 48?" in body
    send(sign_in(cast.vera), "plan-comment", plan, text="  ")
    assert PlanComment.objects.count() == 1


def test_evidence_is_shown_as_it_was_seen_after_everything_has_changed(sign_in, cast: Cast, fleet) -> None:
    plan = make.approved_plan(cast, fleet)
    comments.comment_plan(acting_user=cast.vera, plan=plan, text="W 48 looks right")
    seen = make.evaluation_of(plan)
    client = sign_in(cast.vera)
    before = evidence_of(client, plan, seen).content.decode()
    assert "Up to date" in before
    assert "stored values match the digest" in before
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.123, slo_p99_s=9.0)
    for destination in fleet.destinations.all():
        change_destination(acting_user=cast.root, destination=destination, weight=3.25)
    make.judge_again(cast, plan)
    after = evidence_of(client, plan, seen).content.decode()
    banner = after.split("Out of date: ")[1].split(" changed after this evaluation")[0]
    assert banner == "the speeds of the destinations, the fleet&#x27;s policy (max imbalance, slo p99 s)"
    cut = '<section class="panel" aria-labelledby="digest-h">'
    assert after.split(cut)[1].split("</main>")[0] == before.split(cut)[1].split("</main>")[0]
    for words in (
        seen.evidence_digest, "grace", "fine", "W 48 looks right", "Fleet policy", "Validated range",
        "Blast radius", "Paired differences", "loss-bounded", "1.5",
    ):  # fmt: skip
        assert words in after
    assert "1.123" not in after.split(cut)[1]


def test_evidence_of_older_formats_and_of_no_replay_is_shown_too(sign_in, cast: Cast, fleet) -> None:
    plan = make.built_plan(cast, fleet)
    evaluation = make.judge_again(cast, plan)
    assert evidence_of(sign_in(cast.vera), plan, evaluation).status_code == 200
    make.run_replay(cast, plan)
    now = make.evaluation_of(plan)
    left = ("incumbent", "distribution", "blast_radius", "waivers", "fallback", "envelope", "replan")
    old = {name: part for name, part in now.evidence.items() if name not in left} | {"format": "cacheroute.evidence/1"}
    row = GateEvaluation.objects.create(plan=plan, passed=True, evidence=old, evidence_digest="0" * 64)
    row.items.create(number=1, title="Rates", verdict="pass", explanation="recent")
    page = evidence_of(sign_in(cast.vera), plan, row)
    assert page.status_code == 200
    body = page.content.decode()
    assert "the version of the evidence changed after this evaluation" in body
    assert "The stored values do not match the digest" in body


def test_evidence_of_another_plan_or_without_signing_in_is_not_shown(client, sign_in, cast: Cast, fleet) -> None:
    plan, other = make.replayed_plan(cast, fleet), make.built_plan(cast, fleet)
    pk = make.evaluation_of(plan).pk
    address = reverse("plan-evidence", args=[fleet.slug, other.number, pk])
    assert sign_in(cast.vera).get(address).status_code == 404
    right = reverse("plan-evidence", args=[fleet.slug, plan.number, pk])
    assert client.get(right).status_code == 302


def test_pages_of_many_decisions_waivers_and_comments_take_as_many_queries_as_of_few(sign_in, cast: Cast) -> None:
    fleet = make.make_fleet(cast, "busy", min_approvals=30, max_loss_imbalance=1.0)
    plan = make.replayed_plan(cast, fleet)
    row = waivers.request_waiver(
        acting_user=cast.ada, plan=plan, check_name="loss-bounded", reason="r",
        expires_at=timezone.now() + dt.timedelta(days=1),
    )  # fmt: skip
    waivers.grant_waiver(acting_user=cast.grace, waiver=row)
    make.judge_again(cast, plan)
    plan = submit_plan(acting_user=cast.ada, plan=plan)
    evaluation, counts = make.evaluation_of(plan), []
    client = sign_in(cast.vera)
    for more in (1, 12):
        for _ in range(more):
            n = plan.approvals.count()
            person = make.make_user(f"approver-{n}", "approver")
            approve_plan(acting_user=person, plan=plan, evidence_digest=evaluation.evidence_digest)
            comments.comment_plan(acting_user=person, plan=plan, text=f"comment {n}")
        found = []
        for name, args in (("plan", []), ("plan-evidence", [evaluation.pk])):
            address = reverse(name, args=[fleet.slug, plan.number, *args])
            assert client.get(address).status_code == 200
            with CaptureQueriesContext(connection) as captured:
                assert client.get(address).status_code == 200
            found.append(len(captured))
        counts.append(found)
    assert counts[0] == counts[1]
    assert Plan.objects.get(pk=plan.pk).state == "in_review"
