"""What holds a canary, what lets it go on, and that it can be taken off in every step."""

import datetime as dt

import pytest
from django.utils import timezone

from planner.errors import Conflict, Invalid, StaleVersion
from planner.models import AuditEvent, BreakGlass, Plan, Rollout
from planner.selectors.fleets.routing_tables import routing_table
from planner.selectors.rollouts.queries import rollout_state
from planner.services.fleets import fleets
from planner.services.reviews.approvals import approve_plan
from planner.services.reviews.submissions import submit_plan
from planner.services.rollouts.freezes import freeze
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import (
    abort_rollout,
    advance_rollout,
    pause_rollout,
    promote_rollout,
    resume_rollout,
)
from tests import factories as make

pytestmark = pytest.mark.django_db

STEPS = {"canary_weights": [0.01, 0.5], "canary_holds_s": [300.0, 600.0]}


@pytest.fixture
def stepped(cast):
    return make.make_fleet(cast, "stepped", **STEPS)


def refused(call, **values):
    with pytest.raises(Conflict) as refusal:
        call(**values)
    return refusal.value


def advance(cast, rollout):
    return advance_rollout(acting_user=cast.linus, rollout=rollout)


def ready(rollout):
    """Watched for long enough, and its analysis passed."""
    return make.pass_step(make.watched(rollout, 10_000))


# --- advance ----------------------------------------------------------------------------------------------
def test_a_step_is_watched_for_its_time(cast, stepped):
    rollout = make.pass_step(make.canary(cast, stepped))
    refusal = refused(advance, cast=cast, rollout=rollout)
    assert refusal.code == "held"
    assert "watched for 5 min" in refusal.message
    assert advance(cast, make.watched(rollout, 301)).weight == 0.5
    rollout = make.watched(make.pass_step(rollout), 301)
    assert "watched for 10 min" in refused(advance, cast=cast, rollout=rollout).message  # the hold of the second step


@pytest.mark.parametrize("verdict", ["fail", "inconclusive", "missing", "error"])
def test_nothing_but_a_pass_lets_a_step_go_on(cast, stepped, verdict):
    rollout = make.pass_step(make.watched(make.canary(cast, stepped), 1_000), verdict, "p99 is 2.1 s against 1.4 s")
    refusal = refused(advance, cast=cast, rollout=rollout)
    assert refusal.code == "held"
    assert "p99 is 2.1 s against 1.4 s" in refusal.message
    assert [held.code for held in rollout_state(rollout).held] == ["analysis"]


def test_without_any_analysis_a_step_does_not_go_on(cast, stepped):
    rollout = make.watched(make.canary(cast, stepped), 1_000)
    assert "is not analysed yet" in refused(advance, cast=cast, rollout=rollout).message


def test_the_latest_analysis_counts_and_only_of_this_step(cast, stepped):
    rollout = make.watched(make.canary(cast, stepped), 1_000)
    make.pass_step(rollout)
    make.pass_step(rollout, "missing", "telemetry stopped")
    assert "telemetry stopped" in refused(advance, cast=cast, rollout=rollout).message
    make.pass_step(rollout)
    rollout = make.watched(advance(cast, rollout), 1_000)
    assert "step 2 is not analysed yet" in refused(advance, cast=cast, rollout=rollout).message


def test_the_steps_are_the_steps_that_it_started_with(cast, stepped):
    rollout = make.canary(cast, stepped)
    fleets.change_policy(acting_user=cast.root, fleet=stepped, canary_weights=[0.3], canary_holds_s=[0.0])
    # Judged and approved under the new policy: what it was started for holds on.
    plan = rollout.plan
    evaluation = make.judge_again(cast, plan)
    submit_plan(acting_user=cast.ada, plan=plan)
    approve_plan(acting_user=cast.grace, plan=plan, evidence_digest=evaluation.evidence_digest)
    assert "watched for 5 min" in refused(advance, cast=cast, rollout=make.pass_step(rollout)).message
    rollout = advance(cast, make.watched(rollout, 301))
    assert rollout.weight == 0.5
    assert rollout.evidence_digest == evaluation.evidence_digest


