"""Signing in by OpenID Connect (optional, through allauth): accounts come without roles unless the provider names some.

An account of the provider is never joined to a local one by its e-mail address: whoever may set an address there would
take over an account here. Roles that the provider names (claim `CACHEROUTE_OIDC_ROLES_CLAIM`) are those of the groups
of this console, and replace those that the account has at every sign-in: the provider is where they are kept then.
"""

from __future__ import annotations

from typing import Any

import structlog
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from planner.models import FleetRole
from planner.selectors.access import rights
from planner.services.access import roles
from planner.services.audit.events import record_event

log = structlog.get_logger(__name__)


class SingleSignOn(DefaultSocialAccountAdapter):
    """What happens between the provider's answer and the session here."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Whoever the provider knows has an account here; what it opens is another matter."""
        return True

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """No form in between."""
        return True

    def populate_user(self, request: HttpRequest, sociallogin: SocialLogin, data: dict[str, Any]) -> User:
        """Whoever is called as the console itself at the provider is called otherwise here."""
        user: User = super().populate_user(request, sociallogin, data)
        if user.username.lower() in roles.RESERVED:
            user.username = f"{user.username}-person"
        return user

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """The first sign-in makes the account, and is part of the trail."""
        user: User = super().save_user(request, sociallogin, form)
        record_event("account.created", acting_user=None, fleet=None, subject=user, after={"by": "single sign-on"})
        return user

    def on_authentication_error(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Nothing but what the page says: details of the provider are for the log."""


def renew_roles(sender: Any, request: HttpRequest, user: User, **kwargs: Any) -> None:
    """At each sign-in by the provider: the roles that it names, and no others."""
    login: SocialLogin | None = kwargs.get("sociallogin")
    claim = settings.OIDC_ROLES_CLAIM
    if login is None or not claim:
        return
    told = login.account.extra_data
    told = {**told.get("id_token", {}), **told.get("userinfo", told)} if isinstance(told, dict) else {}
    named = told.get(claim) or []
    wanted = {str(name) for name in ([named] if isinstance(named, str) else named)}
    with transaction.atomic():
        known = _role_names()
        held = set(user.groups.values_list("name", flat=True)) & known
        wanted &= known
        if "admin" in held - wanted and roles.is_last_admin(user):
            log.warning("last_admin_kept", username=user.get_username())
            wanted.add("admin")
        for action, names in (("access.granted", wanted - held), ("access.removed", held - wanted)):
            for group in Group.objects.filter(name__in=names).select_related("fleet_role__fleet").order_by("name"):
                role = getattr(group, "fleet_role", None)
                if action == "access.granted":
                    user.groups.add(group)
                else:
                    user.groups.remove(group)
                record_event(
                    action,
                    acting_user=None,
                    fleet=role.fleet if role else None,
                    subject=user,
                    after={"group": group.name, "by": "single sign-on"},
                )


def _role_names() -> set[str]:
    return {*rights.GROUPS, *FleetRole.objects.values_list("group__name", flat=True)}


def not_signed_in(request: HttpRequest) -> HttpResponse:
    """Where everything that goes wrong on the way ends: the sign-in page, which says so."""
    messages.error(request, "Single sign-on did not work or was cancelled. Try again, or sign in with a password.")
    return redirect("login")
