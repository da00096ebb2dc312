"""Immediate fallback to Flat-LB."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from planner.services.rollouts import fallback
from planner.web.core.view_helpers import act, action, find_fleet, person


@action
def fall_back(request: HttpRequest, slug: str) -> HttpResponse:
    """Send all traffic of the fleet by Flat-LB, now."""
    found = find_fleet(slug)
    # Repaired, never refused: nothing that somebody types keeps a fleet from falling back.
    reason = request.POST.get("reason", "").replace("\0", "")[:1000]

    def call() -> str:
        before = found.table_version
        fallback.fall_back(acting_user=person(request), fleet=found, reason=reason)
        found.refresh_from_db()
        if found.table_version == before:
            return f"Flat-LB was live on {found} already; nothing changed (routing table version {before})."
        return f"Fell back: all keys of {found} are routed by Flat-LB, routing table version {found.table_version}."

    return act(request, call, back=reverse("fleet", args=[slug]))
