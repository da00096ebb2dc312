"""Fleets: their destinations, serving profile and policy."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from planner.digests import digest
from planner.errors import Conflict, Invalid
from planner.models import (
    Destination,
    Fleet,
    FleetRole,
    Plan,
    PolicyVersion,
    Publication,
    Rollout,
    RolloutStep,
    ServingProfile,
)
from planner.models.fleet import default_holds, default_weights
from planner.services import audit, rights
from planner.services.destination_rules import NewDestination, check_destination, check_weight
from planner.services.fleet_policy import POLICY_FIELDS, check_policy, check_steps
from planner.services.locking import lock
from planner.simulation import PROFILES, EngineProfile

RESERVED_SLUGS = ("new",)
MAX_DESTINATIONS = 10_000


def serving_profile(engine_profile: str, **overrides: Any) -> ServingProfile:
    """The stored profile of a named engine profile, created when it is new; or the fitted one of that name.

    Raises
    ------
    Invalid
        When no engine profile has that name.
    """
    if engine_profile in PROFILES:
        return stored_profile(PROFILES[engine_profile], **overrides)
    fitted = ServingProfile.objects.exclude(fit={}).filter(name=engine_profile).first()
    if fitted is None:
        known = ", ".join(profile_names())
        raise Invalid(f"no engine profile is named {engine_profile!r}; known: {known}", field="engine_profile")
    return fitted


def profile_names() -> list[str]:
    """Engine profiles that a fleet may be served by: those that ship, then those that were fitted."""
    return [*PROFILES, *ServingProfile.objects.exclude(fit={}).values_list("name", flat=True)]


def stored_profile(profile: EngineProfile, *, fit: dict[str, Any] | None = None, **overrides: Any) -> ServingProfile:
    """The serving profile with these constants, created when it is new."""
    facts = dict(profile.serving)
    fields = {
        "name": profile.name,
        "model": facts.get("model", profile.name),
        "precision": facts.get("precision", "unknown"),
        "tensor_parallel": int(facts.get("tensor_parallel", 1)),
        "context_tokens": int(facts.get("context_tokens", 131_072)),
        "batching_policy": f"continuous, {profile.max_batched_tokens} tokens, {profile.max_sequences} sequences",
        "cache_allocation": "unlimited" if profile.cache_tokens is None else f"{profile.cache_tokens} tokens of KV",
        "hardware": facts.get("hardware", "unknown"),
        "engine": facts.get("engine", "unknown"),
        "engine_profile": profile.name,
        "engine_constants": profile.as_dict(),
        **overrides,
    }
    # What constants were fitted to is not what they are.
    found, _ = ServingProfile.objects.get_or_create(fingerprint=digest(fields), defaults={**fields, "fit": fit or {}})
    return found


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
    """Create a fleet with its destinations, its Flat-LB plan and that plan's rollout.

    Flat-LB is live from the first moment, so that a fleet always has something to fall back to. `simulated_traffic`
    is for samples: nothing serves there, and the console replays the published table against the clock.
    """
    rights.require(acting_user, rights.MANAGE)
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?", slug):
        raise Invalid("use lower-case letters, digits and inner hyphens, 60 at most", field="slug")
    if slug in RESERVED_SLUGS:
        raise Invalid(f"{slug!r} is an address of the console; take another", field="slug")
    rows = _checked_destinations(destinations)
    check_policy(policy)
    weights = policy.get("canary_weights", default_weights())
    check_steps(weights, policy.get("canary_holds_s", default_holds()))
    taken = Conflict(f"a fleet named {slug!r} exists already", code="exists", field="slug")
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
    _store_destinations(fleet, rows, first=0)
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
    _write_down_policy(fleet, acting_user)
    _write_down_table(fleet)
    for role in rights.GROUPS:
        FleetRole.objects.create(fleet=fleet, role=role, group=_free_group(f"{slug}: {role}"))
    audit.record(
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


def _checked_destinations(
    destinations: Sequence[NewDestination], taken: Sequence[str] = ()
) -> list[tuple[str, str, float]]:
    """Name, URL and speed of each new destination beside those whose names are taken.

    Raises
    ------
    Invalid
        For the first row that cannot be used; `field` is its path, such as ``destinations/0/url``.
    Conflict
        When a name is taken.
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
            raise Invalid(f"destination names must differ: {name!r} is there twice", field=f"{place}/name")
        if name in known:
            raise Conflict(f"this fleet has a destination named {name!r} already", code="exists", field=f"{place}/name")
        before.add(name)
        rows.append((name, url, float(weight)))
    return rows


def _store_destinations(fleet: Fleet, rows: list[tuple[str, str, float]], *, first: int) -> list[Destination]:
    return Destination.objects.bulk_create(
        Destination(fleet=fleet, index=first + at, name=name, url=url, weight=weight)
        for at, (name, url, weight) in enumerate(rows)
    )


