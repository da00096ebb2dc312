"""A right is looked at again under the lock that an act waited for, and emergencies mark whatever is done in them."""

from __future__ import annotations

import datetime as dt
import threading
import time

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from planner.errors import Conflict, NotAllowed
from planner.models import AuditEvent, BreakGlass, Fleet, Freeze, Rollout
from planner.selectors.access import rights
from planner.services.access import roles
from planner.services.access.break_glass import close_break_glass, open_break_glass
from planner.services.access.roles import remove_role
from planner.services.base.locking import lock
from planner.services.fleets.destinations import change_destination
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.freezes import freeze, lift_freeze
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

REASON = "p99 doubled after the driver update"
SECONDS = 20


# --- under the lock -------------------------------------------------------------------------------------------
def advances(cast, fleet, user):
    rollout = make.pass_step(make.canary(cast, fleet))
    return lambda: advance_rollout(acting_user=user, rollout=rollout)


def promotes(cast, fleet, user):
    rollout = make.pass_step(make.canary(cast, fleet))
    return lambda: promote_rollout(acting_user=user, rollout=rollout, reason="it cannot wait")


def pauses(cast, fleet, user):
    rollout = make.canary(cast, fleet)
    return lambda: pause_rollout(acting_user=user, rollout=rollout)


def resumes(cast, fleet, user):
    rollout = pause_rollout(acting_user=cast.root, rollout=make.canary(cast, fleet))
    return lambda: resume_rollout(acting_user=user, rollout=rollout)


def aborts(cast, fleet, user):
    rollout = make.canary(cast, fleet)
    return lambda: abort_rollout(acting_user=user, rollout=rollout)


def starts(cast, fleet, user):
    plan = make.approved_plan(cast, fleet)
    return lambda: start_rollout(acting_user=user, plan=plan)


def moves_a_schedule(cast, fleet, user):
    plan, at = make.approved_plan(cast, fleet), timezone.now() + dt.timedelta(hours=1)
    rollout = start_rollout(acting_user=cast.root, plan=plan, scheduled_for=at)
    return lambda: reschedule_rollout(acting_user=user, rollout=rollout, scheduled_for=at + dt.timedelta(1))


def rolls_back(cast, fleet, user):
    plan = make.active_plan(cast, fleet)
    make.active_plan(cast, fleet)
    return lambda: roll_back(acting_user=user, fleet=fleet, plan=plan, reason="p99 up")


def falls_back(cast, fleet, user):
    make.active_plan(cast, fleet)
    return lambda: fall_back(acting_user=user, fleet=fleet)


def freezes(cast, fleet, user):
    return lambda: freeze(acting_user=user, fleet=fleet, reason="holidays")


def lifts_a_freeze(cast, fleet, user):
    frozen = freeze(acting_user=cast.root, fleet=fleet, reason="holidays")
    return lambda: lift_freeze(acting_user=user, freeze=frozen)


def takes_a_destination_down(cast, fleet, user):
    destination = fleet.destinations.first()
    return lambda: change_destination(acting_user=user, destination=destination, state="down")


ACTS = [
    advances, promotes, pauses, resumes, aborts, starts, moves_a_schedule, rolls_back, falls_back, freezes,
    lifts_a_freeze, takes_a_destination_down,
]  # fmt: skip


def waiting_at_a_lock():
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return cursor.fetchone()[0]


def lose_the_role(cast, fleet):
    remove_role(acting_user=cast.root, user=cast.linus, role="operator")


def lose_the_account(cast, fleet):
    roles.set_active(acting_user=cast.root, user=cast.linus, active=False)


