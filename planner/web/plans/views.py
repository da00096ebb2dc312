"""Pages of plans."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET, require_http_methods

from planner.models import Fleet, Plan
from planner.selectors.access import rights
from planner.selectors.plans.page import plan_page, progress
from planner.services.plans.orders import order_plan
from planner.services.replays.options import DEFAULT_SEEDS
from planner.services.reviews.evidence_changes import changed_since
from planner.services.reviews.submissions import retire_plan
from planner.web.core.permissions import fragment, needs
from planner.web.core.view_helpers import (
    act,
    action,
    expected_version,
    fill,
    find_fleet,
    find_plan,
    fleet_render,
    person,
)
from planner.web.plans.forms import PlanForm
from planner.web.replays.forms import ReplayForm
from planner.web.reviews.views import JUDGED, address, may_review


@require_http_methods(["GET", "POST"])
@login_required
@needs(rights.PLAN)
def new_plan(request: HttpRequest, slug: str) -> HttpResponse:
    """Order a plan."""
    fleet = find_fleet(slug)
    form = PlanForm(request.POST or None, fleet=fleet, initial={"workload": request.GET.get("workload")})
    status = 200
    if request.method == "POST":
        answer = fill(request, form, lambda data: _order(request, fleet, data))
        if isinstance(answer, HttpResponse):
            return answer
        status = answer
    context = {
        "form": form,
        "title": "Order plan",
        "submit": "Order plan",
        "lacks_workload": not fleet.workloads.exists(),
        "lacks_calibration": not fleet.calibrations.exists(),
    }
    return fleet_render(request, "plans/order.html", fleet, context, status)


def _order(request: HttpRequest, fleet: Fleet, data: dict[str, Any]) -> str:
    loads, replay = data.pop("loads_rps"), None
    if data.pop("replay_after_build"):
        replay = {"seeds": list(DEFAULT_SEEDS), **({"loads_rps": loads} if loads else {})}
    plan, _job = order_plan(acting_user=person(request), fleet=fleet, replay=replay, **data)
    messages.success(request, f"{plan} is ordered. The build starts when a worker is free.")
    return address(plan)


@require_GET
@login_required
def plan(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """The page of a plan.

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
    return _page(request, found, ReplayForm(plan=found))


def _page(request: HttpRequest, found: Plan, replay_form: ReplayForm, status: int = 200) -> HttpResponse:
    asked = request.GET.get("replay", "")
    shown = int(asked) if asked.isdecimal() and len(asked) < 10 else None
    user, page = person(request), plan_page(found, shown)
    context = {**page.context, "replay_form": replay_form, **_may(user, found)}
    context |= may_review(user, found, page.evaluation)
    if found.state in JUDGED and page.evaluation is not None:
        context["changed_since"] = changed_since(found, page.evaluation)
    return fleet_render(request, "plans/plan.html", found.fleet, context, status)


def _may(user: Any, found: Plan) -> dict[str, bool]:
    """Forms to show. The services check the rights again."""
    state, flat = found.state, found.kind == Plan.Kind.FLAT
    planner = rights.may(user, rights.PLAN, found.fleet) and not flat
    resting = state in Plan.ARCHIVABLE
    return {
        "may_retire": planner and resting,
        "may_replay": planner and resting,
        "may_operate": rights.may(user, rights.OPERATE, found.fleet) and not flat and state == Plan.State.APPROVED,
    }


@require_GET
@fragment
def plan_progress(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Progress of the job of a plan. When the job ends or the state of the plan changes, the page reloads.

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
    shown = progress(get_object_or_404(Plan.objects.select_related("fleet"), fleet__slug=slug, number=number))
    response = render(request, "plans/progress.html", {**vars(shown), "fleet": shown.plan.fleet})
    state = shown.plan.state
    if not shown.open or request.GET.get("state", state) != state:
        response["HX-Refresh"] = "true"
    return response


@action
def retire(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Archive a plan.

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
        retire_plan(acting_user=person(request), plan=found, expected_version=expected_version(request))
        return f"{found} is archived. It stays readable."

    return act(request, call, back=address(found))
