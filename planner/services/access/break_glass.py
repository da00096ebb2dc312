"""Break-glass: operating a fleet past its guards for an hour, in the open, with a review by somebody else to follow.

It lifts freeze, hold and analysis and gives the right to operate. It approves nothing: what no second person approved
is not deployed with it either.
"""

from __future__ import annotations

import datetime as dt

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import BreakGlass, Fleet
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.locking import lock

LASTS = dt.timedelta(hours=1)
MIN_REASON_CHARS = 10


@transaction.atomic
def open_break_glass(*, acting_user: User, fleet: Fleet, reason: str) -> BreakGlass:
    """Begin an emergency of one's own on a fleet. Whoever has a role there beyond looking at it may.

    Raises
    ------
    Invalid
        Without a reason that somebody could review.
    Conflict
        While one of theirs is open there, or an ended one waits for its review.
    """
    held = (rights.PLAN, rights.APPROVE, rights.OPERATE, rights.MANAGE)
    if not any(rights.may(acting_user, right, fleet) for right in held):
        raise NotAllowed(f"{acting_user.get_username()} has no role on this fleet but to look at it.")
    if len(reason.strip()) < MIN_REASON_CHARS:
        raise Invalid(f"say what happened, in {MIN_REASON_CHARS} characters at least: it is reviewed", field="reason")
    fleet = lock(Fleet, fleet.pk)
    _end_lapsed(fleet)
    mine = fleet.emergencies.filter(opened_by=acting_user)
    if mine.filter(closed_at=None).exists():
        raise Conflict("your emergency on this fleet is open already", code="open")
    if mine.filter(reviewed_at=None).exists():
        raise Conflict("your last emergency on this fleet was not reviewed yet", code="review-open")
    row = BreakGlass.objects.create(
        fleet=fleet, opened_by=acting_user, reason=reason, expires_at=timezone.now() + LASTS
    )
    record_event(
        "emergency.opened",
        acting_user=acting_user,
        fleet=fleet,
        subject=row,
        after={"until": row.expires_at.isoformat()},
        reason=reason,
    )
    return row


@transaction.atomic
def close_break_glass(*, acting_user: User, emergency: BreakGlass) -> BreakGlass:
    """End an emergency: its owner may, and whoever operates the fleet by role, not by an emergency of their own."""
    fleet = lock(Fleet, emergency.fleet_id)
    emergency = BreakGlass.objects.select_for_update(no_key=True).get(pk=emergency.pk)
    if emergency.opened_by_id != acting_user.pk and not rights.by_role(acting_user, rights.OPERATE, fleet):
        raise NotAllowed("Its owner ends it, or somebody who operates this fleet by role.")
    if emergency.closed_at is not None:
        raise Conflict("this emergency has ended already")
    emergency.closed_at = min(timezone.now(), emergency.expires_at)
    emergency.save(update_fields=["closed_at"])
    record_event("emergency.closed", acting_user=acting_user, fleet=fleet, subject=emergency)
    return emergency


@transaction.atomic
def review_break_glass(*, acting_user: User, emergency: BreakGlass, review: str) -> BreakGlass:
    """Record what somebody else, who approves or manages on this fleet, has found about an ended emergency."""
    fleet = lock(Fleet, emergency.fleet_id)
    if not rights.may(acting_user, rights.MANAGE, fleet):
        rights.require(acting_user, rights.APPROVE, fleet)
    if not review.strip():
        raise Invalid("say what you found", field="review")
    _end_lapsed(fleet)
    emergency = BreakGlass.objects.select_for_update(no_key=True).get(pk=emergency.pk)
    if emergency.opened_by_id == acting_user.pk:
        raise NotAllowed("Somebody else must review it.", code="second-person")
    if emergency.closed_at is None:
        raise Conflict("it is still open: close it first", code="open")
    if emergency.reviewed_at is not None:
        raise Conflict("it was reviewed already")
    emergency.reviewed_by, emergency.reviewed_at, emergency.review = acting_user, timezone.now(), review
    emergency.save(update_fields=["reviewed_by", "reviewed_at", "review"])
    record_event("emergency.reviewed", acting_user=acting_user, fleet=fleet, subject=emergency, reason=review)
    return emergency


def _end_lapsed(fleet: Fleet) -> None:
    """Those whose time is over have ended, at the end of their time."""
    for row in fleet.emergencies.filter(closed_at=None, expires_at__lte=timezone.now()):
        row.closed_at = row.expires_at
        row.save(update_fields=["closed_at"])
        record_event("emergency.closed", acting_user=None, fleet=fleet, subject=row, reason="its time was over")
