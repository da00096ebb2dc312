"""Accounts and roles on all fleets, or on one fleet."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from planner.errors import Refused
from planner.models import Fleet
from planner.selectors.access import rights
from planner.selectors.access.page import accounts_page, roles_page
from planner.services.access import roles
from planner.services.access.roles import remove_role
from planner.web.access.forms import AccountForm
from planner.web.core.permissions import needs
from planner.web.core.view_helpers import act, action, find_fleet, fleet_render, person, sentence, text


@require_GET
@login_required
@needs(rights.MANAGE)
def access(request: HttpRequest, slug: str | None = None) -> HttpResponse:
    """Roles on a fleet; without a fleet in the address, all accounts and their roles on all fleets."""
    if slug is None:
        return _all(request, AccountForm())
    fleet = find_fleet(slug)
    return fleet_render(request, "access/fleet.html", fleet, {**roles_page(fleet), "roles": list(rights.GROUPS)})


def _all(request: HttpRequest, form: AccountForm, status: int = 200, **made: Any) -> HttpResponse:
    context = {**accounts_page(), "roles": list(rights.GROUPS), "form": form, **made}
    return render(request, "access/all.html", context, status=status)


@require_POST
@login_required
@needs(rights.MANAGE)
@never_cache
def create(request: HttpRequest) -> HttpResponse:
    """Create an account. The first password is only in the response to the form."""
    form = AccountForm(request.POST)
    if not form.is_valid():
        return _all(request, form, 400)
    try:
        made, password = roles.create_account(acting_user=person(request), **form.cleaned_data)
    except Refused as refusal:
        form.add_error(refusal.field if refusal.field in form.fields else None, sentence(refusal.message))
        return _all(request, form, refusal.status)
    return _all(request, AccountForm(), 201, made=made, password=password)


@action
@needs(rights.MANAGE)
def switch(request: HttpRequest, pk: int) -> HttpResponse:
    """Activate or deactivate an account."""
    user = get_object_or_404(User, pk=pk)
    active = request.POST.get("active") == "1"

    def call() -> str:
        roles.set_active(acting_user=person(request), user=user, active=active)
        return (
            f"{user} is active and may sign in." if active else f"{user} is inactive. Sessions and tokens have ended."
        )

    return act(request, call, back=reverse("access"))


@action
@needs(rights.MANAGE)
def role(request: HttpRequest, slug: str | None = None) -> HttpResponse:
    """Add or remove a role."""
    fleet: Fleet | None = find_fleet(slug) if slug else None
    back = reverse("fleet-access", args=[slug]) if slug else reverse("access")

    def call() -> str:
        user = get_object_or_404(User, username=text(request, "username", 150))
        wanted = text(request, "role", 20)
        where = f"on {fleet}" if fleet else "on all fleets"
        if request.POST.get("take"):
            remove_role(acting_user=person(request), user=user, role=wanted, fleet=fleet)
            return f"{user} no longer has the role {wanted} {where}."
        roles.grant_role(acting_user=person(request), user=user, role=wanted, fleet=fleet)
        return f"{user} has the role {wanted} {where}."

    return act(request, call, back=back)


def locked_out(request: HttpRequest, credentials: dict[str, Any] | None = None, *args: Any) -> HttpResponse:
    """Answer a sign-in that is locked after too many failed attempts, with the time to wait.

    Parameters
    ----------
    request
        The request.
    credentials
        The failed credentials.
    *args
        Further positional values.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    minutes = round(settings.AXES_COOLOFF_TIME * 60)
    return render(request, "registration/locked_out.html", {"minutes": minutes}, status=429)