@transaction.atomic
def change_policy(*, acting_user: User, fleet: Fleet, expected_version: int | None = None, **policy: Any) -> Fleet:
    """Change the policy. Evidence that was judged under the old one is stale from then on."""
    rights.require(acting_user, rights.MANAGE, fleet)
    check_policy(policy)
    fleet = lock(Fleet, fleet.pk, expected_version)
    before = {field: getattr(fleet, field) for field in policy}
    for field, value in policy.items():
        setattr(fleet, field, value)
    check_steps(fleet.canary_weights, fleet.canary_holds_s)
    fleet.policy_version += 1
    fleet.bump("policy_version", *policy)
    _write_down_policy(fleet, acting_user)
    audit.record(
        "fleet.policy_changed", acting_user=acting_user, fleet=fleet, subject=fleet, before=before, after=policy
    )
    return fleet


@transaction.atomic
def change_serving_profile(
    *, acting_user: User, fleet: Fleet, engine_profile: str, expected_version: int | None = None
) -> Fleet:
    """Say that the fleet serves otherwise now. Whatever was calibrated, replayed or approved before is stale then."""
    rights.require(acting_user, rights.MANAGE, fleet)
    profile = serving_profile(engine_profile)
    fleet = lock(Fleet, fleet.pk, expected_version)
    before = {"serving_profile": fleet.serving_profile.name, "fingerprint": fleet.serving_profile.fingerprint}
    fleet.serving_profile = profile
    fleet.bump("serving_profile")
    audit.record(
        "fleet.serving_profile_changed",
        acting_user=acting_user,
        fleet=fleet,
        subject=fleet,
        before=before,
        after={"serving_profile": profile.name, "fingerprint": profile.fingerprint},
    )
    return fleet


@transaction.atomic
def add_destinations(
    *,
    acting_user: User,
    fleet: Fleet,
    destinations: Sequence[NewDestination],
    expected_version: int | None = None,
) -> list[Destination]:
    """Add destinations after those that the fleet has; Flat-LB sends to them at once, plans when they are made anew.

    None is ever deleted, for tables name destinations by index: one that is gone is set down and keeps its index.
    """
    rights.require(acting_user, rights.MANAGE, fleet)
    fleet = lock(Fleet, fleet.pk, expected_version)
    rows = _checked_destinations(destinations, list(fleet.destinations.values_list("name", flat=True)))
    last = fleet.destinations.aggregate(n=Max("index"))["n"]
    added = _store_destinations(fleet, rows, first=0 if last is None else last + 1)
    publish(fleet)
    audit.record(
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
    """Mark a destination up, draining or down, or say how fast it is.

    Routers see a state in the table they poll next. A weight stands in no table, so that none is published: it
    changes what plans are judged on, and evidence collected before is stale.
    """
    if state is None and weight is None:
        raise Invalid("name what to change: state, weight or both")
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
    audit.record(
        "fleet.destination_changed",
        acting_user=acting_user,
        fleet=fleet,
        subject=destination,
        before=before,
        after=after,
    )
    return destination


def publish(fleet: Fleet) -> None:
    """Give the routing table a new version. Call it under the fleet's lock, in the change's transaction."""
    fleet.table_version += 1
    fleet.table_issued_at = timezone.now()
    fleet.bump("table_version", "table_issued_at")
    _write_down_table(fleet)


def _write_down_table(fleet: Fleet) -> None:
    """Keep which plans this version of the table holds: telemetry names it by version and arm."""
    live = fleet.rollouts.filter(state__in=["active", "canary"]).select_related("plan").order_by("state")
    rows = {r.state: r for r in live.defer("plan__summary", "plan__parameters")}
    share = rows["canary"].weight if "canary" in rows else 0.0
    arms = [
        {"name": name, "plan": rows[state].plan_id, "number": rows[state].plan.number, "rollout": rows[state].pk,
         "weight": weight}
        for name, state, weight in (("incumbent", "active", round(1.0 - share, 9)), ("canary", "canary", share))
        if state in rows
    ]  # fmt: skip
    Publication.objects.create(fleet=fleet, version=fleet.table_version, arms=arms, issued_at=fleet.table_issued_at)


def _write_down_policy(fleet: Fleet, acting_user: User | None) -> None:
    values = {field: getattr(fleet, field) for field in POLICY_FIELDS}
    PolicyVersion.objects.create(fleet=fleet, number=fleet.policy_version, values=values, changed_by=acting_user)


def _free_group(name: str) -> Group:
    """A new group: one of that name may be left from elsewhere, and its members are nobody here."""
    taken = Group.objects.filter(name=name).exists()
    return Group.objects.create(name=f"{name} ({secrets.token_hex(3)})" if taken else name)
