"""Helpers of page views: find rows, call services, and show refusals as messages or beside their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from planner.errors import Invalid, NotAllowed, Refused, StaleVersion
from planner.ingest import ImportProblem
from planner.models import Fleet, Plan
from planner.selectors.fleets.page import header
from planner.selectors.monitoring.cool_down import cooling_down_until

STALE = "Nothing was changed: another user changed this in the meantime. Check the current values below and repeat."


def person(request: HttpRequest) -> Any:
    """The signed-in user. Every view here requires one."""
    return request.user


def find_fleet(slug: str) -> Fleet:
    """The fleet, or 404."""
    return get_object_or_404(Fleet.objects.select_related("serving_profile"), slug=slug)


def find_plan(slug: str, number: int) -> Plan:
    """The plan with the rows that its page shows, or 404."""
    related = ("fleet__serving_profile", "workload", "calibration", "table", "author", "submitted_by")
    return get_object_or_404(Plan.objects.select_related(*related), fleet__slug=slug, number=number)


def fleet_render(
    request: HttpRequest, template: str, fleet: Fleet, context: Mapping[str, object] | None = None, status: int = 200
) -> HttpResponse:
    """Render a page of a fleet below its header (live plan, fallback).

    Parameters
    ----------
    request
        The request.
    template
        Name of the template.
    fleet
        The fleet of the header.
    context
        Values of the template beside the header.
    status
        HTTP status of the response.

    Returns
    -------
    HttpResponse
        The page.
    """
    head = header(fleet)
    # Only a fallback by the monitor starts a cool-down.
    resting = head.only_flat and head.arms[0].rollout.started_by_id is None
    cooling = {"cooling_until": cooling_down_until(fleet) if resting else None}
    return render(request, template, {**vars(head), **cooling, **(context or {})}, status=status)


def text(request: HttpRequest, name: str, most: int = 4_000) -> str:
    """A text of the form.

    Parameters
    ----------
    request
        The request with the form.
    name
        Name of the field.
    most
        Maximum number of characters.

    Returns
    -------
    str
        The text; empty where the form has none.

    Raises
    ------
    Invalid
        When the text is too long or has a NUL character.
    """
    value = request.POST.get(name, "")
    if len(value) > most:
        raise Invalid(f"the text is too long; write at most {most:,} characters", field=name)
    if "\0" in value:
        raise Invalid("the text has a NUL character, which cannot be stored; remove it", field=name)
    return value


def expected_version(request: HttpRequest) -> int | None:
    """The version of the row when the form was shown.

    Raises
    ------
    Invalid
        When the field is no whole number.
    """
    text = request.POST.get("expected_version", "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise Invalid("the version must be a whole number", field="expected_version") from error


def action(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view that changes something: POST only, by a signed-in person."""
    return wraps(view)(login_required(require_POST(view)))


def act(request: HttpRequest, call: Callable[[], str], *, back: str) -> HttpResponseRedirect:
    """Call a service and redirect with its result or its refusal as a message.

    Parameters
    ----------
    request
        The request.
    call
        Calls the service and returns the message of success.
    back
        Address to return to where the form names none.

    Returns
    -------
    HttpResponseRedirect
        To the page of the form.

    Raises
    ------
    PermissionDenied
        When the user lacks the right: an error page, not a message.
    """
    try:
        messages.success(request, call())
    except NotAllowed as refusal:
        if refusal.code == "second-person":
            messages.error(request, refusal.message)
        else:
            raise PermissionDenied(refusal.message) from refusal
    except StaleVersion as refusal:
        messages.error(request, refusal.message if refusal.code == "evidence-stale" else STALE)
    except Refused as refusal:
        field = f"{refusal.field.replace('_', ' ')}: " if refusal.field else ""
        messages.error(request, sentence(field + refusal.message))
    return redirect(safe_back(request, back))


def fill(request: HttpRequest, form: forms.Form, call: Callable[[dict[str, Any]], str]) -> HttpResponse | int:
    """Send a form to a service.

    Parameters
    ----------
    request
        The request.
    form
        The form with its data.
    call
        Calls the service with the cleaned data and returns the address to redirect to.

    Returns
    -------
    HttpResponse | int
        A redirect after success, else the HTTP status to show the form with.

    Raises
    ------
    PermissionDenied
        When the user lacks the right.
    """
    if not form.is_valid():
        return 400
    try:
        return redirect(call(form.cleaned_data))
    except NotAllowed as refusal:
        raise PermissionDenied(refusal.message) from refusal
    except StaleVersion as refusal:
        form.add_error(None, STALE)
        return refusal.status
    except Refused as refusal:
        # A path into a list belongs to the field of the list. `replay/` is no field of a form.
        field = (refusal.field or "").removeprefix("replay/").split("/")[0]
        form.add_error(field if field in form.fields else None, sentence(refusal.message))
        return refusal.status
    except ImportProblem as problem:
        form.problem = problem  # type: ignore[attr-defined]
        form.add_error("file", str(problem))
        return 400


def safe_back(request: HttpRequest, default: str) -> str:
    """The page that the form names, if it is a page of this console; else `default`."""
    wanted = request.POST.get("next", "")
    if wanted and url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}):
        return wanted
    return default


def sentence(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
