"""Pages of replays."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from planner.selectors.access import rights
from planner.services.replays import orders as replay_orders
from planner.web.core.permissions import needs
from planner.web.core.view_helpers import (
    expected_version,
    fill,
    find_plan,
    person,
)
from planner.web.plans.views import _page
from planner.web.replays.forms import ReplayForm
from planner.web.reviews.views import address


@require_http_methods(["POST"])
@login_required
@needs(rights.PLAN)
def new_replay(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Start a replay.

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
    form = ReplayForm(request.POST, plan=found)

    def start(data: dict[str, Any]) -> str:
        row, _job = replay_orders.start_replay(
            acting_user=person(request), plan=found, expected_version=expected_version(request), **data
        )
        messages.success(request, f"Replay {row.pk} is ordered. It starts when a worker is free.")
        return address(found)

    answer = fill(request, form, start)
    return answer if isinstance(answer, HttpResponse) else _page(request, find_plan(slug, number), form, answer)
