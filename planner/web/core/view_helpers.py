"""How a page calls a service: find the row, call, and show every refusal as a message or beside its field."""

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

STALE = "It was changed by somebody else while you were reading. This page shows it as it is now; please look again."


def person(request: HttpRequest) -> Any:
    """The signed-in person (the views here all require one)."""
    return request.user


def find_fleet(slug: str) -> Fleet:
    """The fleet, or 404."""
    return get_object_or_404(Fleet.objects.select_related("serving_profile"), slug=slug)


def find_plan(slug: str, number: int) -> Plan:
    """The plan with all that its page speaks of, or 404."""
    related = ("fleet__serving_profile", "workload", "calibration", "table", "author", "submitted_by")
    return get_object_or_404(Plan.objects.select_related(*related), fleet__slug=slug, number=number)


def fleet_render(
    request: HttpRequest, template: str, fleet: Fleet, context: Mapping[str, object] | None = None, status: int = 200
) -> HttpResponse:
    """A page of a fleet: its header (what is live, fall back) stands on top."""
    head = header(fleet)
    # Only the monitor's own fallback is followed by a rest.
    resting = head.only_flat and head.arms[0].rollout.started_by_id is None
    cooling = {"cooling_until": cooling_down_until(fleet) if resting else None}
    return render(request, template, {**vars(head), **cooling, **(context or {})}, status=status)


def text(request: HttpRequest, name: str, most: int = 4_000) -> str:
    """A text of the form.

    Raises
    ------
    Invalid
        When it is too long, or holds what no database stores.
    """
    value = request.POST.get(name, "")
    if len(value) > most:
        raise Invalid(f"{most:,} characters at most", field=name)
    if "\0" in value:
        raise Invalid("a NUL character cannot be stored", field=name)
    return value


def expected_version(request: HttpRequest) -> int | None:
    """The version that the form was shown with.

    Raises
    ------
    Invalid
        When the field was tampered with.
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
    """Call a service and return to `back` with what it did, or with why not.

    Raises
    ------
    PermissionDenied
        When the person lacks the right: that is an error page, not a message on a page they may use.
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
    """Send a form to a service: a redirect when it was done, else the status to show the form again with."""
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
        # A path into a list belongs to the list's field; a form has no object within it, as the replay of an order.
        field = (refusal.field or "").removeprefix("replay/").split("/")[0]
        form.add_error(field if field in form.fields else None, sentence(refusal.message))
        return refusal.status
    except ImportProblem as problem:
        form.problem = problem  # type: ignore[attr-defined]
        form.add_error("file", str(problem))
        return 400


def safe_back(request: HttpRequest, default: str) -> str:
    """Where the form says that it was, when that is a page of ours; else `default`."""
    wanted = request.POST.get("next", "")
    if wanted and url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}):
        return wanted
    return default


def sentence(text: str) -> str:
    """The first letter capital, as a message begins."""
    return text[:1].upper() + text[1:]
