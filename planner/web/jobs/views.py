"""The panel of jobs, and the cancellation of a job."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_GET

from planner.models import Job
from planner.selectors.fleets.home_page import recent_jobs
from planner.services.jobs import cancellation
from planner.web.core.permissions import fragment
from planner.web.core.view_helpers import act, action, find_fleet, person


@require_GET
@fragment
def jobs_panel(request: HttpRequest, slug: str) -> HttpResponse:
    """The jobs of a fleet, polled while a job is open. When the last job ends the page reloads."""
    found = find_fleet(slug)
    rows = recent_jobs(found)
    response = render(request, "jobs/jobs.html", {"fleet": found, "jobs": rows})
    if not any(job.is_open for job in rows):
        response["HX-Refresh"] = "true"
    return response


@action
def cancel_job(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Cancel a job of a fleet.

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
    found = get_object_or_404(Job, fleet__slug=slug, pk=pk)

    def call() -> str:
        return f"{cancellation.cancel_job(acting_user=person(request), job=found)} was cancelled."

    return act(request, call, back=reverse("fleet", args=[slug]) + "#jobs")
