"""A scheduled start is checked when it fires, fires once, and never at a time that it was moved from."""

import datetime as dt

import pytest
from django.db import connection
from django.utils import timezone

from planner.errors import Conflict, Invalid
from planner.models import AuditEvent, Plan, Rollout
from planner.selectors.fleets.routing_tables import routing_table
from planner.services.access.break_glass import open_break_glass
from planner.services.fleets import fleets
from planner.services.reviews.submissions import retire_plan
from planner.services.rollouts import freezes, starts
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.starts import fire_schedules, reschedule_rollout, start_rollout
from planner.services.rollouts.steps import abort_rollout
from tests import factories as make

pytestmark = [pytest.mark.django_db, pytest.mark.golden("approved")]

HOUR = dt.timedelta(hours=1)
# A beat after the time of `scheduled`.
IN_TIME = HOUR + dt.timedelta(minutes=1)


@pytest.fixture
def plan(cast, fleet):
    return make.approved_plan(cast, fleet)


@pytest.fixture
def scheduled(cast, plan):
    return start_rollout(acting_user=cast.linus, plan=plan, scheduled_for=timezone.now() + HOUR)


def fire(after):
    return fire_schedules(now=timezone.now() + after)


def test_it_carries_no_traffic_before_its_time(cast, fleet, scheduled):
    fleet.refresh_from_db()
    assert (scheduled.state, fleet.table_version) == ("scheduled", 1)
    assert fire(HOUR / 2) == []
    assert [a["name"] for a in routing_table(fleet)["arms"]] == ["incumbent"]
    event = AuditEvent.objects.get(action="rollout.scheduled")
    assert event.evidence_digest == scheduled.evidence_digest
    assert not scheduled.steps.exists()


def test_it_starts_when_its_time_has_come_and_once(cast, fleet, scheduled):
    (fired,) = fire(IN_TIME)
    assert (fired.pk, fired.state, fired.weight) == (scheduled.pk, "canary", 0.1)
    assert fired.steps.get().entered_by == cast.linus
    assert fire(IN_TIME) == []
    fleet.refresh_from_db()
    assert fleet.table_version == 2
    event = AuditEvent.objects.get(action="rollout.started")
    assert (event.actor, event.actor_name, event.after["scheduled_by"]) == (None, "scheduler", "linus")
    assert make.activate(cast, fired).state == "active"


def test_a_schedule_that_was_moved_does_not_fire_at_the_old_time(cast, fleet, scheduled):
    moved = reschedule_rollout(acting_user=cast.grace, rollout=scheduled, scheduled_for=timezone.now() + 5 * HOUR)
    assert fire(IN_TIME) == []
    assert Rollout.objects.get(pk=moved.pk).state == "scheduled"
    (fired,) = fire(5 * HOUR + HOUR / 60)
    assert fired.state == "canary"
    event = AuditEvent.objects.get(action="rollout.rescheduled")
    assert event.before["scheduled_for"] < event.after["scheduled_for"]


def test_a_move_to_an_earlier_time_fires_then(cast, fleet, scheduled):
    reschedule_rollout(acting_user=cast.linus, rollout=scheduled, scheduled_for=timezone.now() + HOUR / 4)
    assert len(fire(HOUR / 3)) == 1


def test_who_read_the_list_before_it_was_moved_fires_nothing(cast, fleet, scheduled):
    due = Rollout.objects.only("id", "fleet_id", "plan_id").get(pk=scheduled.pk)
    reschedule_rollout(acting_user=cast.linus, rollout=scheduled, scheduled_for=timezone.now() + 5 * HOUR)
    assert starts._fire(due, timezone.now() + 2 * HOUR) is None


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (lambda now: now - HOUR, "past"),
        (lambda now: now, "past"),
        (lambda now: now + dt.timedelta(days=400), "year"),
        (lambda now: (now + HOUR).replace(tzinfo=None), "zone"),
    ],
)
def test_a_time_that_cannot_be_is_refused(cast, fleet, plan, scheduled, when, words):
    at = when(timezone.now())
    with pytest.raises(Invalid, match=words) as refusal:
        reschedule_rollout(acting_user=cast.linus, rollout=scheduled, scheduled_for=at)
    assert refusal.value.field == "scheduled_for"
    abort_rollout(acting_user=cast.linus, rollout=scheduled)
    with pytest.raises(Invalid, match=words):
        start_rollout(acting_user=cast.linus, plan=plan, scheduled_for=at)


