"""Pages that import and show workloads."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from planner.formatting import number, percentage
from planner.models import Workload
from planner.selectors.access import rights
from planner.selectors.fleets.page import workload_page
from planner.services.workloads import imports
from planner.web.core.permissions import needs
from planner.web.core.view_helpers import fill, find_fleet, fleet_render, person
from planner.web.workloads.forms import ImportForm


@require_http_methods(["GET", "POST"])
@login_required
@needs(rights.PLAN)
def new_workload(request: HttpRequest, slug: str) -> HttpResponse:
    """Import a file. If it has an error, nothing is stored and the message names file, row and field."""
    fleet = find_fleet(slug)
    form = ImportForm(request.POST or None, request.FILES or None)
    status = 200
    if request.method == "POST":
        limit = settings.UPLOAD_MAX_BYTES // 2**20
        if getattr(request, "upload_too_large", False):
            form = ImportForm()
            form.too_large = f"The file is larger than {limit} MiB. Use the command import_workload."  # type: ignore[attr-defined]
            status = 413
        else:
            form = ImportForm(request.POST, request.FILES)
            answer = fill(request, form, lambda data: _import(request, fleet, data))
            if isinstance(answer, HttpResponse):
                return answer
            status = answer
    context = {"form": form, "title": "Import workload", "limit_mib": settings.UPLOAD_MAX_BYTES // 2**20}
    return fleet_render(request, "workloads/import.html", fleet, context, status)


def _import(request: HttpRequest, fleet: Any, data: dict[str, Any]) -> str:
    file = data.pop("file")
    made = imports.import_workload(acting_user=person(request), fleet=fleet, file=file, file_name=file.name, **data)
    requests = f" and {made.request_count:,} requests" if made.request_count else ""
    messages.success(request, f"Imported {made}: {made.key_count:,} keys{requests}.")
    return reverse("workload", args=[fleet.slug, made.pk])


@require_GET
@login_required
def workload(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Figures, notices and provenance of a workload.

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
    related = ("fleet__serving_profile", "rates", "trace", "created_by")
    found = get_object_or_404(Workload.objects.select_related(*related), fleet__slug=slug, pk=pk)
    page = workload_page(found)
    context = {**page, "shape": _shape(found.shape)}
    return fleet_render(request, "workloads/workload.html", found.fleet, context)


def _shape(shape: dict[str, Any]) -> list[tuple[str, str]]:
    """Labels and values of a rate shape."""
    return [
        ("Active keys", number(shape.get("active_keys"))),
        ("Gini coefficient", number(shape.get("gini"))),
        ("Busiest 4% of keys", f"{percentage(shape.get('top_4pct_share'))} of requests"),
        ("Busiest key", f"{percentage(shape.get('largest_share'), 2)} of requests"),
        ("Keys with half of the requests", f"{number(shape.get('keys_for_half'))} keys"),
        ("Keys with 90% of the requests", f"{number(shape.get('keys_for_90pct'))} keys"),
    ]