def test_what_was_approved_must_still_be_true_at_each_step(cast, stepped):
    rollout = ready(make.canary(cast, stepped))
    fleets.change_policy(acting_user=cast.root, fleet=stepped, max_imbalance=1.4)
    assert refused(advance, cast=cast, rollout=rollout).code == "evidence-stale"
    rollout.refresh_from_db()
    assert (rollout.state, rollout.weight) == ("canary", 0.01)


def test_the_console_advances_by_the_same_rules(cast, stepped):
    rollout = make.canary(cast, stepped)
    assert refused(advance_rollout, acting_user=None, rollout=rollout).code == "held"
    assert advance_rollout(acting_user=None, rollout=ready(rollout)).weight == 0.5
    event = AuditEvent.objects.get(action="rollout.advanced")
    assert (event.actor, event.actor_name) == (None, "monitor")


# --- emergency --------------------------------------------------------------------------------------------
def emergency(cast, fleet, user, seconds=600):
    until = timezone.now() + dt.timedelta(seconds=seconds)
    return BreakGlass.objects.create(fleet=fleet, opened_by=user, reason="all is slow", expires_at=until)


def test_in_an_emergency_its_holder_goes_on_and_that_is_written_down(cast, stepped):
    rollout = make.canary(cast, stepped)
    pause_rollout(acting_user=cast.linus, rollout=rollout)
    freeze(acting_user=cast.root, fleet=None, reason="holidays")
    opened = emergency(cast, stepped, cast.ada)
    assert refused(advance, cast=cast, rollout=rollout).code == "frozen"  # Linus has none
    advance_rollout(acting_user=cast.ada, rollout=rollout)
    event = AuditEvent.objects.get(action="rollout.advanced")
    assert event.after["break_glass"] == opened.pk
    assert event.after["passed"] == ["frozen", "paused", "watching", "analysis"]


def test_an_emergency_that_is_over_lets_nobody_pass(cast, stepped):
    rollout = make.canary(cast, stepped)
    emergency(cast, stepped, cast.linus, seconds=-1)
    assert refused(advance, cast=cast, rollout=rollout).code == "held"


def test_no_emergency_deploys_what_was_not_approved(cast, stepped):
    emergency(cast, stepped, cast.ada)
    plan = make.submitted_plan(cast, stepped)
    assert refused(start_rollout, acting_user=cast.ada, plan=plan).code == "not-approved"


def test_whatever_is_done_while_an_emergency_is_open_names_it_and_what_it_passed(cast, stepped):
    """What needed no emergency names it too: who reviews it looks at everything that its owner did."""
    rollout = ready(make.canary(cast, stepped))
    opened = emergency(cast, stepped, cast.linus)
    advance(cast, rollout)
    after = AuditEvent.objects.get(action="rollout.advanced").after
    assert (after["break_glass"], "passed" in after) == (opened.pk, False)


# --- promote ----------------------------------------------------------------------------------------------
def test_promote_skips_the_watching_and_the_steps_that_are_left(cast, stepped):
    rollout = make.pass_step(make.canary(cast, stepped))
    done = promote_rollout(acting_user=cast.linus, rollout=rollout, reason="the fix cannot wait")
    assert (done.state, done.weight) == ("active", 1.0)
    assert [a["plan"] for a in routing_table(stepped)["arms"]] == [rollout.plan.number]
    event = AuditEvent.objects.get(action="rollout.promoted")
    assert (event.reason, event.before["weight"], event.after["state"]) == ("the fix cannot wait", 0.01, "active")


@pytest.mark.parametrize("verdict", [None, "fail", "inconclusive", "missing", "error"])
def test_promote_never_skips_an_analysis(cast, stepped, verdict):
    rollout = make.watched(make.canary(cast, stepped), 1_000)
    if verdict:
        make.pass_step(rollout, verdict)
    refusal = refused(promote_rollout, acting_user=cast.linus, rollout=rollout, reason="now")
    assert refusal.code == "held"


def test_promote_wants_a_reason_and_no_pause(cast, stepped):
    rollout = ready(make.canary(cast, stepped))
    with pytest.raises(Invalid) as refusal:
        promote_rollout(acting_user=cast.linus, rollout=rollout, reason=" ")
    assert refusal.value.field == "reason"
    pause_rollout(acting_user=cast.linus, rollout=rollout)
    refusal = refused(promote_rollout, acting_user=cast.linus, rollout=rollout, reason="now")
    assert "resume it first" in refusal.message


