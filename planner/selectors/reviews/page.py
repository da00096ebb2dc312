"""The review part of the page of a plan: checks, waivers, decisions and comments."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from planner.models import Approval, GateEvaluation, GateItem, Plan, PlanComment, Waiver
from planner.selectors.reviews.approvals import approvers_of

# Comments on the page of a plan; the API lists all of them.
SHOWN_COMMENTS = 50


@dataclass(frozen=True)
class Decision:
    """A decision and its present state: `state` names it, `stands` says whether it counts."""

    approval: Approval
    state: str
    stands: bool


def decisions_on(plan: Plan, rows: QuerySet[Approval], evidence_digest: str) -> list[Decision]:
    """Return decisions in the order they were made, compared with the digest of the evidence that counts.

    Parameters
    ----------
    plan, rows
        The plan, and its decisions to compare.
    evidence_digest
        Digest of the evidence that counts; empty when there is no evaluation.

    Returns
    -------
    list of Decision
        Each with its present state.
    """
    now = timezone.now()
    own = {plan.author_id, plan.submitted_by_id}
    made = list(rows.select_related("approver").order_by("id"))
    if not made:
        return []
    may = set(approvers_of(plan.fleet_id).filter(pk__in={row.approver_id for row in made}).values_list("pk", flat=True))
    return [Decision(row, *_state(row, evidence_digest, own, may, now)) for row in made]


def _state(
    row: Approval, evidence_digest: str, own: set[int | None], may: set[int], now: dt.datetime
) -> tuple[str, bool]:
    if row.decision == Approval.Decision.REJECT:
        return "", False
    if row.withdrawn_at is not None:
        expired = row.expires_at is not None and row.withdrawn_at >= row.expires_at
        return ("expired" if expired else "withdrawn"), False
    if row.expires_at is not None and row.expires_at <= now:
        return "expired", False
    if row.evidence_digest != evidence_digest:
        return "other evidence", False
    if row.approver_id in own:
        return "approver is now the submitter", False
    if row.approver_id not in may:
        return "approver lost the role", False
    return "", True


@dataclass(frozen=True)
class WaiverRow:
    """A waiver and its state: requested, in force, or ended."""

    waiver: Waiver
    state: str

    @property
    def pending(self) -> bool:
        """Whether it waits for a decision."""
        return self.state == "requested"

    @property
    def in_force(self) -> bool:
        """Whether the checklist counts it."""
        return self.state == "in force"


def waivers_of(plan: Plan) -> list[WaiverRow]:
    """All waivers of a plan, the newest first."""
    now = timezone.now()
    rows = plan.waivers.select_related("requested_by", "granted_by", "ended_by").order_by("-id")
    return [WaiverRow(row, _waiver_state(row, now)) for row in rows]


def _waiver_state(row: Waiver, now: dt.datetime) -> str:
    if row.ended_at is not None and row.ended_by is not None:
        return "revoked" if row.granted_at is not None else "refused"
    if row.ended_at is not None or row.expires_at <= now:
        return "expired"
    return "in force" if row.granted_at is not None else "requested"


def askable(items: Iterable[GateItem], waivers: list[WaiverRow]) -> list[dict[str, Any]]:
    """Checks that do not pass, can be waived, and have no waiver that is requested or in force."""
    taken = {row.waiver.check_name for row in waivers if row.pending or row.in_force}
    return [
        check
        for item in items
        for check in item.checks
        if check["verdict"] != "pass" and check["waivable"] and check["name"] not in taken
    ]


def comments_of(plan: Plan) -> list[PlanComment]:
    """The latest comments, the oldest of them first."""
    return list(plan.comments.select_related("author").order_by("-id")[:SHOWN_COMMENTS])[::-1]


def review(plan: Plan, evaluation: GateEvaluation | None, items: list[GateItem]) -> dict[str, object]:
    """Return the decisions, waivers and comments of a plan for its page.

    Parameters
    ----------
    plan, evaluation
        The plan, and its latest evaluation; None before the first.
    items
        Items of that evaluation.

    Returns
    -------
    dict
        Decisions, waivers, checks for which a waiver can be requested, comments, and whether an item is waived.
    """
    waivers = waivers_of(plan)
    return {
        "decisions": decisions_on(plan, plan.approvals.all(), evaluation.evidence_digest if evaluation else ""),
        "waivers": waivers,
        "askable": askable(items, waivers),
        "comments": comments_of(plan),
        "is_waived": any(item.waived for item in items),
    }
