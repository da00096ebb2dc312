"""The audit trail."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from planner.models import Fleet
from planner.selectors.access import rights
from planner.selectors.audit.page import AuditFilter, audit_page
from planner.web.audit.forms import AuditFilterForm
from planner.web.core.view_helpers import find_fleet, fleet_render, person


@require_GET
@login_required
def audit(request: HttpRequest, slug: str | None = None) -> HttpResponse:
    """Filtered events, newest first; with a fleet in the address, events of that fleet."""
    fleet: Fleet | None = find_fleet(slug) if slug else None
    form = AuditFilterForm(request.GET, fleets=rights.visible_fleets(person(request)))
    among = None if rights.sees_all(person(request)) else rights.visible_fleets(person(request))
    if fleet is not None:
        del form.fields["fleet"]
    context: dict[str, Any] = {"form": form, "page": None, "more": ""}
    status = 200
    if form.is_valid():
        data = form.cleaned_data
        before = data.pop("before")
        page = audit_page(AuditFilter(**{"fleet": fleet, "among": among, **data}), before)
        kept = {k: v for k, v in request.GET.items() if v and k != "before"}
        more = urlencode({**kept, "before": page.next_before}) if page.next_before else ""
        context |= {"page": page, "more": more, "before": before, "filters": urlencode(kept)}
    else:
        status = 400
    if fleet is not None:
        return fleet_render(request, "audit/audit.html", fleet, context, status)
    return render(request, "audit/audit.html", context, status=status)
