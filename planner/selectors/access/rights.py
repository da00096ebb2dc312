"""Who may do what. Rights come from Django groups; being an administrator never lifts the second-person rule.

The five groups of plain names (`operator`) hold their role on every fleet; each fleet has five groups of its own
(`demo: operator`), whose members hold it there only. Who is in none of a fleet's groups does not see the fleet.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet
from django.utils import timezone

from planner import roles
from planner.context import current_origin
from planner.errors import NotAllowed
from planner.models import BreakGlass, Fleet, FleetRole

PLAN, APPROVE, OPERATE, MANAGE = roles.PLAN, roles.APPROVE, roles.OPERATE, roles.MANAGE
GROUPS = roles.GROUPS
_WORDS = {
    PLAN: "plan for this fleet (group planner)",
    APPROVE: "approve or reject plans (group approver)",
    OPERATE: "operate this fleet (group operator or approver)",
    MANAGE: "manage fleets (group admin)",
}


def require(user: User, right: str, fleet: Fleet | None = None) -> None:
    """Raise NotAllowed unless the user holds the right: on every fleet, or on this one.

    Parameters
    ----------
    user, right
        Who acts, and `PLAN`, `APPROVE`, `OPERATE` or `MANAGE`.
    fleet
        The fleet; None requires the right on every fleet.

    Raises
    ------
    NotAllowed
        When `may` is false.
    """
    if not may(user, right, fleet):
        raise NotAllowed(f"{user.get_username()} may not {_WORDS[right]}.")


def require_now(user: User, right: str, fleet: Fleet | None = None) -> None:
    """As `require`, for the account as it is now: the second check, under the lock that the action waited for.

    A user object caches the roles that it was read with, so a role that was removed meanwhile would still count.

    Parameters
    ----------
    user, right, fleet
        As in `require`.

    Raises
    ------
    NotAllowed
        When the user no longer holds the right.
    """
    require(User.objects.get(pk=user.pk), right, fleet)


def may(user: User | AnonymousUser, right: str, fleet: Fleet | None = None) -> bool:
    """Whether the user holds the right by role or, to operate the fleet, by their open break-glass.

    Parameters
    ----------
    user, right, fleet
        As in `require`; the user may be anonymous. Without `fleet` break-glass does not count.

    Returns
    -------
    bool
        False for an account that is disabled.
    """
    if by_role(user, right, fleet):
        return True
    return right == OPERATE and fleet is not None and user.is_active and open_break_glass_of(user, fleet) is not None


def by_role(user: User | AnonymousUser, right: str, fleet: Fleet | None = None) -> bool:
    """Whether the user holds the right by role, on every fleet or on this one.

    Parameters
    ----------
    user, right, fleet
        As in `require`; the user may be anonymous.

    Returns
    -------
    bool
        False for an account that is disabled.
    """
    if not user.is_active:
        return False
    if user.has_perm(right):
        return True
    return fleet is not None and any(right in GROUPS[role] for role in _roles(user).get(fleet.pk, ()))


def open_break_glass_of(user: Any, fleet: Fleet) -> BreakGlass | None:
    """The open break-glass of this user on this fleet. Requests with a token have none."""
    if current_origin().token_number is not None:
        return None
    mine = BreakGlass.objects.filter(fleet=fleet, opened_by_id=user.pk, closed_at=None, expires_at__gt=timezone.now())
    return mine.order_by("-id").first()


def visible_fleets(user: Any) -> QuerySet[Fleet]:
    """The fleets that a person may look at."""
    if sees_all(user):
        return Fleet.objects.all()
    return Fleet.objects.filter(pk__in=_roles(user))


def fleets_with(user: Any, right: str) -> QuerySet[Fleet]:
    """The fleets on which a person holds a right by role."""
    if user.is_active and user.has_perm(right):
        return Fleet.objects.all()
    held = [fleet_id for fleet_id, roles in _roles(user).items() if any(right in GROUPS[role] for role in roles)]
    return Fleet.objects.filter(pk__in=held if user.is_active else [])


def sees_all(user: Any) -> bool:
    """Whether the person is in one of the groups for every fleet."""
    if not user.is_active:
        return False
    if not hasattr(user, "_sees_all"):
        user._sees_all = user.is_superuser or user.groups.filter(name__in=GROUPS).exists()
    return bool(user._sees_all)


def sees(user: Any, fleet: Fleet) -> bool:
    """Whether the person may look at the fleet."""
    return sees_all(user) or (user.is_active and fleet.pk in _roles(user))


def _roles(user: Any) -> dict[int, list[str]]:
    """Roles on single fleets, cached on the user object as Django caches its permissions."""
    if not hasattr(user, "_fleet_roles"):
        found: dict[int, list[str]] = {}
        for fleet_id, role in FleetRole.objects.filter(group__user=user.pk).values_list("fleet_id", "role"):
            found.setdefault(fleet_id, []).append(role)
        user._fleet_roles = found
    roles: dict[int, list[str]] = user._fleet_roles
    return roles
