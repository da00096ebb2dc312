"""Pages of break-glass: open, close and review."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from planner.models import BreakGlass
from planner.selectors.access import rights
from planner.selectors.access.rights import open_break_glass_of
from planner.services.access import break_glass
from planner.services.access.break_glass import close_break_glass, open_break_glass, review_break_glass
from planner.web.access.forms import BreakGlassForm
from planner.web.core.view_helpers import act, action, fill, find_fleet, fleet_render, person, text

ROWS = 50


@require_http_methods(["GET", "POST"])
@login_required
def break_glass_page(request: HttpRequest, slug: str) -> HttpResponse:
    """Break-glass of a fleet, and the form that opens it."""
    fleet = find_fleet(slug)
    form = BreakGlassForm(request.POST or None)
    status = 200
    if request.method == "POST":

        def call(data: dict[str, Any]) -> str:
            row = open_break_glass(acting_user=person(request), fleet=fleet, **data)
            messages.warning(
                request,
                f"Break-glass is open until {row.expires_at:%H:%M} UTC. All actions are audited and reviewed.",
            )
            return _address(slug)

        answer = fill(request, form, call)
        if isinstance(answer, HttpResponse):
            return answer
        status = answer
    rows = list(fleet.break_glass_periods.select_related("opened_by", "reviewed_by")[:ROWS])
    reviews = rights.may(person(request), rights.APPROVE, fleet) or rights.may(person(request), rights.MANAGE, fleet)
    context = {
        "form": form,
        "rows": rows,
        "now": timezone.now(),
        "may_review": reviews,
        "open_here": open_break_glass_of(person(request), fleet),
        "hours": break_glass.DURATION.total_seconds() / 3600,
    }
    return fleet_render(request, "access/break_glass.html", fleet, context, status)


def _address(slug: str) -> str:
    return reverse("break-glass", args=[slug])


def _row(slug: str, pk: int) -> BreakGlass:
    return get_object_or_404(BreakGlass.objects.select_related("fleet"), fleet__slug=slug, pk=pk)


@action
def close(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Close break-glass.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    pk
        Id of the row.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """

    def call() -> str:
        close_break_glass(acting_user=person(request), break_glass=_row(slug, pk))
        return "Break-glass is closed. Another person must review it."

    return act(request, call, back=_address(slug))


@action
def review(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Record the findings of the review.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    pk
        Id of the row.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """

    def call() -> str:
        review_break_glass(acting_user=person(request), break_glass=_row(slug, pk), review=text(request, "review"))
        return "The review is recorded."

    return act(request, call, back=_address(slug))
