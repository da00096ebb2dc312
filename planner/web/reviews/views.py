"""Pages of reviews."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse

from planner.errors import Invalid
from planner.models import Approval, GateEvaluation, Plan, Waiver
from planner.selectors.access import rights
from planner.services.reviews import approvals, comments, waivers
from planner.services.reviews.approvals import approve_plan, count_approvals, quorum_lost, reject_plan
from planner.services.reviews.submissions import submit_plan, withdraw_plan
from planner.web.core.view_helpers import act, action, expected_version, find_plan, person, text

# States in which the checklist affects the next action.
JUDGED = (Plan.State.REPLAYED, Plan.State.IN_REVIEW, Plan.State.APPROVED)


def address(plan: Plan) -> str:
    """The plan's page."""
    return reverse("plan", args=[plan.fleet.slug, plan.number])


def may_review(user: Any, found: Plan, evaluation: GateEvaluation | None) -> dict[str, Any]:
    """Forms of the review to show. The services check the rights again.

    Parameters
    ----------
    user
        The signed-in user.
    found
        The plan.
    evaluation
        Its latest evaluation, if any.

    Returns
    -------
    dict[str, Any]
        Values of the template.
    """
    state, own = found.state, user.pk in (found.author_id, found.submitted_by_id)
    in_review = state == Plan.State.IN_REVIEW
    approver = rights.may(user, rights.APPROVE, found.fleet)
    planner = rights.may(user, rights.PLAN, found.fleet) and found.kind != Plan.Kind.FLAT
    # An approved plan whose approvals do not cover the latest evidence needs a new review.
    judged = found.kind != Plan.Kind.FLAT and state == Plan.State.APPROVED and evaluation is not None
    lost = quorum_lost(found, evaluation) if judged and evaluation is not None else None
    return {
        "may_submit": planner and (state == Plan.State.REPLAYED or lost is not None),
        "quorum_lost": lost.message if lost is not None else "",
        "may_withdraw": planner and in_review,
        "may_approve": in_review and approver and not own,
        "is_own": in_review and own,
        "may_reject": in_review and approver,
        "may_waive": planner and state in Plan.CANDIDATE,
        "may_grant": approver and not own and state in Plan.CANDIDATE,
        "may_end_waivers": approver,
        "stands": count_approvals(found, evaluation) if evaluation is not None else 0,
    }


@action
def submit(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Submit for review.

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
        submit_plan(acting_user=person(request), plan=found, expected_version=expected_version(request))
        return f"{found} is in review. A second person must decide."

    return act(request, call, back=address(found))


@action
def withdraw(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Withdraw a plan from review.

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
        withdraw_plan(acting_user=person(request), plan=found, expected_version=expected_version(request))
        return f"{found} is withdrawn from review. It can be submitted again."

    return act(request, call, back=address(found))


@action
def approve(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Approve a plan on the evidence whose digest the page showed.

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
        approve_plan(
            acting_user=person(request),
            plan=found,
            evidence_digest=text(request, "evidence_digest"),
            comment=text(request, "comment"),
            expected_version=expected_version(request),
        )
        found.refresh_from_db()
        if found.state == Plan.State.APPROVED:
            return f"{found} is approved. An operator can start its canary."
        return f"Your approval of {found} is recorded. The policy requires more approvals."

    return act(request, call, back=address(found))


@action
def reject(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Reject with a reason.

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
        reject_plan(
            acting_user=person(request),
            plan=found,
            comment=text(request, "comment"),
            expected_version=expected_version(request),
        )
        return f"{found} is rejected."

    return act(request, call, back=address(found))


@action
def withdraw_approval(request: HttpRequest, slug: str, number: int, pk: int) -> HttpResponse:
    """Withdraw an approval of the user.

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
    row = get_object_or_404(Approval, plan=found, pk=pk)

    def call() -> str:
        approvals.withdraw_approval(acting_user=person(request), approval=row, reason=text(request, "reason"))
        return f"Your approval of {found} is withdrawn. It no longer counts."

    return act(request, call, back=address(found) + "#decisions")


@action
def comment(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Comment on a plan.

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
        comments.comment_plan(acting_user=person(request), plan=found, text=text(request, "text"))
        return "Your comment is stored."

    return act(request, call, back=address(found) + "#comments")


@action
def request_waiver(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Request a waiver until the end of a day in UTC.

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
        row = waivers.request_waiver(
            acting_user=person(request),
            plan=found,
            check_name=text(request, "check_name"),
            reason=text(request, "reason"),
            expires_at=_end_of_day(text(request, "expires_on")),
        )
        return f"The waiver of {row.check_name} is requested. A second person must grant it."

    return act(request, call, back=address(found) + "#waivers")


def _end_of_day(day: str) -> dt.datetime:
    try:
        found = dt.date.fromisoformat(day)
    except ValueError as error:
        raise Invalid("write the last day of the waiver, such as 2026-03-14", field="expires_on") from error
    return dt.datetime.combine(found, dt.time(23, 59), tzinfo=dt.UTC)


def _waiver(slug: str, number: int, pk: int) -> Waiver:
    rows = Waiver.objects.select_related("plan__fleet", "requested_by")
    return get_object_or_404(rows, plan__fleet__slug=slug, plan__number=number, pk=pk)


@action
def grant_waiver(request: HttpRequest, slug: str, number: int, pk: int) -> HttpResponse:
    """Grant a waiver.

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
    row = _waiver(slug, number, pk)

    def call() -> str:
        waivers.grant_waiver(acting_user=person(request), waiver=row)
        return f"The waiver of {row.check_name} is granted. Evaluate the checklist again to apply it."

    return act(request, call, back=address(row.plan) + "#waivers")


@action
def end_waiver(request: HttpRequest, slug: str, number: int, pk: int) -> HttpResponse:
    """Refuse a requested waiver, or revoke a granted one.

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
    row = _waiver(slug, number, pk)

    def call() -> str:
        end = waivers.refuse_waiver if row.granted_at is None else waivers.revoke_waiver
        end(acting_user=person(request), waiver=row, reason=text(request, "reason"))
        return f"The waiver of {row.check_name} is {'refused' if row.granted_at is None else 'revoked'}."

    return act(request, call, back=address(row.plan) + "#waivers")
