"""Destinations of a fleet: add them, change their state and speed."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from planner.errors import Conflict, Invalid
from planner.models import (
    Destination,
    Fleet,
)
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.fleets.destination_rules import NewDestination, check_destination, check_weight
from planner.services.fleets.publishing import publish

MAX_DESTINATIONS = 10_000


def checked_destinations(
    destinations: Sequence[NewDestination], taken: Sequence[str] = ()
) -> list[tuple[str, str, float]]:
    """Check new destinations against each other and the names in use; return name, URL and speed of each.

    Raises
    ------
    Invalid
        For the first row that cannot be used; `field` is its path, e.g. ``destinations/0/url``.
    Conflict
        If a name is in use.
    """
    if not destinations:
        raise Invalid("name at least one destination", field="destinations")
    if len(taken) + len(destinations) > MAX_DESTINATIONS:
        raise Invalid(f"a fleet has at most {MAX_DESTINATIONS:,} destinations", field="destinations")
    known, before, rows = set(taken), set[str](), []
    for at, row in enumerate(destinations):
        name, url = row[:2]
        weight = row[2] if len(row) == 3 else 1.0
        place = f"destinations/{at}"
        try:
            check_destination(name, url, weight)
        except Invalid as fault:
            raise Invalid(fault.message, field=f"{place}/{fault.field}") from fault
        if name in before:
            raise Invalid(f"{name!r} occurs twice; destination names must differ", field=f"{place}/name")
        if name in known:
            raise Conflict(f"this fleet already has a destination named {name!r}", code="exists", field=f"{place}/name")
        before.add(name)
        rows.append((name, url, float(weight)))
    return rows


def store_destinations(fleet: Fleet, rows: list[tuple[str, str, float]], *, first: int) -> list[Destination]:
    """Store checked destinations of a fleet, without a check of rights and without an audit event.

    Parameters
    ----------
    fleet
        The fleet, new or locked.
    rows
        Name, URL and speed of each, as `checked_destinations` returns them.
    first
        Index of the first row; the others follow it.

    Returns
    -------
    list of Destination
        The stored rows, in order of index.
    """
    return Destination.objects.bulk_create(
        Destination(fleet=fleet, index=first + at, name=name, url=url, weight=weight)
        for at, (name, url, weight) in enumerate(rows)
    )


@transaction.atomic
def add_destinations(
    *,
    acting_user: User,
    fleet: Fleet,
    destinations: Sequence[NewDestination],
    expected_version: int | None = None,
) -> list[Destination]:
    """Add destinations after the existing ones. Flat-LB uses them at once; plans use them when they are rebuilt.

    Destinations are never deleted, because tables name them by index. A removed one is set to down and keeps its index.

    Parameters
    ----------
    acting_user, fleet
        Who adds them, and to which fleet.
    destinations
        Name, URL and (optional) speed of each, at least one. A fleet has at most 10,000.
    expected_version
        Version of the fleet that the caller has read; None skips the check.

    Returns
    -------
    list of Destination
        The added rows, in order of index.

    Raises
    ------
    NotAllowed
        When the user may not manage the fleet.
    StaleVersion
        When the fleet has another version than the expected one.
    Invalid
        For the first row that cannot be used; `field` is its path, e.g. ``destinations/0/url``.
    Conflict
        When a name is in use on the fleet.
    """
    rights.require(acting_user, rights.MANAGE, fleet)
    fleet = lock(Fleet, fleet.pk, expected_version)
    rows = checked_destinations(destinations, list(fleet.destinations.values_list("name", flat=True)))
    last = fleet.destinations.aggregate(n=Max("index"))["n"]
    added = store_destinations(fleet, rows, first=0 if last is None else last + 1)
    publish(fleet)
    record_event(
        "fleet.destinations_added",
        acting_user=acting_user,
        fleet=fleet,
        subject=fleet,
        after={
            "destinations": [{"index": d.index, "name": d.name, "url": d.url, "weight": d.weight} for d in added],
            "table_version": fleet.table_version,
        },
    )
    return added


@transaction.atomic
def change_destination(
    *,
    acting_user: User,
    destination: Destination,
    state: str | None = None,
    weight: float | None = None,
    expected_version: int | None = None,
) -> Destination:
    """Set a destination to up, draining or down, or change its speed.

    Routers read a new state in the next table that they poll. A new speed publishes no table, because tables do not
    contain speeds. It changes how plans are judged, so older evidence becomes stale.

    Parameters
    ----------
    acting_user, destination
        Who changes it, and what is changed.
    state
        A value of `Destination.State` (needs the right to operate the fleet); None keeps it.
    weight
        The speed, 0.01 to 100 (needs the right to manage the fleet); None keeps it.
    expected_version
        Version of the destination that the caller has read; None skips the check.

    Returns
    -------
    Destination
        The row. It is unchanged, without an audit event, when it has these values already.

    Raises
    ------
    NotAllowed
        When the user lacks the right for one of the given values.
    StaleVersion
        When the destination has another version than the expected one.
    Invalid
        When neither value is given, or one cannot be used; `field` is ``state`` or ``weight``.
    """
    if state is None and weight is None:
        raise Invalid("enter the value to change: state, weight or both")
    if state is not None:
        rights.require(acting_user, rights.OPERATE, destination.fleet)
    if weight is not None:
        rights.require(acting_user, rights.MANAGE, destination.fleet)
        check_weight(weight)
    if state is not None and state not in Destination.State.values:
        raise Invalid(f"{state!r} is not one of {', '.join(Destination.State.values)}", field="state")
    fleet = lock(Fleet, destination.fleet_id)
    if state is not None:
        rights.require_now(acting_user, rights.OPERATE, fleet)
    destination = lock(Destination, destination.pk, expected_version)
    wanted = {"state": state, "weight": None if weight is None else float(weight)}
    after = {name: value for name, value in wanted.items() if value not in (None, getattr(destination, name))}
    if not after:
        return destination
    before = {name: getattr(destination, name) for name in after}
    for name, value in after.items():
        setattr(destination, name, value)
    destination.bump(*after)
    if "state" in after:
        publish(fleet)
    record_event(
        "fleet.destination_changed",
        acting_user=acting_user,
        fleet=fleet,
        subject=destination,
        before=before,
        after=after,
    )
    return destination
