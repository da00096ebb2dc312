"""The explanation of a plan: placement of a key, load of a destination, sensitivity to inputs."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from planner.models import Plan
from planner.selectors.access import rights
from planner.selectors.plans.explain_page import explain_page
from planner.services.plans import studies
from planner.web.core.permissions import fragment, needs
from planner.web.core.view_helpers import act, action, find_plan, fleet_render, person


@require_GET
@login_required
def explain(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Show the placement of a key, the load of a destination, and the study.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    number
        Number of the plan in the fleet.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = find_plan(slug, number)
    asked = {name: request.GET.get(name, "") for name in ("key", "destination", "head", "metric")}
    page = explain_page(found, **asked)
    return fleet_render(
        request, "plans/explain.html", found.fleet, page, page["fault"].status if page["fault"] else 200
    )


@action
@needs(rights.PLAN)
def order_study(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Order the sensitivity study.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    number
        Number of the plan in the fleet.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = find_plan(slug, number)

    def call() -> str:
        studies.order_study(acting_user=person(request), plan=found)
        return f"The study of {found} is ordered. It starts when a worker is free."

    return act(request, call, back=reverse("plan-explain", args=[slug, number]) + "#sensitivity")


@require_GET
@fragment
def study_progress(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Progress of the study. When it ends the page reloads.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    number
        Number of the plan in the fleet.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = get_object_or_404(Plan.objects.select_related("fleet"), fleet__slug=slug, number=number)
    job = studies.open_study(found)
    response = render(request, "plans/study_progress.html", {"plan": found, "fleet": found.fleet, "job": job})
    if job is None:
        response["HX-Refresh"] = "true"
    return response