# --- pause and resume ---------------------------------------------------------------------------------------
def test_a_paused_canary_stays_where_it_is_until_it_is_resumed(cast, stepped):
    rollout = ready(make.canary(cast, stepped))
    stepped.refresh_from_db()
    version = stepped.table_version
    rollout = pause_rollout(acting_user=cast.grace, rollout=rollout, reason="lunch")
    refusal = refused(advance, cast=cast, rollout=rollout)
    assert (refusal.code, "grace paused it" in refusal.message, "lunch" in refusal.message) == ("held", True, True)
    assert "paused" in [held.code for held in rollout_state(rollout).held]
    refused(pause_rollout, acting_user=cast.linus, rollout=rollout)
    rollout = resume_rollout(acting_user=cast.linus, rollout=rollout)
    refused(resume_rollout, acting_user=cast.linus, rollout=rollout)
    stepped.refresh_from_db()
    assert stepped.table_version == version  # neither changes the table
    assert advance(cast, rollout).weight == 0.5
    assert list(AuditEvent.objects.filter(action__in=["rollout.paused", "rollout.resumed"]).values_list(
        "actor_name", "reason"
    ).order_by("id")) == [("grace", "lunch"), ("linus", "")]  # fmt: skip


def test_only_a_canary_is_paused(cast, stepped):
    later = timezone.now() + dt.timedelta(hours=1)
    plan = make.approved_plan(cast, stepped)
    scheduled = start_rollout(acting_user=cast.linus, plan=plan, scheduled_for=later)
    refused(pause_rollout, acting_user=cast.linus, rollout=scheduled)
    refused(pause_rollout, acting_user=cast.linus, rollout=stepped.rollouts.get(state="active"))


# --- abort --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("advances", [0, 1])
def test_a_canary_is_aborted_in_every_step_the_last_included(cast, stepped, advances):
    rollout = make.canary(cast, stepped)
    for _ in range(advances):
        rollout = advance(cast, ready(rollout))
    rollout = abort_rollout(acting_user=cast.linus, rollout=rollout, reason="p99 up")
    assert (rollout.state, rollout.end_reason) == ("aborted", "p99 up")
    assert [a["plan"] for a in routing_table(stepped)["arms"]] == [0]
    for call in (advance, lambda cast, rollout: abort_rollout(acting_user=cast.linus, rollout=rollout)):
        refused(call, cast=cast, rollout=rollout)
    event = AuditEvent.objects.get(action="rollout.aborted")
    assert (event.before["state"], event.after["state"], event.reason) == ("canary", "aborted", "p99 up")
    assert event.evidence_digest == rollout.evidence_digest


def test_an_abort_that_comes_after_the_last_step_is_refused_with_the_way_out(cast, fleet):
    rollout = make.activate(cast, make.canary(cast, fleet))
    refusal = refused(abort_rollout, acting_user=cast.linus, rollout=rollout)
    assert refusal.code == "active"
    assert "roll back" in refusal.message
    assert "fall back" in refusal.message
    assert [a["plan"] for a in routing_table(fleet)["arms"]] == [rollout.plan.number]


def test_abort_pause_and_fall_back_work_while_frozen(cast, stepped):
    rollout = make.canary(cast, stepped)
    freeze(acting_user=cast.linus, fleet=stepped, reason="release of the app")
    rollout = pause_rollout(acting_user=cast.linus, rollout=rollout)
    assert abort_rollout(acting_user=cast.linus, rollout=rollout).state == "aborted"


def test_the_console_aborts_by_its_own_name(cast, stepped):
    abort_rollout(acting_user=None, rollout=make.canary(cast, stepped), reason="the analysis failed")
    event = AuditEvent.objects.get(action="rollout.aborted")
    assert (event.actor, event.actor_name, event.reason) == (None, "monitor", "the analysis failed")


def test_a_version_that_is_not_the_newest_moves_nothing(cast, stepped):
    rollout = ready(make.canary(cast, stepped))
    for call in (advance_rollout, pause_rollout, abort_rollout):
        with pytest.raises(StaleVersion):
            call(acting_user=cast.linus, rollout=rollout, expected_version=rollout.version - 1)
    assert Rollout.objects.get(pk=rollout.pk).weight == 0.01
    assert Plan.objects.get(pk=rollout.plan_id).state == "approved"
