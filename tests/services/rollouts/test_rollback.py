"""Ways back: to any plan that was active before, and to Flat-LB from everywhere."""

import datetime as dt

import pytest
from django.core.files.storage import default_storage
from django.utils import timezone

from planner.errors import ArtifactLost, Conflict, Invalid, NotAllowed
from planner.models import AuditEvent, BreakGlass, Plan, Replay, Rollout, RolloutAnalysis
from planner.selectors.fleets.routing_tables import routing_table
from planner.selectors.rollouts.rollback_targets import retained_plans
from planner.services.access.break_glass import open_break_glass
from planner.services.fleets import fleets
from planner.services.fleets.destinations import change_destination
from planner.services.replays import orders as replay_orders
from planner.services.reviews import waivers
from planner.services.reviews.approvals import approve_plan
from planner.services.reviews.submissions import retire_plan, submit_plan
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.freezes import freeze
from planner.services.rollouts.rollback import roll_back
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import abort_rollout, pause_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db


def arms(fleet):
    fleet.refresh_from_db()
    return [(a["plan"], a["weight"]) for a in routing_table(fleet)["arms"]]


def back(cast, fleet, plan, reason="p99 up since"):
    return roll_back(acting_user=cast.linus, fleet=fleet, plan=plan, reason=reason)


def refused(*args, **values):
    with pytest.raises(Conflict) as refusal:
        back(*args, **values)
    return refusal.value


def test_a_plan_that_was_active_is_active_again_without_replay_or_analysis(cast, fleet):
    first, second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    counts = Replay.objects.count(), RolloutAnalysis.objects.count()
    fleet.refresh_from_db()
    version = fleet.table_version
    rollout = back(cast, fleet, first)
    assert (rollout.state, rollout.kind, rollout.weight, rollout.incumbent) == ("active", "rollback", 1.0, second)
    assert arms(fleet) == [(first.number, 1.0)]
    assert fleet.table_version == version + 1
    assert (Replay.objects.count(), RolloutAnalysis.objects.count()) == counts
    ended = fleet.rollouts.get(plan=second)
    assert (ended.state, "p99 up since" in ended.end_reason) == ("rolled_back", True)
    event = AuditEvent.objects.get(action="rollout.rolled_back")
    assert (event.reason, event.evidence_digest) == ("p99 up since", rollout.evidence_digest)
    assert event.evidence_digest == make.evaluation_of(first).evidence_digest
    assert rollout.steps.get().weight == 1.0


def test_it_does_not_ask_whether_the_old_evidence_is_still_true(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4, min_approvals=2)
    assert back(cast, fleet, first).state == "active"


def other_profile(cast, fleet, plan):
    fleets.change_serving_profile(acting_user=cast.root, fleet=fleet, engine_profile="qwen-32b-h100")


def destination_down(cast, fleet, plan):
    change_destination(acting_user=cast.linus, destination=fleet.destinations.get(index=2), state="down")


def waiver_revoked(cast, fleet, plan):
    waivers.revoke_waiver(acting_user=cast.grace, waiver=plan.waivers.get())


def aborted_plans(cast, fleet, plan):
    fall_back(acting_user=None, fleet=fleet, reason="left the envelope")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (other_profile, "profile-changed", "qwen-32b-h100"),
        (destination_down, "destinations-down", "d2 (down)"),
        (waiver_revoked, "waiver-revoked", "loss-bounded"),
        (aborted_plans, "cooling-down", "UTC"),
    ],
)
def test_facts_that_changed_since_stop_it_and_an_emergency_passes(cast, fleet, change, code, words):
    bound = 1.0 if change is waiver_revoked else fleet.max_loss_imbalance
    fleets.change_policy(acting_user=cast.root, fleet=fleet, cool_down_s=600.0, max_loss_imbalance=bound)
    plan = waived_plan(cast, fleet) if change is waiver_revoked else make.approved_plan(cast, fleet)
    make.activate(cast, make.canary(cast, fleet, plan))
    if change is not aborted_plans:
        fall_back(acting_user=cast.linus, fleet=fleet, reason="drill")
    change(cast, fleet, plan)
    refusal = refused(cast, fleet, plan)
    assert (refusal.code, words in refusal.message) == (code, True), refusal.message
    opened = open_break_glass(acting_user=cast.linus, fleet=fleet, reason="the fallback is slower still")
    assert back(cast, fleet, plan).state == "active"
    after = AuditEvent.objects.get(action="rollout.rolled_back").after
    assert after["break_glass"] == opened.pk
    assert len(after["passed"]) == 1


