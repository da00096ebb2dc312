"""Pages of fleets, destinations and policies."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from planner.selectors.access import rights
from planner.selectors.fleets.page import fleet_page
from planner.services.fleets import fleets
from planner.services.fleets.policy import POLICY_FIELDS
from planner.web.core.permissions import needs
from planner.web.core.view_helpers import fill, find_fleet, fleet_render, person
from planner.web.fleets.forms import FleetForm, PolicyForm, ServingForm


@require_GET
@login_required
def fleet(request: HttpRequest, slug: str) -> HttpResponse:
    """The page of a fleet, with up to 100 matching destinations from the position `from`."""
    found = find_fleet(slug)
    start = request.GET.get("from", "")
    position = int(start) if start.isascii() and start.isdigit() and len(start) < 10 else 0
    named = request.GET.get("destination", "").replace("\0", "").strip()[:500]
    return fleet_render(request, "fleets/fleet.html", found, fleet_page(found, named, position))


@require_http_methods(["GET", "POST"])
@login_required
@needs(rights.MANAGE)
def new_fleet(request: HttpRequest) -> HttpResponse:
    """Create a fleet."""
    form = FleetForm(request.POST or None)
    status = 200
    if request.method == "POST":
        answer = fill(request, form, lambda data: _create(request, data))
        if isinstance(answer, HttpResponse):
            return answer
        status = answer
    return render(request, "form.html", {"form": form, "title": "New fleet", "submit": "Create fleet"}, status=status)


def _create(request: HttpRequest, data: dict[str, Any]) -> str:
    data.pop("expected_version")
    made = fleets.create_fleet(acting_user=person(request), **data)
    messages.success(request, f"{made} was created. Flat-LB is live.")
    return reverse("fleet", args=[made.slug])


@require_http_methods(["GET", "POST"])
@login_required
@needs(rights.MANAGE)
def policy(request: HttpRequest, slug: str) -> HttpResponse:
    """Change the policy of a fleet."""
    found = find_fleet(slug)
    shown: dict[str, Any] = {field: getattr(found, field) for field in POLICY_FIELDS}
    for listed in ("canary_weights", "canary_holds_s"):
        shown[listed] = ", ".join(f"{value:g}" for value in shown[listed])
    form = PolicyForm(request.POST or None, initial={**shown, "expected_version": found.version})
    status = 200
    if request.method == "POST":

        def change(data: dict[str, Any]) -> str:
            fleets.change_policy(acting_user=person(request), fleet=found, **data)
            messages.success(
                request, "The policy was changed. Evidence under the old policy is stale: evaluate open plans again."
            )
            return reverse("fleet", args=[slug])

        answer = fill(request, form, change)
        if isinstance(answer, HttpResponse):
            return answer
        status = answer
    context = {"form": form, "title": "Policy", "submit": "Change policy"}
    return fleet_render(request, "form.html", found, context, status)


@require_http_methods(["GET", "POST"])
@login_required
@needs(rights.MANAGE)
def serving_profile(request: HttpRequest, slug: str) -> HttpResponse:
    """Change the serving profile of a fleet."""
    found = find_fleet(slug)
    shown = {"engine_profile": found.serving_profile.engine_profile, "expected_version": found.version}
    form = ServingForm(request.POST or None, initial=shown)
    status = 200
    if request.method == "POST":

        def change(data: dict[str, Any]) -> str:
            fleets.change_serving_profile(acting_user=person(request), fleet=found, **data)
            messages.success(
                request, "The serving profile was changed. Earlier calibrations and replays are stale: calibrate again."
            )
            return reverse("fleet", args=[slug])

        answer = fill(request, form, change)
        if isinstance(answer, HttpResponse):
            return answer
        status = answer
    context = {"form": form, "title": "Serving profile", "submit": "Change serving profile"}
    return fleet_render(request, "form.html", found, context, status)
