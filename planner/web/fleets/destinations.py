"""Pages that add destinations to a fleet and change their speed and state."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from planner.models import Destination
from planner.selectors.access import rights
from planner.services.fleets.destinations import add_destinations, change_destination
from planner.web.core.permissions import needs
from planner.web.core.view_helpers import act, action, expected_version, fill, find_fleet, fleet_render, person, text
from planner.web.fleets.forms import AddDestinationsForm, SpeedForm


@require_http_methods(["GET", "POST"])
@login_required
@needs(rights.MANAGE)
def add(request: HttpRequest, slug: str) -> HttpResponse:
    """Add destinations to a fleet, one per line."""
    found = find_fleet(slug)
    form = AddDestinationsForm(request.POST or None, initial={"expected_version": found.version})
    status = 200
    if request.method == "POST":

        def call(data: dict[str, Any]) -> str:
            added = add_destinations(acting_user=person(request), fleet=found, **data)
            what = f"{added[0].name} was" if len(added) == 1 else f"{len(added)} destinations were"
            messages.success(
                request,
                f"{what} added. Flat-LB uses new destinations at once. To place warm keys there, order a new plan.",
            )
            return _table(slug)

        answer = fill(request, form, call)
        if isinstance(answer, HttpResponse):
            return answer
        status = answer
    context = {"form": form, "title": "Add destinations", "submit": "Add destinations"}
    return fleet_render(request, "form.html", found, context, status)


@require_http_methods(["GET", "POST"])
@login_required
@needs(rights.MANAGE)
def speed(request: HttpRequest, slug: str, index: int) -> HttpResponse:
    """Change the speed of a destination.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    index
        Index of the destination in the fleet.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = find_fleet(slug)
    row = get_object_or_404(Destination, fleet=found, index=index)
    form = SpeedForm(request.POST or None, initial={"weight": row.weight, "expected_version": row.version})
    status = 200
    if request.method == "POST":

        def change(data: dict[str, Any]) -> str:
            changed = change_destination(acting_user=person(request), destination=row, **data)
            if changed.weight == row.weight:
                messages.info(request, f"The speed of {row.name} is already {row.weight:g}. Nothing changed.")
            else:
                messages.success(
                    request,
                    f"The speed of {row.name} is now {changed.weight:g}. Plans for another speed cannot be deployed: "
                    "order new plans.",
                )
            return _table(slug)

        answer = fill(request, form, change)
        if isinstance(answer, HttpResponse):
            return answer
        status = answer
    context = {"form": form, "title": f"Speed of {row.name}", "submit": "Change speed"}
    return fleet_render(request, "form.html", found, context, status)


@action
def state(request: HttpRequest, slug: str, index: int) -> HttpResponse:
    """Mark a destination up, draining or down.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    index
        Index of the destination in the fleet.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = get_object_or_404(Destination, fleet__slug=slug, index=index)

    def call() -> str:
        row = change_destination(
            acting_user=person(request),
            destination=found,
            state=text(request, "state"),
            expected_version=expected_version(request),
        )
        return f"{row.name} is {row.state}. Routers get the change at their next poll."

    return act(request, call, back=_table(slug))


def _table(slug: str) -> str:
    return reverse("fleet", args=[slug]) + "#destinations"
