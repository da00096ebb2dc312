"""Accounts and roles, on all fleets or on one. A password is shown once and stored only as a hash."""

from __future__ import annotations

import re
import secrets

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from planner.errors import Conflict, Invalid
from planner.models import Fleet, FleetRole
from planner.selectors.access import rights
from planner.services.audit.events import record_event

NAME = re.compile(r"[\w.@+-]{1,150}")
# Names under which the console itself acts.
RESERVED = ("system", "monitor", "scheduler", "simulator")


@transaction.atomic
def create_account(*, acting_user: User, username: str, email: str = "") -> tuple[User, str]:
    """Create an account without a role; return it and its first password, which is shown only this once.

    Parameters
    ----------
    acting_user
        A user with the right to manage all fleets.
    username
        1 to 150 letters, digits and ``@ . + - _``. The names under which the console acts are reserved.
    email
        Optional; checked when given.

    Returns
    -------
    tuple of User and str
        The account, and its random password in plain text.

    Raises
    ------
    NotAllowed
        When the acting user may not manage all fleets.
    Invalid
        For a name or address that cannot be used; `field` is ``username`` or ``email``.
    Conflict
        When an account of that name exists.
    """
    rights.require(acting_user, rights.MANAGE)
    if not NAME.fullmatch(username):
        raise Invalid("use 1 to 150 letters, digits and @ . + - _", field="username")
    if username.lower() in RESERVED:
        raise Invalid("this name is reserved: the console uses it in the audit trail", field="username")
    if email:
        try:
            validate_email(email)
        except ValidationError as error:
            raise Invalid("enter a valid e-mail address", field="email") from error
    password = secrets.token_urlsafe(12)
    try:
        with transaction.atomic():
            user = User.objects.create_user(username, email=email, password=password)
    except IntegrityError as error:
        raise Conflict(f"an account named {username!r} already exists", code="exists", field="username") from error
    record_event("account.created", acting_user=acting_user, fleet=None, subject=user, after={"username": username})
    return user, password


@transaction.atomic
def set_active(*, acting_user: User, user: User, active: bool) -> User:
    """Enable or disable sign-in. Disabling ends sessions and tokens at once. Accounts are never deleted.

    Parameters
    ----------
    acting_user
        A user with the right to manage all fleets.
    user
        The account of another user.
    active
        True enables sign-in, False disables it. The present value changes nothing and writes no audit event.

    Returns
    -------
    User
        The account as stored.

    Raises
    ------
    NotAllowed
        When the acting user may not manage all fleets.
    Conflict
        When the account is the acting user's own.
    """
    rights.require(acting_user, rights.MANAGE)
    if user.pk == acting_user.pk:
        raise Conflict("you cannot disable your own account; ask another administrator", code="own-account")
    user = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if user.is_active != active:
        user.is_active = active
        user.save(update_fields=["is_active"])
        record_event(
            "account.switched",
            acting_user=acting_user,
            fleet=None,
            subject=user,
            before={"active": not active},
            after={"active": active},
        )
    return user


@transaction.atomic
def grant_role(*, acting_user: User, user: User, role: str, fleet: Fleet | None = None) -> None:
    """Grant a role. A role that the user already has is not granted again and writes no audit event.

    Parameters
    ----------
    acting_user
        A user with the right to manage the fleet, or all fleets if `fleet` is None.
    user
        The user who gets the role.
    role
        A name in `rights.GROUPS`.
    fleet
        The fleet; None for all fleets.

    Raises
    ------
    NotAllowed
        When the acting user may not manage the fleet or, without `fleet`, all fleets.
    Invalid
        When no role has that name; `field` is ``role``.
    """
    group = _group(acting_user, role, fleet)
    if user.groups.filter(pk=group.pk).exists():
        return
    user.groups.add(group)
    record_event("access.granted", acting_user=acting_user, fleet=fleet, subject=user, after=_words(role, fleet))


@transaction.atomic
def remove_role(*, acting_user: User, user: User, role: str, fleet: Fleet | None = None) -> None:
    """Remove a role. The last administrator keeps theirs, because no one else could grant roles.

    Parameters
    ----------
    acting_user, user, role, fleet
        As in `grant_role`. A role that the user does not have changes nothing and writes no audit event.

    Raises
    ------
    NotAllowed
        When the acting user may not manage the fleet or, without `fleet`, all fleets.
    Invalid
        When no role has that name; `field` is ``role``.
    Conflict
        When it is the role ``admin`` on all fleets, and no other user can grant roles.
    """
    group = _group(acting_user, role, fleet)
    if not user.groups.filter(pk=group.pk).exists():
        return
    if fleet is None and role == "admin" and is_last_admin(user):
        raise Conflict(f"{user} is the last administrator; make another user administrator first", code="last-admin")
    user.groups.remove(group)
    record_event("access.removed", acting_user=acting_user, fleet=fleet, subject=user, before=_words(role, fleet))


def is_last_admin(user: User) -> bool:
    """Whether no other user can grant roles. Call it in the transaction that removes the role."""
    admins = User.objects.select_for_update(no_key=True).filter(is_active=True, groups__name="admin")
    if any(other.pk != user.pk for other in admins.order_by("pk")):
        return False
    return not User.objects.filter(is_active=True, is_superuser=True).exists()


def _group(acting_user: User, role: str, fleet: Fleet | None) -> Group:
    rights.require(acting_user, rights.MANAGE, fleet)
    if role not in rights.GROUPS:
        raise Invalid(f"choose among {', '.join(rights.GROUPS)}", field="role")
    if fleet is None:
        return Group.objects.get(name=role)
    return FleetRole.objects.select_related("group").get(fleet=fleet, role=role).group


def _words(role: str, fleet: Fleet | None) -> dict[str, str]:
    return {"role": role, "fleet": fleet.slug if fleet else "all fleets"}
