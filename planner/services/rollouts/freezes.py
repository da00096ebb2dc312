"""Freezes of rollouts.

A freeze stops: start, advance, promote, resume and rollback. A scheduled start that is due during a freeze is aborted.
A freeze does not stop: fall back, abort and pause. Open break-glass of the user passes a freeze.
"""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.errors import Conflict
from planner.models import Fleet, Freeze
from planner.selectors.access import rights
from planner.selectors.rollouts.queries import freeze_of, frozen_words
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.rollouts.guards import needed_reason


@transaction.atomic
def freeze(*, acting_user: User, fleet: Fleet | None, reason: str) -> Freeze:
    """Freeze the rollouts of a fleet (right: operate) or of all fleets (right: manage).

    It waits for transitions that are running. After it returns, none of the frozen actions starts.

    Parameters
    ----------
    acting_user
        Who freezes.
    fleet
        The fleet; None for all fleets.
    reason
        1 to 4,000 characters without outer blanks, which are removed.

    Returns
    -------
    Freeze
        The stored freeze.

    Raises
    ------
    NotAllowed
        When the user lacks the right.
    Invalid
        When the reason is blank or too long.
    Conflict
        When the same fleet, or all fleets for None, is frozen already.
    """
    _require_right(acting_user, fleet)
    reason = needed_reason(reason)
    # A transition holds the lock of its fleet from its check of the freezes until it is done.
    if fleet is None:
        list(Fleet.objects.select_for_update(no_key=True).order_by("pk").values_list("pk"))
    else:
        fleet = lock(Fleet, fleet.pk)
    _require_right(acting_user, fleet, rights.require_now)
    if known := Freeze.objects.filter(fleet=fleet, lifted_at=None).first():
        raise Conflict(frozen_words(known), code="frozen")
    made = Freeze.objects.create(fleet=fleet, reason=reason, frozen_by=acting_user)
    record_event(
        "fleet.frozen",
        acting_user=acting_user,
        fleet=fleet,
        subject=made,
        after={"scope": fleet.slug if fleet else "all fleets"},
        reason=reason,
    )
    return made


@transaction.atomic
def lift_freeze(*, acting_user: User, freeze: Freeze, reason: str = "") -> Freeze:
    """Lift a freeze. Lifting alone moves no rollout.

    Parameters
    ----------
    acting_user, freeze
        Who lifts (right: operate; manage for a freeze of all fleets), and what.
    reason
        Optional; kept in the audit trail.

    Returns
    -------
    Freeze
        The lifted freeze.

    Raises
    ------
    NotAllowed
        When the user lacks the right.
    Conflict
        When it is lifted already.
    """
    _require_right(acting_user, freeze.fleet)
    if freeze.fleet_id is not None:
        lock(Fleet, freeze.fleet_id)
    freeze = lock(Freeze, freeze.pk)
    _require_right(acting_user, freeze.fleet, rights.require_now)
    if freeze.lifted_at is not None:
        raise Conflict(f"{freeze.lifted_by} lifted this freeze already")
    freeze.lifted_at, freeze.lifted_by = timezone.now(), acting_user
    freeze.save(update_fields=["lifted_at", "lifted_by"])
    record_event(
        "fleet.unfrozen",
        acting_user=acting_user,
        fleet=freeze.fleet,
        subject=freeze,
        before={"reason": freeze.reason, "frozen_by": str(freeze.frozen_by)},
        after={"scope": freeze.fleet.slug if freeze.fleet else "all fleets"},
        reason=reason,
    )
    return freeze


def unfreeze(*, acting_user: User, fleet: Fleet, reason: str = "") -> Freeze:
    """Lift the freeze of one fleet.

    Parameters
    ----------
    acting_user, fleet
        A user with the right to operate the fleet, and the fleet.
    reason
        Optional; kept in the audit trail.

    Returns
    -------
    Freeze
        The lifted freeze.

    Raises
    ------
    NotAllowed
        When the user may not operate the fleet.
    Conflict
        When its rollouts are not frozen, or only by a freeze of all fleets.
    """
    rights.require(acting_user, rights.OPERATE, fleet)
    known = freeze_of(fleet)
    if known is None:
        raise Conflict(f"the rollouts of {fleet} are not frozen", code="not-frozen")
    if known.fleet_id is None:
        raise Conflict(
            "rollouts of all fleets are frozen, not of this one: an admin can lift that freeze", code="frozen-for-all"
        )
    return lift_freeze(acting_user=acting_user, freeze=known, reason=reason)


def _require_right(
    acting_user: User, fleet: Fleet | None, require: Callable[[User, str, Fleet | None], None] = rights.require
) -> None:
    require(acting_user, rights.MANAGE if fleet is None else rights.OPERATE, fleet)
