"""The page of API tokens."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from planner.errors import Refused
from planner.models import ApiToken
from planner.selectors.access import rights
from planner.services.access.tokens import create_token, revoke_token, rotate_token, tokens_of
from planner.web.access.forms import TokenForm
from planner.web.core.view_helpers import action, person, sentence


@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def tokens(request: HttpRequest) -> HttpResponse:
    """List tokens and create one. The secret is only in the response to the form."""
    fleets = rights.visible_fleets(person(request))
    form = TokenForm(request.POST or None, fleets=fleets)
    secret, made, status = "", None, 200
    if request.method == "POST":
        status = 400
        if form.is_valid():
            data = form.cleaned_data
            try:
                made, secret = create_token(
                    acting_user=person(request),
                    name=data["name"],
                    scopes=data["scopes"],
                    fleet=data["fleet"],
                    expires_at=form.expires_at(timezone.now()),
                    allowed_networks=data["allowed_networks"],
                )
                form, status = TokenForm(fleets=fleets), 201
            except Refused as refusal:
                form.add_error(refusal.field if refusal.field in form.fields else None, sentence(refusal.message))
                status = refusal.status
    return _page(request, form, secret, made, status)


def _page(request: HttpRequest, form: TokenForm, secret: str, made: ApiToken | None, status: int) -> HttpResponse:
    context = {
        "form": form,
        "tokens": tokens_of(person(request)),
        "secret": secret,
        "made": made,
        "now": timezone.now(),
    }
    return render(request, "access/tokens.html", context, status=status)


@action
@never_cache
def rotate(request: HttpRequest, pk: int) -> HttpResponse:
    """Replace the secret of a token. The old secret ends at once, or after 24 h if the form says so."""
    token = get_object_or_404(tokens_of(person(request)), pk=pk)
    overlap = timedelta(days=1) if request.POST.get("overlap") else timedelta()
    form = TokenForm(fleets=rights.visible_fleets(person(request)))
    try:
        made, secret = rotate_token(acting_user=person(request), token=token, overlap=overlap)
    except Refused as refusal:
        messages.error(request, sentence(refusal.message))
        return redirect("tokens")
    return _page(request, form, secret, made, 201)


@action
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Revoke a token."""
    token = get_object_or_404(tokens_of(person(request)), pk=pk)
    revoke_token(acting_user=person(request), token=token)
    messages.success(request, f"Token {token.name} is revoked. Requests with it are refused from now on.")
    return redirect("tokens")
