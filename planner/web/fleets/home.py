"""The home page."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from planner.selectors.access import rights
from planner.selectors.fleets.home_page import fleets_with_live, open_jobs, waiting_for
from planner.web.core.view_helpers import person


@require_GET
@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Fleets with their live plans, plans that wait for the user, and open jobs."""
    visible = rights.visible_fleets(person(request))
    context = {
        "fleets": list(fleets_with_live(visible)),
        "waiting": waiting_for(person(request), rights.fleets_with(person(request), rights.APPROVE)),
        "jobs": list(open_jobs().filter(fleet__in=visible)[:20]),
    }
    return render(request, "fleets/home.html", context)
