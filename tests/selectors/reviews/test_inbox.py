"""What waits for whom: approvals, waivers, reviews, held canaries, fleets outside their range."""

import datetime as dt

import pgtrigger
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from planner.models import BreakGlass, DriftCheck, Rollout
from planner.selectors.reviews.inbox import waiting_for_me
from planner.services.access.break_glass import close_break_glass, open_break_glass
from planner.services.reviews.approvals import approve_plan
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.rollback import roll_back
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import pause_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db


def kinds(user):
    return [waiting.kind for waiting in waiting_for_me(type(user).objects.get(pk=user.pk))]


def test_a_plan_in_review_waits_for_users_who_may_decide_and_have_not(cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    assert kinds(cast.grace) == kinds(cast.hopper) == ["approval"]
    assert kinds(cast.ada) == kinds(cast.linus) == kinds(cast.vera) == []
    approve_plan(acting_user=cast.grace, plan=plan, evidence_digest=make.evaluation_of(plan).evidence_digest)
    assert kinds(cast.hopper) == []


def test_a_vote_that_counts_is_not_asked_for_again_and_one_that_has_run_out_is(cast):
    """Votes count by the digest of the evidence, however often it is judged, and for as long as they hold."""
    fleet = make.make_fleet(cast, "two", min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    approve_plan(acting_user=cast.grace, plan=plan, evidence_digest=make.evaluation_of(plan).evidence_digest)
    assert kinds(cast.grace) == []
    make.judge_again(cast, plan)
    assert (kinds(cast.grace), kinds(cast.hopper)) == ([], ["approval"])
    with pgtrigger.ignore("planner.Approval:decision_is_final"):
        plan.approvals.update(expires_at=timezone.now() - dt.timedelta(seconds=1))
    assert kinds(cast.grace) == ["approval"]


def test_a_paused_canary_and_one_whose_step_is_over_wait_for_operators(cast):
    fleet = make.make_fleet(cast, "held", canary_holds_s=[3_600])
    rollout = start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))
    assert kinds(cast.linus) == []  # it is watched: nobody has to do anything
    pause_rollout(acting_user=cast.linus, rollout=rollout, reason="lunch")
    assert kinds(cast.linus) == ["rollout"]
    assert "lunch" in waiting_for_me(cast.linus)[0].text
    Rollout.objects.filter(pk=rollout.pk).update(
        paused_at=None, paused_by=None, step_started_at=timezone.now() - dt.timedelta(hours=2)
    )
    assert "not analysed" in waiting_for_me(cast.linus)[0].text
    assert kinds(cast.ada) == []


def test_break_glass_waits_for_a_review_by_another_user(cast, fleet):
    row = open_break_glass(acting_user=cast.grace, fleet=fleet, reason="the router lost its tables")
    assert kinds(cast.hopper) == kinds(cast.root) == ["break-glass"]
    assert kinds(cast.grace) == kinds(cast.linus) == []
    close_break_glass(acting_user=cast.grace, break_glass=row)
    assert kinds(cast.hopper) == kinds(cast.root) == ["review"]
    assert kinds(cast.grace) == []
    BreakGlass.objects.filter(pk=row.pk).update(reviewed_by=cast.root, reviewed_at=timezone.now(), review="fine")
    assert kinds(cast.hopper) == []


def test_a_fleet_that_left_its_range_waits_until_it_is_back_or_another_plan_is_live(cast, fleet):
    live = fleet.rollouts.get(state="active")
    for verdict, expected in (("within", []), ("left", ["monitor"]), ("silent", ["monitor"]), ("within", [])):
        DriftCheck.objects.create(
            fleet=fleet, plan=live.plan, rollout=live, verdict=verdict, explanation="p99", simulated=True
        )
        assert kinds(cast.linus) == expected
    DriftCheck.objects.create(fleet=fleet, plan=make.built_plan(cast, fleet), verdict="left")
    assert kinds(cast.linus) == []


def test_it_takes_the_same_queries_for_one_fleet_and_for_many(cast):
    def held(n):
        fleet = make.make_fleet(cast, f"many-{n}", canary_holds_s=[0])
        start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))
        live = fleet.rollouts.get(state="active")
        DriftCheck.objects.create(fleet=fleet, plan=live.plan, rollout=live, verdict="silent")
        make.submitted_plan(cast, fleet)

    counts = []
    for n in range(3):
        held(n)
        root = type(cast.root).objects.get(pk=cast.root.pk)
        with CaptureQueriesContext(connection) as captured:
            assert len(waiting_for_me(root)) == 3 * (n + 1)
        counts.append(len(captured))
    assert len(set(counts)) == 1, counts


def test_page_count_and_api_show_the_same(client, cast, fleet):
    make.submitted_plan(cast, fleet)
    client.force_login(cast.grace)
    assert "asks for your decision" in client.get("/inbox/").content.decode()
    assert ">1<" in client.get("/inbox/count/").content.decode()
    (row,) = client.get("/api/v1/waiting/").json()
    assert (row["kind"], row["fleet"]) == ("approval", fleet.slug)
    client.force_login(cast.vera)
    assert "No open items" in client.get("/inbox/").content.decode()
    assert client.get("/inbox/count/").content.decode().strip() == ""


def test_a_fleet_that_the_monitor_sent_back_waits_until_another_plan_is_live(cast, fleet):
    plan = make.active_plan(cast, fleet)
    fall_back(acting_user=cast.linus, fleet=fleet, reason="by a person, who knows why")
    assert kinds(cast.linus) == []
    roll_back(acting_user=cast.linus, fleet=fleet, plan=plan, reason="it was the network")
    fall_back(acting_user=None, fleet=fleet, reason="p99 above its limit")
    assert kinds(cast.linus) == ["monitor"]
    assert str(plan) in waiting_for_me(cast.linus)[0].text
