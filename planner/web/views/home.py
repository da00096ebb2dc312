"""The first page, the health check, and what a locked-out person reads."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from planner.selectors.access import rights
from planner.selectors.fleets.home_page import fleets_with_live, open_jobs, waiting_for
from planner.web.doors import person


@require_GET
@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Fleets with what is live, what waits for me, what runs."""
    visible = rights.visible_fleets(person(request))
    context = {
        "fleets": list(fleets_with_live(visible)),
        "waiting": waiting_for(person(request), rights.fleets_with(person(request), rights.APPROVE)),
        "jobs": list(open_jobs().filter(fleet__in=visible)[:20]),
    }
    return render(request, "home.html", context)


def locked_out(request: HttpRequest, credentials: dict[str, Any] | None = None, *args: Any) -> HttpResponse:
    """Too many wrong passwords: say so, and for how long."""
    minutes = round(settings.AXES_COOLOFF_TIME * 60)
    return render(request, "registration/locked_out.html", {"minutes": minutes}, status=429)
