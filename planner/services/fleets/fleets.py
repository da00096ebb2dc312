"""Fleets: create them, and change their policy and serving profile."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from planner.errors import Conflict, Invalid
from planner.models import (
    Fleet,
    FleetRole,
    Plan,
    PolicyVersion,
    Rollout,
    RolloutStep,
)
from planner.models.fleet import default_holds, default_weights
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.fleets.destination_rules import NewDestination
from planner.services.fleets.destinations import checked_destinations, store_destinations
from planner.services.fleets.engines import serving_profile
from planner.services.fleets.policy import POLICY_FIELDS, check_policy, check_steps
from planner.services.fleets.publishing import _record_publication

RESERVED_SLUGS = ("new",)


@transaction.atomic
def create_fleet(
    *,
    acting_user: User,
    slug: str,
    name: str,
    destinations: Sequence[NewDestination],
    engine_profile: str,
    description: str = "",
    simulated_traffic: bool = False,
    **policy: Any,
) -> Fleet:
    """Create a fleet with its destinations, its Flat-LB plan and the rollout of that plan.

    Flat-LB is live from the start, so a fleet can always fall back.

    Parameters
    ----------
    acting_user
        A user with the right to manage all fleets.
    slug
        Name in addresses: 1 to 60 lower-case letters, digits and inner hyphens.
    name, description
        Texts for people.
    destinations
        Name, URL and (optional) speed of each, at least one.
    engine_profile
        Name of a built-in or fitted engine profile.
    simulated_traffic
        For samples: no replica serves there, and the console replays the published table in real time.
    **policy
        Values of `POLICY_FIELDS` that differ from the defaults; shares from 0 to 1, times in seconds or days by name.

    Returns
    -------
    Fleet
        The stored fleet.

    Raises
    ------
    NotAllowed
        When the user may not manage all fleets.
    Invalid
        For a value that cannot be used; `field` names it.
    Conflict
        When a fleet with that slug exists.
    """
    rights.require(acting_user, rights.MANAGE)
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?", slug):
        raise Invalid("use lower-case letters, digits and inner hyphens, 60 at most", field="slug")
    if slug in RESERVED_SLUGS:
        raise Invalid(f"{slug!r} is an address of the console; choose another", field="slug")
    rows = checked_destinations(destinations)
    check_policy(policy)
    weights = policy.get("canary_weights", default_weights())
    check_steps(weights, policy.get("canary_holds_s", default_holds()))
    taken = Conflict(f"a fleet named {slug!r} already exists", code="exists", field="slug")
    if Fleet.objects.filter(slug=slug).exists():
        raise taken
    try:
        with transaction.atomic():
            fleet = Fleet.objects.create(
                slug=slug,
                name=name,
                description=description,
                serving_profile=serving_profile(engine_profile),
                salt=secrets.token_hex(16),
                simulated_traffic=simulated_traffic,
                **policy,
            )
    except IntegrityError as error:
        if "slug" not in str(error):
            raise
        raise taken from error
    store_destinations(fleet, rows, first=0)
    flat = Plan.objects.create(fleet=fleet, number=0, kind=Plan.Kind.FLAT, state=Plan.State.APPROVED)
    rollout = Rollout.objects.create(
        fleet=fleet,
        plan=flat,
        state=Rollout.State.ACTIVE,
        kind=Rollout.Kind.FALLBACK,
        weight=1.0,
        started_by=acting_user,
        activated_at=fleet.created_at,
        step_started_at=fleet.created_at,
    )
    RolloutStep.objects.create(rollout=rollout, number=1, weight=1.0, entered_by=acting_user)
    _record_policy(fleet, acting_user)
    _record_publication(fleet)
    for role in rights.GROUPS:
        FleetRole.objects.create(fleet=fleet, role=role, group=_free_group(f"{slug}: {role}"))
    record_event(
        "fleet.created",
        acting_user=acting_user,
        fleet=fleet,
        subject=fleet,
        after={
            "slug": slug,
            "destinations": len(rows),
            "weights": {d_name: weight for d_name, _, weight in rows if weight != 1},
            "serving_profile": fleet.serving_profile.name,
            **policy,
        },
    )
    return fleet


@transaction.atomic
def change_policy(*, acting_user: User, fleet: Fleet, expected_version: int | None = None, **policy: Any) -> Fleet:
    """Change the policy. Evidence that was judged under the old policy becomes stale.

    Parameters
    ----------
    acting_user, fleet
        Who changes it, and the policy of which fleet.
    expected_version
        Version of the fleet that the caller has read; None skips the check.
    **policy
        New values of some `POLICY_FIELDS`; the others are kept.

    Returns
    -------
    Fleet
        The fleet with the next `policy_version`.

    Raises
    ------
    NotAllowed
        When the user may not manage the fleet.
    StaleVersion
        When the fleet has another version than the expected one.
    Invalid
        For an unknown field, a value out of range, or holds that do not match the steps; `field` names it.
    """
    rights.require(acting_user, rights.MANAGE, fleet)
    check_policy(policy)
    fleet = lock(Fleet, fleet.pk, expected_version)
    before = {field: getattr(fleet, field) for field in policy}
    for field, value in policy.items():
        setattr(fleet, field, value)
    check_steps(fleet.canary_weights, fleet.canary_holds_s)
    fleet.policy_version += 1
    fleet.bump("policy_version", *policy)
    _record_policy(fleet, acting_user)
    record_event(
        "fleet.policy_changed", acting_user=acting_user, fleet=fleet, subject=fleet, before=before, after=policy
    )
    return fleet


@transaction.atomic
def change_serving_profile(
    *, acting_user: User, fleet: Fleet, engine_profile: str, expected_version: int | None = None
) -> Fleet:
    """Change the serving profile. Earlier calibrations, replays and approvals become stale.

    Parameters
    ----------
    acting_user, fleet
        Who changes it, and the profile of which fleet.
    engine_profile
        Name of a built-in or fitted engine profile.
    expected_version
        Version of the fleet that the caller has read; None skips the check.

    Returns
    -------
    Fleet
        The fleet with the new profile.

    Raises
    ------
    NotAllowed
        When the user may not manage the fleet.
    StaleVersion
        When the fleet has another version than the expected one.
    Invalid
        When no engine profile has that name; `field` is ``engine_profile``.
    """
    rights.require(acting_user, rights.MANAGE, fleet)
    profile = serving_profile(engine_profile)
    fleet = lock(Fleet, fleet.pk, expected_version)
    before = {"serving_profile": fleet.serving_profile.name, "fingerprint": fleet.serving_profile.fingerprint}
    fleet.serving_profile = profile
    fleet.bump("serving_profile")
    record_event(
        "fleet.serving_profile_changed",
        acting_user=acting_user,
        fleet=fleet,
        subject=fleet,
        before=before,
        after={"serving_profile": profile.name, "fingerprint": profile.fingerprint},
    )
    return fleet


def _record_policy(fleet: Fleet, acting_user: User | None) -> None:
    values = {field: getattr(fleet, field) for field in POLICY_FIELDS}
    PolicyVersion.objects.create(fleet=fleet, number=fleet.policy_version, values=values, changed_by=acting_user)


def _free_group(name: str) -> Group:
    """Create a group with an unused name: an existing group may have members without rights on this fleet."""
    taken = Group.objects.filter(name=name).exists()
    return Group.objects.create(name=f"{name} ({secrets.token_hex(3)})" if taken else name)
