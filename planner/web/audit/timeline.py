"""The plans that were live on a fleet with their approvals, and the audit trail as a file."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from planner.models import Fleet
from planner.selectors.access import rights
from planner.selectors.audit.page import AuditFilter, matching
from planner.selectors.audit.timeline import governing_events, live_at
from planner.services.audit.export import lines, record_export
from planner.web.audit.forms import AuditFilterForm, MomentForm
from planner.web.core.view_helpers import find_fleet, fleet_render, person

TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}


@require_GET
@login_required
def timeline(request: HttpRequest, slug: str) -> HttpResponse:
    """The governing events of a fleet, and what was live at a given time (default: now)."""
    fleet = find_fleet(slug)
    form = MomentForm(request.GET or None)
    asked, before, status = None, None, 200
    if form.is_bound:
        if form.is_valid():
            asked, before = form.cleaned_data["at"], form.cleaned_data["before"]
        else:
            status = 400
    moment = asked or timezone.now()
    events, more = governing_events(fleet, before, asked)
    context: dict[str, Any] = {
        "form": form,
        "asked": asked,
        "live": live_at(fleet, moment),
        "events": events,
        "more": more,
        "before": before,
    }
    return fleet_render(request, "audit/timeline.html", fleet, context, status)


@require_GET
@login_required
def export(request: HttpRequest, form: str, slug: str | None = None) -> HttpResponse | StreamingHttpResponse:
    """Stream the events that match the filters as CSV or JSON lines.

    Parameters
    ----------
    request
        The request.
    form
        The format of the file, `csv` or `jsonl`.
    slug
        Slug of the fleet.

    Returns
    -------
    HttpResponse | StreamingHttpResponse
        The file, or 400 for an invalid filter.
    """
    fleet: Fleet | None = find_fleet(slug) if slug else None
    filters = AuditFilterForm(request.GET, fleets=rights.visible_fleets(person(request)))
    # An unknown filter is refused: an unfiltered file would look like a filtered one.
    if not filters.is_valid() or set(request.GET) - set(filters.fields):
        known = ", ".join(sorted(filters.fields))
        return HttpResponse(
            f"a filter is unknown or invalid; known filters: {known}\n", status=400, content_type="text/plain"
        )
    data = dict(filters.cleaned_data)
    data.pop("before")
    among = None if rights.sees_all(person(request)) else rights.visible_fleets(person(request))
    wanted = AuditFilter(**{**data, "fleet": fleet or data["fleet"], "among": among})
    given = {name: str(value) for name, value in data.items() if value}
    record_export(acting_user=person(request), fleet=fleet, form=form, filters=given)
    response = StreamingHttpResponse(lines(matching(wanted), form), content_type=TYPES[form])
    name = f"audit-{slug or 'all'}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}.{form}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
