"""Immediate fallback to Flat-LB."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from planner.services.rollouts import fallback
from planner.web.core.view_helpers import act, action, find_fleet, person


@action
def fall_back(request: HttpRequest, slug: str) -> HttpResponse:
    """Route all keys of a fleet by Flat-LB at once."""
    found = find_fleet(slug)
    # The reason is repaired and never refused: a text must not prevent a fallback.
    reason = request.POST.get("reason", "").replace("\0", "")[:1000]

    def call() -> str:
        before = found.table_version
        fallback.fall_back(acting_user=person(request), fleet=found, reason=reason)
        found.refresh_from_db()
        if found.table_version == before:
            return f"Flat-LB is already live on {found}. Nothing changed (table version {before})."
        return f"Fell back: all keys of {found} are routed by Flat-LB (table version {found.table_version})."

    return act(request, call, back=reverse("fleet", args=[slug]))
