"""Sign-in by OpenID Connect (optional, through allauth). New accounts have the roles that the provider names, or none.

An account of the provider is never joined to a local account by its e-mail address: a user who can set an address at
the provider could take over a local account. The claim `CACHEROUTE_OIDC_ROLES_CLAIM` names groups of this console. At
every sign-in they replace the roles of the account, because the provider then manages the roles.
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
    """Steps between the provider's response and the local session."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Every user of the provider gets an account. Its roles are decided separately."""
        return True

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Create the account without a form."""
        return True

    def populate_user(self, request: HttpRequest, sociallogin: SocialLogin, data: dict[str, Any]) -> User:
        """Rename a user whose name is reserved for the console.

        Parameters
        ----------
        request
            The request.
        sociallogin
            The sign-in at the provider.
        data
            Values of the provider.

        Returns
        -------
        User
            The account.
        """
        user: User = super().populate_user(request, sociallogin, data)
        if user.username.lower() in roles.RESERVED:
            user.username = f"{user.username}-person"
        return user

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Create the account at the first sign-in, and audit it.

        Parameters
        ----------
        request
            The request.
        sociallogin
            The sign-in at the provider.
        form
            Not used.

        Returns
        -------
        User
            The account.
        """
        user: User = super().save_user(request, sociallogin, form)
        record_event("account.created", acting_user=None, fleet=None, subject=user, after={"by": "single sign-on"})
        return user

    def on_authentication_error(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Show no details of the provider on the page; they are in the log.

        Parameters
        ----------
        request
            The request.
        *args
            Further positional values.
        **kwargs
            Further named values.
        """


def renew_roles(sender: Any, request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Replace the roles of the account by the roles that the provider names, at each sign-in.

    Parameters
    ----------
    sender
        Sender of the signal.
    request
        The request.
    user
        The account.
    **kwargs
        Further named values.
    """
    login: SocialLogin | None = kwargs.get("sociallogin")
    claim = settings.OIDC_ROLES_CLAIM
    if login is None or not claim:
        return
    claims = login.account.extra_data
    claims = {**claims.get("id_token", {}), **claims.get("userinfo", claims)} if isinstance(claims, dict) else {}
    named = claims.get(claim) or []
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
    """Redirect a failed single sign-on to the sign-in page, with a message."""
    messages.error(request, "Single sign-on failed or was cancelled. Try again, or sign in with a password.")
    return redirect("login")
