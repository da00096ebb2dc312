"""Break-glass: a person operates a fleet past its guards for an hour; another person reviews it.

Break-glass lifts freeze, hold and analysis, and gives the right to operate. It approves nothing: a plan still needs
the approval of a second person.
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

DURATION = dt.timedelta(hours=1)
MIN_REASON_CHARS = 10


@transaction.atomic
def open_break_glass(*, acting_user: User, fleet: Fleet, reason: str) -> BreakGlass:
    """Open break-glass on a fleet for the acting user. Any role on the fleet beyond viewer allows it.

    Parameters
    ----------
    acting_user : User
        The user who opens it; another user reviews it.
    fleet : Fleet
        The fleet to operate.
    reason : str
        What happened, at least 10 characters.

    Returns
    -------
    BreakGlass
        Open for an hour.

    Raises
    ------
    NotAllowed
        If the user has no role beyond viewer.
    Invalid
        If the reason is too short.
    Conflict
        If the user's break-glass is open already, or their last one is not reviewed.
    """
    roles = (rights.PLAN, rights.APPROVE, rights.OPERATE, rights.MANAGE)
    if not any(rights.may(acting_user, right, fleet) for right in roles):
        raise NotAllowed(f"{acting_user.get_username()} has no role on this fleet beyond viewer.")
    if len(reason.strip()) < MIN_REASON_CHARS:
        raise Invalid(
            f"describe what happened in at least {MIN_REASON_CHARS} characters for the review", field="reason"
        )
    fleet = lock(Fleet, fleet.pk)
    _close_expired(fleet)
    mine = fleet.break_glass_periods.filter(opened_by=acting_user)
    if mine.filter(closed_at=None).exists():
        raise Conflict("your break-glass on this fleet is already open", code="open")
    if mine.filter(reviewed_at=None).exists():
        raise Conflict("your last break-glass on this fleet must be reviewed first", code="review-open")
    row = BreakGlass.objects.create(
        fleet=fleet, opened_by=acting_user, reason=reason, expires_at=timezone.now() + DURATION
    )
    record_event(
        "break_glass.opened",
        acting_user=acting_user,
        fleet=fleet,
        subject=row,
        after={"until": row.expires_at.isoformat()},
        reason=reason,
    )
    return row


@transaction.atomic
def close_break_glass(*, acting_user: User, break_glass: BreakGlass) -> BreakGlass:
    """Close break-glass before it expires. Allowed to its holder and to anyone who operates the fleet by role."""
    fleet = lock(Fleet, break_glass.fleet_id)
    row = BreakGlass.objects.select_for_update(no_key=True).get(pk=break_glass.pk)
    if row.opened_by_id != acting_user.pk and not rights.by_role(acting_user, rights.OPERATE, fleet):
        raise NotAllowed("Only the holder, or a person who operates this fleet by role, can close break-glass.")
    if row.closed_at is not None:
        raise Conflict("this break-glass is already closed")
    row.closed_at = min(timezone.now(), row.expires_at)
    row.save(update_fields=["closed_at"])
    record_event("break_glass.closed", acting_user=acting_user, fleet=fleet, subject=row)
    return row


@transaction.atomic
def review_break_glass(*, acting_user: User, break_glass: BreakGlass, review: str) -> BreakGlass:
    """Record the review of a closed break-glass, by another person who approves or manages on this fleet.

    Parameters
    ----------
    acting_user
        The reviewer. Not the user who opened it.
    break_glass
        A closed or expired break-glass. One that has expired is closed first, at its expiry time.
    review
        What the reviewer found; not blank.

    Returns
    -------
    BreakGlass
        The row with reviewer, time and review.

    Raises
    ------
    NotAllowed
        When the user has neither the right to approve nor to manage, or opened it.
    Invalid
        When the review is blank.
    Conflict
        When it is still open, or reviewed already.
    """
    fleet = lock(Fleet, break_glass.fleet_id)
    if not rights.may(acting_user, rights.MANAGE, fleet):
        rights.require(acting_user, rights.APPROVE, fleet)
    if not review.strip():
        raise Invalid("describe what you found", field="review")
    _close_expired(fleet)
    row = BreakGlass.objects.select_for_update(no_key=True).get(pk=break_glass.pk)
    if row.opened_by_id == acting_user.pk:
        raise NotAllowed("Another person must review break-glass.", code="second-person")
    if row.closed_at is None:
        raise Conflict("this break-glass is still open; close it first", code="open")
    if row.reviewed_at is not None:
        raise Conflict("this break-glass is already reviewed")
    row.reviewed_by, row.reviewed_at, row.review = acting_user, timezone.now(), review
    row.save(update_fields=["reviewed_by", "reviewed_at", "review"])
    record_event("break_glass.reviewed", acting_user=acting_user, fleet=fleet, subject=row, reason=review)
    return row


def _close_expired(fleet: Fleet) -> None:
    """Close the rows that have expired, at their expiry time."""
    for row in fleet.break_glass_periods.filter(closed_at=None, expires_at__lte=timezone.now()):
        row.closed_at = row.expires_at
        row.save(update_fields=["closed_at"])
        record_event("break_glass.closed", acting_user=None, fleet=fleet, subject=row, reason="expired")