def state(fleet):
    return (
        list(Rollout.objects.filter(fleet=fleet).order_by("id").values_list("pk", "state", "weight", "version")),
        list(Freeze.objects.values_list("pk", "lifted_at")),
        Fleet.objects.get(pk=fleet.pk).table_version,
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", ACTS)
def test_who_loses_the_right_while_they_wait_for_the_lock_does_nothing(cast, fleet, act):
    refused_after(cast, fleet, act, lose_the_role, cast.linus)


@pytest.mark.django_db(transaction=True)
def test_whose_account_is_switched_off_meanwhile_does_nothing(cast, fleet):
    refused_after(cast, fleet, advances, lose_the_account, cast.linus)


@pytest.mark.django_db(transaction=True)
def test_whose_emergency_ends_meanwhile_does_nothing(cast, fleet):
    opened = BreakGlass.objects.create(
        fleet=fleet, opened_by=cast.vera, reason=REASON, expires_at=timezone.now() + dt.timedelta(hours=1)
    )

    def close(cast, fleet):
        BreakGlass.objects.filter(pk=opened.pk).update(closed_at=timezone.now())

    refused_after(cast, fleet, aborts, close, cast.vera)


def refused_after(cast, fleet, act, lose, user):
    person = User.objects.get(pk=user.pk)
    call, came = act(cast, fleet, person), []
    rights.may(person, rights.OPERATE, fleet)  # a user object keeps the roles that it was read with
    before = state(fleet)

    def run():
        try:
            came.append(call())
        except NotAllowed as refusal:
            came.append(refusal)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    try:
        with transaction.atomic():
            lock(Fleet, fleet.pk)
            thread.start()
            until = time.monotonic() + SECONDS
            while not waiting_at_a_lock() and not came and time.monotonic() < until:
                time.sleep(0.02)
            assert not came
            lose(cast, fleet)
    finally:
        thread.join()
    assert isinstance(came[0], NotAllowed), came
    assert state(fleet) == before


# --- emergencies ----------------------------------------------------------------------------------------------
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("act", "action"),
    [
        (pauses, "rollout.paused"),
        (aborts, "rollout.aborted"),
        (falls_back, "fleet.fell_back"),
        (freezes, "fleet.frozen"),
        (lifts_a_freeze, "fleet.unfrozen"),
        (takes_a_destination_down, "fleet.destination_changed"),
    ],
)
def test_whatever_is_done_in_an_emergency_names_it(cast, fleet, act, action):
    call = act(cast, fleet, cast.ada)
    opened = open_break_glass(acting_user=cast.ada, fleet=fleet, reason=REASON)
    call()
    event = AuditEvent.objects.filter(action=action).latest("id")
    assert (event.actor, event.after["break_glass"]) == (cast.ada, opened.pk)


@pytest.mark.django_db
def test_an_emergency_marks_nothing_of_others_or_on_other_fleets_or_when_it_is_over(cast, fleet):
    other = make.make_fleet(cast, "other")
    opened = open_break_glass(acting_user=cast.linus, fleet=fleet, reason=REASON)
    freeze(acting_user=cast.grace, fleet=fleet, reason="x")
    freeze(acting_user=cast.linus, fleet=other, reason="y")
    close_break_glass(acting_user=cast.linus, break_glass=opened)
    lift_freeze(acting_user=cast.linus, freeze=Freeze.objects.get(fleet=fleet))
    for event in AuditEvent.objects.filter(action__in=["fleet.frozen", "fleet.unfrozen"]):
        assert "emergency" not in event.after


@pytest.mark.django_db
def test_nobody_ends_the_emergency_of_another_by_one_of_their_own(cast, fleet):
    theirs = open_break_glass(acting_user=cast.grace, fleet=fleet, reason=REASON)
    open_break_glass(acting_user=cast.ada, fleet=fleet, reason=REASON)
    with pytest.raises(NotAllowed, match="by role"):
        close_break_glass(acting_user=cast.ada, break_glass=theirs)
    assert close_break_glass(acting_user=cast.linus, break_glass=theirs).closed_at is not None
    with pytest.raises(Conflict):
        close_break_glass(acting_user=cast.grace, break_glass=theirs)
