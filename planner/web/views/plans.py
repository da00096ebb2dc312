"""The page of a plan and every decision about it. Figures are drawn by the Dash app that the page embeds."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from planner.models import Fleet, Plan, Rollout
from planner.selectors.plan_page import plan_page, progress
from planner.services import gates, plans, replays, reviews, rights, rollouts
from planner.web.access import fragment, needs
from planner.web.doors import act, action, expected_version, fill, find_fleet, find_plan, fleet_render, person, text
from planner.web.plan_forms import PlanForm
from planner.web.replay_forms import ReplayForm

# States in which the checklist still decides something.
JUDGED = (Plan.State.REPLAYED, Plan.State.IN_REVIEW, Plan.State.APPROVED)


def address(plan: Plan) -> str:
    """The plan's page."""
    return reverse("plan", args=[plan.fleet.slug, plan.number])


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
        replay = {"seeds": list(replays.DEFAULT_SEEDS), **({"loads_rps": loads} if loads else {})}
    plan, _job = plans.order_plan(acting_user=person(request), fleet=fleet, replay=replay, **data)
    messages.success(request, f"{plan} is ordered; it is built as soon as a worker is free.")
    return address(plan)


@require_GET
@login_required
def plan(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """The page that a plan is judged by."""
    found = find_plan(slug, number)
    return _page(request, found, ReplayForm(plan=found))


def _page(request: HttpRequest, found: Plan, replay_form: ReplayForm, status: int = 200) -> HttpResponse:
    asked = request.GET.get("replay", "")
    shown = int(asked) if asked.isdecimal() and len(asked) < 10 else None
    context = {**plan_page(found, shown), "replay_form": replay_form, **_may(person(request), found)}
    if found.state in JUDGED and context["evaluation"] is not None:
        context["changed_since"] = reviews.changed_since(found, context["evaluation"])
    return fleet_render(request, "plans/plan.html", found.fleet, context, status)


def _may(user: Any, found: Plan) -> dict[str, bool]:
    """Which forms are worth showing. The services decide again when one is sent."""
    state, own = found.state, user.pk in (found.author_id, found.submitted_by_id)
    in_review = state == Plan.State.IN_REVIEW
    decides = in_review and rights.may(user, rights.APPROVE, found.fleet)
    flat = found.kind == Plan.Kind.FLAT
    planner = rights.may(user, rights.PLAN, found.fleet) and not flat
    evaluation = found.gate_evaluations.order_by("-id").first()
    # Approved once, on other evidence than the latest: it has to be looked at again.
    outdated = (
        state == Plan.State.APPROVED
        and evaluation is not None
        and reviews.votes(found, evaluation) < found.fleet.min_approvals
    )
    return {
        "may_submit": planner and (state == Plan.State.REPLAYED or outdated),
        "is_outdated": outdated,
        "may_withdraw": planner and in_review,
        "may_retire": planner and state in (Plan.State.BUILT, Plan.State.REPLAYED, Plan.State.APPROVED),
        "may_approve": decides and not own,
        "is_own": in_review and own,
        "may_reject": decides,
        "may_replay": planner and state in (Plan.State.BUILT, Plan.State.REPLAYED, Plan.State.APPROVED),
        "may_operate": rights.may(user, rights.OPERATE, found.fleet) and not flat and state == Plan.State.APPROVED,
    }


@require_GET
@fragment
def plan_progress(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """How far the plan's job is. When it ends, or the plan left the state that the page shows, the page loads anew."""
    shown = progress(get_object_or_404(Plan.objects.select_related("fleet"), fleet__slug=slug, number=number))
    response = render(request, "plans/progress.html", {**shown, "fleet": shown["plan"].fleet})
    state = shown["plan"].state
    if not shown["open"] or request.GET.get("state", state) != state:
        response["HX-Refresh"] = "true"
    return response


@require_http_methods(["POST"])
@login_required
@needs(rights.PLAN)
def new_replay(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Start a replay."""
    found = find_plan(slug, number)
    form = ReplayForm(request.POST, plan=found)

    def start(data: dict[str, Any]) -> str:
        row, _job = replays.start_replay(
            acting_user=person(request), plan=found, expected_version=expected_version(request), **data
        )
        messages.success(request, f"Replay {row.pk} is under way.")
        return address(found)

    answer = fill(request, form, start)
    return answer if isinstance(answer, HttpResponse) else _page(request, find_plan(slug, number), form, answer)


@action
@needs(rights.PLAN)
def evaluate(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Judge the plan by the checklist again, on the evidence as it is now."""
    found = find_plan(slug, number)

    def call() -> str:
        evaluation = gates.evaluate_gate(acting_user=person(request), plan=found)
        return "The checklist was evaluated: " + ("all six checks pass." if evaluation.passed else "it does not pass.")

    return act(request, call, back=address(found) + "#checklist")


@action
def submit(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Submit for review."""
    found = find_plan(slug, number)

    def call() -> str:
        reviews.submit_plan(acting_user=person(request), plan=found, expected_version=expected_version(request))
        return f"{found} is in review: a second person decides."

    return act(request, call, back=address(found))


@action
def withdraw(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Take the plan back from review."""
    found = find_plan(slug, number)

    def call() -> str:
        reviews.withdraw_plan(acting_user=person(request), plan=found, expected_version=expected_version(request))
        return f"{found} is out of review."

    return act(request, call, back=address(found))


@action
def retire(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Put the plan away."""
    found = find_plan(slug, number)

    def call() -> str:
        reviews.retire_plan(acting_user=person(request), plan=found, expected_version=expected_version(request))
        return f"{found} is put away."

    return act(request, call, back=address(found))


@action
def approve(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Approve on the evidence whose digest the page showed."""
    found = find_plan(slug, number)

    def call() -> str:
        reviews.approve_plan(
            acting_user=person(request),
            plan=found,
            evidence_digest=text(request, "evidence_digest"),
            comment=text(request, "comment"),
            expected_version=expected_version(request),
        )
        found.refresh_from_db()
        if found.state == Plan.State.APPROVED:
            return f"{found} is approved. An operator can start its canary."
        return f"Your approval of {found} is recorded; more people must approve it."

    return act(request, call, back=address(found))


@action
def reject(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Reject with a reason."""
    found = find_plan(slug, number)

    def call() -> str:
        reviews.reject_plan(
            acting_user=person(request),
            plan=found,
            comment=text(request, "comment"),
            expected_version=expected_version(request),
        )
        return f"{found} is rejected."

    return act(request, call, back=address(found))


@action
def start_canary(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Start the canary."""
    found = find_plan(slug, number)

    def call() -> str:
        rollout = rollouts.start_rollout(
            acting_user=person(request), plan=found, expected_version=expected_version(request)
        )
        return f"{found} is in canary with {rollout.weight:.0%} of keys."

    return act(request, call, back=address(found))


@action
def advance(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Take a canary to its next weight, or make it active."""
    found = _rollout(slug, pk)

    def call() -> str:
        rollout = rollouts.advance_rollout(
            acting_user=person(request), rollout=found, expected_version=expected_version(request)
        )
        if rollout.state == Rollout.State.ACTIVE:
            return f"{rollout.plan} is active: it routes all keys of {found.fleet}."
        return f"{rollout.plan} is in canary with {rollout.weight:.0%} of keys."

    return act(request, call, back=address(found.plan))


@action
def abort(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Take a canary off traffic."""
    found = _rollout(slug, pk)

    def call() -> str:
        rollouts.abort_rollout(
            acting_user=person(request),
            rollout=found,
            reason=text(request, "reason"),
            expected_version=expected_version(request),
        )
        return f"The canary of {found.plan} is aborted; what was active stays active."

    return act(request, call, back=address(found.plan))


def _rollout(slug: str, pk: int) -> Rollout:
    return get_object_or_404(Rollout.objects.select_related("plan__fleet", "fleet"), fleet__slug=slug, pk=pk)
