"""Pages that evaluate the gate and show its evidence."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from planner.models import GateEvaluation
from planner.selectors.access import rights
from planner.selectors.fleets.page import header
from planner.selectors.gate.page import evidence_page
from planner.services.gate import evaluations
from planner.services.reviews.evidence_changes import changed_since
from planner.web.core.permissions import needs
from planner.web.core.view_helpers import (
    act,
    action,
    find_plan,
    person,
)
from planner.web.reviews.views import JUDGED, address


@action
@needs(rights.PLAN)
def evaluate(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Evaluate the checklist again on the current evidence.

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
        evaluation = evaluations.evaluate_gate(acting_user=person(request), plan=found)
        waived = evaluation.items.filter(waived=True).exists()
        passes = "it passes with waivers." if waived else "all six items pass."
        return f"The checklist was evaluated: {passes if evaluation.passed else 'it does not pass.'}"

    return act(request, call, back=address(found) + "#checklist")


@require_GET
@login_required
def evidence(request: HttpRequest, slug: str, number: int, pk: int) -> HttpResponse:
    """The stored evidence of an evaluation. A banner says whether it is up to date.

    Parameters
    ----------
    request
        The request.
    slug
        Slug of the fleet.
    number
        Number of the plan in the fleet.
    pk
        Id of the row.

    Returns
    -------
    HttpResponse
        The page, or a redirect after a change.
    """
    found = find_plan(slug, number)
    rows = GateEvaluation.objects.select_related("plan__fleet", "created_by").prefetch_related("items")
    evaluation = get_object_or_404(rows, plan=found, pk=pk)
    context = evidence_page(evaluation)
    latest = found.gate_evaluations.order_by("-id").first()
    over = found.state not in JUDGED
    changed = [] if over or latest is None else changed_since(found, evaluation)
    # The header with the fallback is current; all below it is stored.
    context |= {**vars(header(found.fleet)), "is_over": over, "changed": changed}
    return render(request, "gate/evidence.html", context)
