"""Pages and actions of rollouts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from planner.errors import Invalid
from planner.formatting import keys_share
from planner.models import Freeze, Rollout
from planner.selectors.access import rights
from planner.selectors.rollouts.page import rollout_page, rollouts_page
from planner.selectors.rollouts.queries import rollouts_with_state
from planner.services.rollouts import freezes, rollback
from planner.services.rollouts.freezes import lift_freeze
from planner.services.rollouts.starts import reschedule_rollout, start_rollout
from planner.services.rollouts.steps import (
    abort_rollout,
    advance_rollout,
    pause_rollout,
    promote_rollout,
    resume_rollout,
)
from planner.web.core.view_helpers import (
    act,
    action,
    expected_version,
    find_fleet,
    find_plan,
    fleet_render,
    person,
    text,
)


@require_GET
@login_required
def rollouts_of(request: HttpRequest, slug: str) -> HttpResponse:
    """History of rollouts, roll back, and freezes."""
    fleet = find_fleet(slug)
    context = {**rollouts_page(fleet), "may_free_all": rights.may(person(request), rights.MANAGE)}
    return fleet_render(request, "rollouts/rollouts.html", fleet, context)


@require_GET
@login_required
def rollout(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """The page of a rollout: steps, holds and analyses.

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
    found = get_object_or_404(rollouts_with_state(), fleet__slug=slug, pk=pk)
    # The header needs all fields of the fleet; the page needs the tables of both plans.
    return fleet_render(request, "rollouts/rollout.html", find_fleet(slug), rollout_page(found))


@action
def start_canary(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Start the canary of a plan, now or at a time.

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
        row = start_rollout(
            acting_user=person(request),
            plan=found,
            scheduled_for=_moment(request),
            expected_version=expected_version(request),
        )
        if row.scheduled_for is not None:
            return f"The canary of {found} starts at {_utc(row.scheduled_for)}, if all checks pass again at that time."
        return f"{found} is in canary with {keys_share(row.weight)} of keys."

    return act(request, call, back=reverse("plan", args=[slug, number]))


@action
def advance(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Advance a canary to its next weight, or make it active.

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
    return _move(request, slug, pk, advance_rollout, _where)


@action
def promote(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Promote a canary before its last step.

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
    return _move(request, slug, pk, promote_rollout, _where, reason=lambda: text(request, "reason"))


@action
def pause(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Pause a canary.

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

    def message(row: Rollout) -> str:
        return f"The canary of {row.plan} is paused. It keeps {keys_share(row.weight)} of keys until it is resumed."

    return _move(request, slug, pk, pause_rollout, message, reason=lambda: text(request, "reason"))


@action
def resume(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Resume a paused canary.

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
    return _move(request, slug, pk, resume_rollout, lambda row: f"The canary of {row.plan} is resumed.")


@action
def abort(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Abort a canary, or cancel a scheduled rollout.

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

    def message(row: Rollout) -> str:
        if row.step_started_at is None:
            return f"The scheduled canary of {row.plan} is cancelled."
        return f"The canary of {row.plan} is aborted. The incumbent routes its keys again."

    return _move(request, slug, pk, abort_rollout, message, reason=lambda: text(request, "reason"))


@action
def reschedule(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Change the start time of a scheduled canary.

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

    def message(row: Rollout) -> str:
        assert row.scheduled_for is not None  # it was just set
        return f"The canary of {row.plan} starts at {_utc(row.scheduled_for)}."

    return _move(request, slug, pk, reschedule_rollout, message, scheduled_for=lambda: _moment(request, True))


@action
def roll_back(request: HttpRequest, slug: str) -> HttpResponse:
    """Make a plan active again that was active before."""
    fleet = find_fleet(slug)

    def call() -> str:
        number = request.POST.get("plan", "")
        plan = fleet.plans.filter(number=int(number)).first() if number.isdecimal() and len(number) < 10 else None
        if plan is None:
            raise Invalid("choose a plan of the list", field="plan")
        rollback.roll_back(acting_user=person(request), fleet=fleet, plan=plan, reason=text(request, "reason"))
        fleet.refresh_from_db()
        return f"Rolled back: {plan} routes all keys of {fleet}, routing table version {fleet.table_version}."

    return act(request, call, back=reverse("rollouts", args=[slug]))


@action
def freeze(request: HttpRequest, slug: str) -> HttpResponse:
    """Freeze the rollouts of the fleet, or of all."""
    fleet = find_fleet(slug)
    everywhere = request.POST.get("scope") == "all"

    def call() -> str:
        freezes.freeze(acting_user=person(request), fleet=None if everywhere else fleet, reason=text(request, "reason"))
        return f"Rollouts of {'all fleets' if everywhere else fleet} are frozen. Falling back is still possible."

    return act(request, call, back=reverse("rollouts", args=[slug]))


@action
def lift(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Lift a freeze of the fleet, or of all.

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
    fleet = find_fleet(slug)
    theirs = Freeze.objects.select_related("fleet").filter(Q(fleet=fleet) | Q(fleet=None))
    found = get_object_or_404(theirs, pk=pk)

    def call() -> str:
        lift_freeze(acting_user=person(request), freeze=found, reason=text(request, "reason"))
        return "The freeze is lifted. Rollouts can move again."

    return act(request, call, back=reverse("rollouts", args=[slug]))


def _move(
    request: HttpRequest,
    slug: str,
    pk: int,
    change: Callable[..., Rollout],
    message: Callable[[Rollout], str],
    **values: Callable[[], Any],
) -> HttpResponse:
    """Call an action of the service. Form values are read inside the call, so that a refusal becomes a message."""
    found = get_object_or_404(Rollout.objects.select_related("fleet", "plan"), fleet__slug=slug, pk=pk)

    def call() -> str:
        return message(
            change(
                acting_user=person(request),
                rollout=found,
                expected_version=expected_version(request),
                **{name: value() for name, value in values.items()},
            )
        )

    return act(request, call, back=reverse("rollout", args=[slug, pk]))


def _where(row: Rollout) -> str:
    if row.state == Rollout.State.ACTIVE:
        return f"{row.plan} is active: it routes all keys of {row.fleet}."
    return f"{row.plan} is in canary with {keys_share(row.weight)} of keys."


def _moment(request: HttpRequest, needed: bool = False) -> dt.datetime | None:
    """The time in the form, in UTC; None when the field is empty.

    Raises
    ------
    Invalid
        When the text is no time, or is missing where it is required.
    """
    written = request.POST.get("scheduled_for", "").strip()
    if not written and not needed:
        return None
    try:
        found = dt.datetime.fromisoformat(written)
    except ValueError as error:
        raise Invalid("write a time such as 2026-03-14T10:00, in UTC", field="scheduled_for") from error
    return found if timezone.is_aware(found) else found.replace(tzinfo=dt.UTC)


def _utc(moment: dt.datetime) -> str:
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"
