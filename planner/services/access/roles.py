"""Accounts and roles: who may do what, on all fleets or on one. Passwords are shown once and never stored as such."""

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
# Names by which the console acts.
RESERVED = ("system", "monitor", "scheduler", "simulator")


@transaction.atomic
def create_account(*, acting_user: User, username: str, email: str = "") -> tuple[User, str]:
    """A new account without any role, and its first password: the only time that it is shown."""
    rights.require(acting_user, rights.MANAGE)
    if not NAME.fullmatch(username):
        raise Invalid("use 1 to 150 letters, digits and @ . + - _", field="username")
    if username.lower() in RESERVED:
        raise Invalid("the console itself acts by this name in the audit trail", field="username")
    if email:
        try:
            validate_email(email)
        except ValidationError as error:
            raise Invalid("this is no e-mail address", field="email") from error
    password = secrets.token_urlsafe(12)
    try:
        with transaction.atomic():
            user = User.objects.create_user(username, email=email, password=password)
    except IntegrityError as error:
        raise Conflict(f"there is an account {username!r} already", code="exists", field="username") from error
    record_event("account.created", acting_user=acting_user, fleet=None, subject=user, after={"username": username})
    return user, password


@transaction.atomic
def set_active(*, acting_user: User, user: User, active: bool) -> User:
    """Let an account sign in, or not any more: its sessions and tokens end at once. Accounts are never deleted."""
    rights.require(acting_user, rights.MANAGE)
    if user.pk == acting_user.pk:
        raise Conflict("nobody switches off the account that they act with", code="own-account")
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
    """Give a role on one fleet, or on all (`fleet` None: only who manages all fleets may)."""
    group = _group(acting_user, role, fleet)
    if user.groups.filter(pk=group.pk).exists():
        return
    user.groups.add(group)
    record_event("access.granted", acting_user=acting_user, fleet=fleet, subject=user, after=_words(role, fleet))


@transaction.atomic
def remove_role(*, acting_user: User, user: User, role: str, fleet: Fleet | None = None) -> None:
    """Take a role away. The last person who manages all fleets keeps it, or nobody could ever give one again."""
    group = _group(acting_user, role, fleet)
    if not user.groups.filter(pk=group.pk).exists():
        return
    if fleet is None and role == "admin" and is_last_admin(user):
        raise Conflict(f"{user} is the last administrator", code="last-admin")
    user.groups.remove(group)
    record_event("access.removed", acting_user=acting_user, fleet=fleet, subject=user, before=_words(role, fleet))


def is_last_admin(user: User) -> bool:
    """Whether nobody else could give a role any more. Call it in the transaction that takes the role."""
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