def waived_plan(cast, fleet):
    """Approved with a waiver of a check that does not pass."""
    plan = make.replayed_plan(cast, fleet)
    asked = waivers.request_waiver(
        acting_user=cast.ada,
        plan=plan,
        check_name="loss-bounded",
        reason="two racks come on Friday",
        expires_at=timezone.now() + dt.timedelta(days=3),
    )
    waivers.grant_waiver(acting_user=cast.hopper, waiver=asked)
    evaluation = make.judge_again(cast, plan)
    submit_plan(acting_user=cast.ada, plan=plan)
    approve_plan(acting_user=cast.grace, plan=plan, evidence_digest=evaluation.evidence_digest)
    return Plan.objects.get(pk=plan.pk)


def test_a_plan_that_the_monitor_ended_before_the_cool_down_is_a_rollback_target(cast, fleet):
    """The cool-down is over; and another plan than the one that it ended never waits for it."""
    fleets.change_policy(acting_user=cast.root, fleet=fleet, cool_down_s=600.0)
    first, second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    fall_back(acting_user=None, fleet=fleet, reason="left the envelope")
    assert refused(cast, fleet, second).code == "cooling-down"
    assert back(cast, fleet, first).state == "active"
    fleets.change_policy(acting_user=cast.root, fleet=fleet, cool_down_s=0.0)
    assert back(cast, fleet, second).state == "active"