def test_it_can_be_called_off_and_another_be_started(cast, fleet, plan, scheduled):
    fleet.refresh_from_db()
    before = fleet.table_version
    gone = abort_rollout(acting_user=cast.grace, rollout=scheduled, reason="not today")
    fleet.refresh_from_db()
    assert (gone.state, fleet.table_version) == ("aborted", before)
    assert fire(IN_TIME) == []
    assert make.canary(cast, fleet, plan).state == "canary"


def test_a_stale_schedule_can_be_called_off(cast, fleet, plan, scheduled):
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4)
    assert abort_rollout(acting_user=cast.linus, rollout=scheduled).state == "aborted"


def test_a_plan_with_a_schedule_is_archived_after_the_schedule_is_cancelled(cast, fleet, plan, scheduled):
    with pytest.raises(Conflict) as refusal:
        retire_plan(acting_user=cast.ada, plan=plan)
    assert refusal.value.code == "scheduled"
    assert f"{scheduled.scheduled_for:%Y-%m-%d %H:%M} UTC; cancel the schedule first" in refusal.value.message
    abort_rollout(acting_user=cast.linus, rollout=scheduled)
    assert retire_plan(acting_user=cast.ada, plan=plan).state == Plan.State.RETIRED


def change_policy(cast, fleet, plan):
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4)


def freeze(cast, fleet, plan):
    freezes.freeze(acting_user=cast.linus, fleet=fleet, reason="holidays")


def freeze_all(cast, fleet, plan):
    freezes.freeze(acting_user=cast.root, fleet=None, reason="holidays")


def automatic_fallback(cast, fleet, plan):
    fall_back(acting_user=None, fleet=fleet, reason="left the envelope")


def take_the_right(cast, fleet, plan):
    cast.linus.groups.clear()


def lock_the_account(cast, fleet, plan):
    cast.linus.is_active = False
    cast.linus.save()


def lose_the_table(cast, fleet, plan):
    from django.core.files.storage import default_storage

    default_storage.delete(plan.table.path)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (change_policy, "evidence-stale"),
        (freeze, "frozen"),
        (freeze_all, "frozen"),
        (take_the_right, "no-right"),
        (lock_the_account, "no-right"),
        (lose_the_table, "artifact-lost"),
    ],
)
def test_when_it_fires_everything_is_checked_again(cast, fleet, plan, scheduled, change, code):
    change(cast, fleet, plan)
    fleet.refresh_from_db()
    version = fleet.table_version
    (fired,) = fire(IN_TIME)
    assert fired.state == "aborted"
    assert fired.end_reason.startswith("could not start as scheduled: ")
    plan.refresh_from_db()
    fleet.refresh_from_db()
    assert (plan.state, fleet.table_version) == (Plan.State.APPROVED, version)
    event = AuditEvent.objects.get(action="rollout.schedule_refused")
    assert (event.actor_name, event.after["code"]) == ("scheduler", code)
    assert event.reason
    assert fire(IN_TIME) == []


def test_falling_back_calls_a_schedule_off_and_changes_no_table_for_it(cast, fleet, scheduled):
    fleet.refresh_from_db()
    version = fleet.table_version
    fall_back(acting_user=cast.linus, fleet=fleet, reason="drill")
    fleet.refresh_from_db()
    assert (Rollout.objects.get(pk=scheduled.pk).state, fleet.table_version) == ("aborted", version)
    assert AuditEvent.objects.filter(action="fleet.fell_back").count() == 1
    assert fire(IN_TIME) == []


def test_one_rollout_ahead_a_fleet(cast, fleet, plan, scheduled):
    other = make.approved_plan(cast, fleet)
    for at in (None, timezone.now() + 2 * HOUR):
        with pytest.raises(Conflict) as refusal:
            start_rollout(acting_user=cast.linus, plan=other, scheduled_for=at)
        assert refusal.value.code == "scheduled"
        assert "cancel that first" in refusal.value.message


