"""What was active on a fleet at a moment, who approved and deployed it, and the events before."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from planner.models import Approval, AuditEvent, Fleet, Plan, Publication, Rollout
from planner.models.audit import GOVERNING
from planner.records import JsonObject

PAGE = 50
NEAR = dt.timedelta(minutes=1)


@dataclass(frozen=True)
class LiveArm:
    """A plan that carried traffic, with the people behind it."""

    name: str
    plan: Plan
    weight: float
    rollout: Rollout | None
    entered_by: str
    entered_at: dt.datetime | None
    author: str
    submitter: str
    approvals: list[Approval]
    shown_evidence: int | None


@dataclass(frozen=True)
class LiveAt:
    """The routing table at a moment."""

    moment: dt.datetime
    publication: Publication | None
    arms: list[LiveArm]
    published_with: AuditEvent | None = None  # The event that published this table.


def live_at(fleet: Fleet, moment: dt.datetime) -> LiveAt:
    """The newest table published at or before the moment; no arms where the fleet had none yet."""
    found = fleet.publications.filter(issued_at__lte=moment).order_by("-issued_at", "-version").first()
    if found is None:
        return LiveAt(moment, None, [])
    plans = Plan.objects.select_related("author", "submitted_by").defer("summary", "parameters")
    by_plan = {plan.pk: plan for plan in plans.filter(pk__in=[arm["plan"] for arm in found.arms])}
    rollouts = {r.pk: r for r in Rollout.objects.filter(pk__in=[arm["rollout"] for arm in found.arms])}
    arms = [_arm(arm, by_plan[arm["plan"]], rollouts.get(arm["rollout"]), moment) for arm in found.arms]
    return LiveAt(moment, found, arms, _act_of(fleet, found))


def _act_of(fleet: Fleet, table: Publication) -> AuditEvent | None:
    """The event of the transaction that published the table: it names the version, at nearly the same time."""
    near = fleet.audit_events.filter(created_at__gte=table.issued_at - NEAR, created_at__lte=table.issued_at + NEAR)
    return near.filter(after__table_version=table.version).defer("before").order_by("id").first()


def _arm(arm: JsonObject, plan: Plan, rollout: Rollout | None, moment: dt.datetime) -> LiveArm:
    step, approvals = None, []
    if rollout is not None:
        steps = rollout.steps.filter(entered_at__lte=moment).select_related("entered_by")
        step = steps.order_by("-number").first()
        given = plan.approvals.filter(decision=Approval.Decision.APPROVE, evidence_digest=rollout.evidence_digest)
        approvals = list(given.filter(created_at__lte=moment).select_related("approver").order_by("id"))
    return LiveArm(
        name=arm["name"],
        plan=plan,
        weight=arm["weight"],
        rollout=rollout,
        entered_by=step.entered_by.get_username() if step and step.entered_by else "the console",
        entered_at=step.entered_at if step else None,
        author=plan.author.get_username() if plan.author else "",
        submitter=plan.submitted_by.get_username() if plan.submitted_by else "",
        approvals=approvals,
        shown_evidence=approvals[0].evaluation_id if approvals else None,
    )


def governing_events(
    fleet: Fleet, before: int | None = None, until: dt.datetime | None = None
) -> tuple[list[AuditEvent], int | None]:
    """Return one page of events that changed traffic up to a moment, newest first.

    Parameters
    ----------
    fleet
        The fleet.
    before
        Id below which the page begins; None for the first page.
    until
        The moment, with its time zone; None for all events.

    Returns
    -------
    tuple of list and int or None
        The events, and the id below which the next page begins; None on the last page.
    """
    rows = fleet.audit_events.filter(action__in=GOVERNING).defer("before").order_by("-id")
    if until is not None:
        rows = rows.filter(created_at__lte=until)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows[: PAGE + 1])
    return found[:PAGE], found[PAGE - 1].pk if len(found) > PAGE else None