def test_no_emergency_rolls_back_to_what_lost_its_approval(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    first.approvals.update(withdrawn_at=timezone.now(), withdrawn_reason="I misread it")
    open_break_glass(acting_user=cast.linus, fleet=fleet, reason="the live plan is slow")
    assert refused(cast, fleet, first).code == "not-approved"


def test_only_plans_that_can_be_rolled_back_to_are_offered(cast, fleet):
    first, second, third = (make.active_plan(cast, fleet) for _ in range(3))
    assert retained_plans(fleet) == [second, first]
    second.approvals.update(withdrawn_at=timezone.now(), withdrawn_reason="I misread it")
    assert retained_plans(fleet) == [first]
    retire_plan(acting_user=cast.ada, plan=first)
    assert retained_plans(fleet) == []
    assert third.number not in [plan.number for plan in retained_plans(fleet)]


def test_it_works_while_the_plan_is_under_another_look(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    replay_orders.start_replay(acting_user=cast.ada, plan=first, **make.REPLAY)
    assert Plan.objects.get(pk=first.pk).state == "replaying"
    assert back(cast, fleet, first).state == "active"


def test_twice_in_a_row_and_to_and_fro(cast, fleet):
    first, second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    for plan in (first, second, first):
        back(cast, fleet, plan)
    assert arms(fleet) == [(first.number, 1.0)]
    assert "active on this fleet already" in refused(cast, fleet, first).message


def test_after_falling_back_the_plan_of_before_is_one_step_away(cast, fleet):
    plan = make.active_plan(cast, fleet)
    fall_back(acting_user=cast.linus, fleet=fleet, reason="p99 is up")
    back(cast, fleet, plan)
    assert arms(fleet) == [(plan.number, 1.0)]


def test_a_canary_is_aborted_with_it_and_a_schedule_called_off(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    ahead = make.canary(cast, fleet)
    back(cast, fleet, first)
    assert Rollout.objects.get(pk=ahead.pk).state == "aborted"
    later = timezone.now() + dt.timedelta(hours=1)
    ahead = start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet), scheduled_for=later)
    fall_back(acting_user=cast.linus, fleet=fleet)
    assert Rollout.objects.get(pk=ahead.pk).state == "aborted"
    back(cast, fleet, first)
    assert arms(fleet) == [(first.number, 1.0)]


def test_only_what_was_active_here_is_a_way_back(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    assert refused(cast, fleet, plan).code == "never-active"
    abort_rollout(acting_user=cast.linus, rollout=make.canary(cast, fleet, plan))
    assert refused(cast, fleet, plan).code == "never-active"
    other = make.make_fleet(cast, "other")
    refused(cast, other, plan)


def test_an_archived_plan_is_no_rollback_target(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    retire_plan(acting_user=cast.ada, plan=first)
    assert refused(cast, fleet, first).code == "not-retained"


def test_a_plan_whose_approval_was_withdrawn_is_none(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    first.approvals.update(withdrawn_at=timezone.now(), withdrawn_reason="I misread it")
    assert refused(cast, fleet, first).code == "not-approved"


def test_a_table_that_is_lost_is_none(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    default_storage.delete(first.table.path)
    with pytest.raises(ArtifactLost):
        back(cast, fleet, first)
    assert arms(fleet)[0][0] != first.number


def test_it_wants_a_reason(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    with pytest.raises(Invalid) as refusal:
        back(cast, fleet, first, reason="  ")
    assert refusal.value.field == "reason"


def test_a_freeze_stops_it_and_an_emergency_passes(cast, fleet):
    first, _second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")
    assert refused(cast, fleet, first).code == "frozen"
    until = timezone.now() + dt.timedelta(minutes=5)
    opened = BreakGlass.objects.create(fleet=fleet, opened_by=cast.linus, reason="slow", expires_at=until)
    back(cast, fleet, first)
    assert AuditEvent.objects.get(action="rollout.rolled_back").after["break_glass"] == opened.pk


# --- fall back ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stage", ["flat", "scheduled", "canary", "paused", "active", "active and canary", "frozen"])
def test_fall_back_works_from_every_state_and_twice(cast, fleet, stage):
    later = timezone.now() + dt.timedelta(hours=1)
    if stage in ("active", "active and canary", "frozen"):
        make.active_plan(cast, fleet)
    if stage in ("canary", "paused", "active and canary"):
        rollout = make.canary(cast, fleet)
    if stage == "paused":
        pause_rollout(acting_user=cast.linus, rollout=rollout)
    if stage == "scheduled":
        start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet), scheduled_for=later)
    if stage == "frozen":
        freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")
        freeze(acting_user=cast.root, fleet=None, reason="holidays")
    fleet.refresh_from_db()
    before, routed = fleet.table_version, stage not in ("flat", "scheduled")
    fall_back(acting_user=cast.linus, fleet=fleet, reason="drill")
    assert arms(fleet) == [(0, 1.0)]
    assert fleet.table_version == before + routed
    again = fall_back(acting_user=cast.linus, fleet=fleet)
    fleet.refresh_from_db()
    assert fleet.table_version == before + routed
    assert again.state == Rollout.State.ACTIVE
    assert AuditEvent.objects.filter(action="fleet.fell_back").count() == (stage != "flat")
    assert not fleet.rollouts.filter(state__in=["scheduled", "canary"]).exists()


def test_no_reason_keeps_a_fleet_from_falling_back(cast, fleet):
    make.active_plan(cast, fleet)
    fall_back(acting_user=cast.linus, fleet=fleet, reason="\0p99 \ud800up " + "x" * 10_000)
    event = AuditEvent.objects.get(action="fleet.fell_back")
    assert event.reason.startswith("p99 up x")
    assert len(event.reason) == 4_000


def test_the_holder_of_an_emergency_falls_back_without_the_role(cast, fleet):
    make.active_plan(cast, fleet)
    with pytest.raises(NotAllowed):
        fall_back(acting_user=cast.vera, fleet=fleet)
    until = timezone.now() + dt.timedelta(minutes=5)
    BreakGlass.objects.create(fleet=fleet, opened_by=cast.vera, reason="nobody else is here", expires_at=until)
    fall_back(acting_user=cast.vera, fleet=fleet)
    assert arms(fleet) == [(0, 1.0)]


def test_rolling_back_to_flat_lb_is_falling_back(cast, fleet):
    make.active_plan(cast, fleet)
    freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")
    back(cast, fleet, fleet.plans.get(kind="flat"))
    assert arms(fleet) == [(0, 1.0)]
    assert AuditEvent.objects.filter(action="fleet.fell_back").exists()


def test_a_quorum_that_was_lowered_later_brings_nothing_back_on_fewer_people(cast):
    fleet = make.make_fleet(cast, "pair", min_approvals=2)
    first = make.submitted_plan(cast, fleet)
    digest = make.evaluation_of(first).evidence_digest
    for approver in (cast.grace, cast.hopper):
        approve_plan(acting_user=approver, plan=first, evidence_digest=digest)
    make.activate(cast, start_rollout(acting_user=cast.linus, plan=first))
    fleets.change_policy(acting_user=cast.root, fleet=fleet, min_approvals=1)
    make.active_plan(cast, fleet)
    first.approvals.filter(approver=cast.hopper).update(
        withdrawn_at=timezone.now(), withdrawn_reason="the replay was of another week"
    )
    assert refused(cast, fleet, first).code == "not-approved"
