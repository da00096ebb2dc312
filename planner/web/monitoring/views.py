"""The live page of a fleet: router telemetry and the validated range."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from planner.selectors.monitoring.live_page import live_page, live_state
from planner.web.core.permissions import fragment
from planner.web.core.view_helpers import find_fleet, fleet_render


@require_GET
@login_required
def live(request: HttpRequest, slug: str) -> HttpResponse:
    """Figures of each arm over time, drift checks, and the table version of each router."""
    fleet = find_fleet(slug)
    return fleet_render(request, "monitoring/live.html", fleet, live_page(fleet))


@require_GET
@fragment
def state(request: HttpRequest, slug: str) -> HttpResponse:
    """The texts of the live page, polled every 15 s."""
    fleet = find_fleet(slug)
    return render(request, "monitoring/live_state.html", {"fleet": fleet, **live_state(fleet)})