def test_only_what_is_scheduled_is_moved(cast, fleet):
    rollout = make.canary(cast, fleet)
    with pytest.raises(Conflict):
        reschedule_rollout(acting_user=cast.linus, rollout=rollout, scheduled_for=timezone.now() + HOUR)


def crash_canaries_of(fleet):
    """Whatever puts a canary of the fleet on traffic fails in the database, as nobody has foreseen."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with checks to come takes no trigger
        cursor.execute(
            "CREATE FUNCTION crash_canary() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'out of luck'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER crash BEFORE UPDATE ON planner_rollout FOR EACH ROW "
            f"WHEN (NEW.state = 'canary' AND NEW.fleet_id = {fleet.pk}) EXECUTE FUNCTION crash_canary()"
        )


def test_one_fleet_that_crashes_does_not_keep_the_others_from_their_time(cast, fleet, scheduled):
    beta = make.make_fleet(cast, "beta")
    other = make.approved_plan(cast, beta)
    later = start_rollout(acting_user=cast.linus, plan=other, scheduled_for=scheduled.scheduled_for)
    crash_canaries_of(fleet)
    (fired,) = fire(IN_TIME)
    assert (fired.pk, fired.state) == (later.pk, "canary")
    assert Rollout.objects.get(pk=scheduled.pk).state == "scheduled"


def test_one_that_crashes_again_and_again_is_called_off_when_it_is_too_late(cast, fleet, plan, scheduled):
    crash_canaries_of(fleet)
    for minutes in (1, 5, 14):
        assert fire(HOUR + dt.timedelta(minutes=minutes)) == []
    (fired,) = fire(HOUR + dt.timedelta(minutes=16))
    assert_too_late(fired, plan)
    assert fire(HOUR * 2) == []


def test_a_schedule_that_could_not_fire_in_time_is_called_off(cast, fleet, plan, scheduled):
    """The monitor was down over night: nobody expects the canary any more."""
    (fired,) = fire(HOUR + dt.timedelta(minutes=15, seconds=1))
    assert_too_late(fired, plan)


def test_what_is_too_late_is_called_off_without_reading_anything(cast, fleet, plan, scheduled):
    lose_the_table(cast, fleet, plan)
    (fired,) = fire(2 * HOUR)
    assert_too_late(fired, plan)


def assert_too_late(fired, plan):
    assert fired.state == "aborted"
    event = AuditEvent.objects.get(action="rollout.schedule_refused")
    assert (event.after["code"], "15 minutes" in event.reason) == ("too-late", True)
    assert Plan.objects.get(pk=plan.pk).state == Plan.State.APPROVED
    assert not AuditEvent.objects.filter(action="rollout.started").exists()


def test_break_glass_of_the_user_who_scheduled_it_does_not_start_it(cast, fleet, plan):
    """It is for a person who is there; a schedule fires when nobody is."""
    opened = open_break_glass(acting_user=cast.ada, fleet=fleet, reason="nobody else answers")
    assert opened.closed_at is None
    start_rollout(acting_user=cast.ada, plan=plan, scheduled_for=timezone.now() + HOUR / 4)
    (fired,) = fire(HOUR / 3)
    assert fired.state == "aborted"
    assert AuditEvent.objects.get(action="rollout.schedule_refused").after["code"] == "no-right"


@pytest.mark.golden(None)  # approved under a policy of its own
def test_a_schedule_after_the_cool_down_is_taken(cast, fleet):
    fleets.change_policy(acting_user=cast.root, fleet=fleet, cool_down_s=600.0)
    plan = make.active_plan(cast, fleet)
    fall_back(acting_user=None, fleet=fleet, reason="left the envelope")
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan, scheduled_for=timezone.now() + dt.timedelta(seconds=300))
    assert refusal.value.code == "cooling-down"
    assert start_rollout(acting_user=cast.linus, plan=plan, scheduled_for=timezone.now() + HOUR).pk
