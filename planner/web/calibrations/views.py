"""Pages that record, import, simulate and show calibrations, and fit engine constants to them."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from planner.models import Calibration, Fleet, Job
from planner.selectors.access import rights
from planner.selectors.calibrations.page import calibration_jobs, calibration_page
from planner.services.calibrations import calibrations, fits, sweep_imports
from planner.web.calibrations.forms import CalibrationForm, FitForm, SimulateForm, SweepForm
from planner.web.core.permissions import fragment, needs
from planner.web.core.view_helpers import fill, find_fleet, fleet_render, person

OURS = (Job.Kind.CALIBRATE, Job.Kind.FIT)


def address(calibration: Calibration) -> str:
    """The page of a calibration."""
    return reverse("calibration", args=[calibration.fleet.slug, calibration.pk])


def _forms_page(
    request: HttpRequest, fleet: Fleet, status: int = 200, *, too_large: str = "", **filled: forms.Form
) -> HttpResponse:
    """The page of the three calibration forms. A submitted form keeps its values."""
    context = {
        "form": filled.get("form") or CalibrationForm(),
        "sweep_form": filled.get("sweep_form") or SweepForm(prefix="sweep"),
        "simulate_form": filled.get("simulate_form") or SimulateForm(fleet=fleet, prefix="simulate"),
        "open_jobs": calibration_jobs(fleet),
        "too_large": too_large,
    }
    return fleet_render(request, "calibrations/new.html", fleet, context, status)


@require_http_methods(["GET", "POST"])
@login_required
@needs(rights.PLAN)
def new_calibration(request: HttpRequest, slug: str) -> HttpResponse:
    """Record measured figures."""
    fleet = find_fleet(slug)
    if request.method != "POST":
        return _forms_page(request, fleet)
    form = CalibrationForm(request.POST)

    def record(data: dict[str, Any]) -> str:
        made = calibrations.record_calibration(acting_user=person(request), fleet=fleet, **data)
        messages.success(request, f"Recorded: {made}.")
        return address(made)

    answer = fill(request, form, record)
    return answer if isinstance(answer, HttpResponse) else _forms_page(request, fleet, answer, form=form)


@require_http_methods(["POST"])
@login_required
@needs(rights.PLAN)
def import_sweep(request: HttpRequest, slug: str) -> HttpResponse:
    """Import a measured sweep. If the file has an error, nothing is stored; the message names file, row, field."""
    fleet = find_fleet(slug)
    form = SweepForm(request.POST, request.FILES, prefix="sweep")  # reading them streams the upload
    if getattr(request, "upload_too_large", False):
        limit = settings.UPLOAD_MAX_BYTES // 2**20
        return _forms_page(
            request,
            fleet,
            413,
            too_large=f"The file is larger than {limit} MiB. Nothing was imported. Send a smaller file.",
        )

    def read(data: dict[str, Any]) -> str:
        file = data.pop("file")
        made = sweep_imports.import_sweep(
            acting_user=person(request), fleet=fleet, file=file, file_name=file.name, **data
        )
        messages.success(request, f"Imported {len(made.points)} loads: {made}.")
        return address(made)

    answer = fill(request, form, read)
    return answer if isinstance(answer, HttpResponse) else _forms_page(request, fleet, answer, sweep_form=form)


@require_http_methods(["POST"])
@login_required
@needs(rights.PLAN)
def simulate_calibration(request: HttpRequest, slug: str) -> HttpResponse:
    """Order a sweep of one simulated replica of the fleet's engine profile with a workload's requests."""
    fleet = find_fleet(slug)
    form = SimulateForm(request.POST, fleet=fleet, prefix="simulate")

    def order(data: dict[str, Any]) -> str:
        job = calibrations.order_calibration(acting_user=person(request), fleet=fleet, **data)
        return reverse("calibration-job", args=[slug, job.pk])

    answer = fill(request, form, order)
    return answer if isinstance(answer, HttpResponse) else _forms_page(request, fleet, answer, simulate_form=form)


@require_GET
@login_required
def calibration(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Sweep, trials of W, provenance and plans of a calibration.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    pk
        Id of the calibration or job.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    return _page(request, _find(slug, pk))


def _find(slug: str, pk: int) -> Calibration:
    related = ("fleet__serving_profile", "serving_profile", "created_by")
    return get_object_or_404(Calibration.objects.select_related(*related), fleet__slug=slug, pk=pk)


def _page(request: HttpRequest, found: Calibration, status: int = 200, form: FitForm | None = None) -> HttpResponse:
    page = calibration_page(found)
    method = fits.method_of(found)
    context = {
        **page,
        "fit_method": method,
        "fit_form": form or FitForm(fleet=found.fleet, method=method),
    }
    return fleet_render(request, "calibrations/calibration.html", found.fleet, context, status)


@require_http_methods(["POST"])
@login_required
@needs(rights.PLAN)
def fit(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Order a fit of engine constants to the calibration's points.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    pk
        Id of the calibration or job.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = _find(slug, pk)
    form = FitForm(request.POST, fleet=found.fleet, method=fits.method_of(found))

    def order(data: dict[str, Any]) -> str:
        job = fits.order_fit(acting_user=person(request), calibration=found, **data)
        return reverse("calibration-job", args=[slug, job.pk])

    answer = fill(request, form, order)
    return answer if isinstance(answer, HttpResponse) else _page(request, found, answer, form)


def _result(job: Job) -> str | None:
    """The page of the calibration that a job made; None before."""
    made = job.result.get("calibration")
    return reverse("calibration", args=[job.fleet.slug, made]) if made else None


def _job(slug: str, pk: int) -> Job:
    jobs = Job.objects.select_related("fleet__serving_profile", "created_by")
    return get_object_or_404(jobs, fleet__slug=slug, kind__in=OURS, pk=pk)


@require_GET
@login_required
def job(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Progress or error of a calibration or fit. A finished job redirects to the calibration.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    pk
        Id of the calibration or job.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = _job(slug, pk)
    if (made := _result(found)) is not None:
        return redirect(made)
    workload = found.fleet.workloads.filter(pk=found.payload.get("workload") or 0).first()
    return fleet_render(request, "calibrations/job.html", found.fleet, {"job": found, "workload": workload})


@require_GET
@fragment
def job_progress(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """The progress of a job, which the page polls until the job ends.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    pk
        Id of the calibration or job.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = _job(slug, pk)
    response = render(request, "calibrations/progress.html", {"job": found, "fleet": found.fleet})
    if (made := _result(found)) is not None:
        response["HX-Redirect"] = made
    elif not found.is_open:
        response["HX-Refresh"] = "true"
    return response
