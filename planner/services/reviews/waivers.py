"""Waivers: permission to continue although a check does not pass, requested by one person and granted by another, for a
time.

The check itself does not change: it stays failed, and the waiver is shown beside it. Waivers in force are part of the
evidence, so granting one, revoking one and its end make older approvals stale.
"""

from __future__ import annotations

import datetime as dt

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.checklist import CHECKS, PASS
from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import Plan, Waiver
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.base.states import lock_plan

MAX_DAYS = 30
MAX_REASON = 2_000


@transaction.atomic
def request_waiver(*, acting_user: User, plan: Plan, check_name: str, reason: str, expires_at: dt.datetime) -> Waiver:
    """Request a waiver of a check of the plan that does not pass.

    Parameters
    ----------
    acting_user, plan
        A user with the right to plan, and the plan.
    check_name
        Name of the check, a key of `CHECKS`.
    reason
        Why the plan may continue without it; not blank, at most 2,000 characters.
    expires_at
        End of the waiver, in the future, within 30 days.

    Returns
    -------
    Waiver
        The requested waiver. It has no effect before another person grants it.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    Invalid
        For an unknown check, one that cannot be waived, a reason or an end that cannot be used; `field` names it.
    Conflict
        When the check passes, was not judged yet, or has a waiver that is requested or in force; also for Flat-LB and a
        state of the plan in which a waiver has no effect.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    check = CHECKS.get(check_name)
    if check is None:
        raise Invalid(f"no check is named {check_name[:60]!r}; known: {', '.join(CHECKS)}", field="check_name")
    if not check.waivable:
        raise Invalid(f"{check_name} cannot be waived: {check.title[0].lower()}{check.title[1:]}", field="check_name")
    if not reason.strip():
        raise Invalid("say why the plan may continue without this check", field="reason")
    if len(reason) > MAX_REASON:
        raise Invalid(f"enter at most {MAX_REASON:,} characters", field="reason")
    now = timezone.now()
    if not now < expires_at <= now + dt.timedelta(days=MAX_DAYS, minutes=1):
        raise Invalid(f"a waiver ends in the future, within {MAX_DAYS} days", field="expires_at")
    plan = lock_plan(plan.pk)
    if plan.kind == Plan.Kind.FLAT or plan.state not in Plan.CANDIDATE:
        raise Conflict(f"{plan} is {plan.get_state_display()}: a waiver would have no effect")
    _require_open(plan, check_name)
    plan.waivers.filter(check_name=check_name, ended_at=None, expires_at__lte=now).update(ended_at=now)
    if plan.waivers.filter(check_name=check_name, ended_at=None).exists():
        raise Conflict(
            f"a waiver of {check_name} is already requested or in force; refuse or revoke it first", code="exists"
        )
    row = Waiver.objects.create(
        plan=plan, check_name=check_name, reason=reason.strip(), expires_at=expires_at, requested_by=acting_user
    )
    _record("waiver.requested", acting_user, row, reason)
    return row


def _require_open(plan: Plan, check_name: str) -> None:
    evaluation = plan.gate_evaluations.order_by("-id").first()
    judged = [c for item in evaluation.items.all() for c in item.checks] if evaluation else []
    found = next((c for c in judged if c["name"] == check_name), None)
    if found is None:
        raise Conflict("the checklist is not evaluated yet; replay the plan first", code="gate-missing")
    if found["verdict"] == PASS:
        raise Conflict(f"{check_name} passes: there is nothing to waive", code="passes")


def _locked(waiver: Waiver) -> tuple[Plan, Waiver]:
    """Lock the plan, then the waiver; refused when the waiver has ended."""
    plan = lock_plan(waiver.plan_id)
    waiver = lock(Waiver, waiver.pk)
    if waiver.ended_at is not None or waiver.expires_at <= timezone.now():
        raise Conflict("this waiver has ended; request another", code="ended")
    return plan, waiver


@transaction.atomic
def grant_waiver(*, acting_user: User, waiver: Waiver) -> Waiver:
    """Grant a waiver: a user with the right to approve, who neither requested it nor wrote or submitted the plan."""
    rights.require(acting_user, rights.APPROVE, waiver.plan.fleet)
    plan, waiver = _locked(waiver)
    if waiver.granted_at is not None:
        raise Conflict("this waiver is already granted", code="granted")
    if acting_user.pk in (waiver.requested_by_id, plan.author_id, plan.submitted_by_id):
        raise NotAllowed(
            "The requester of a waiver, and author and submitter of the plan, cannot grant it; a second person must.",
            code="second-person",
        )
    if plan.state not in Plan.CANDIDATE:
        raise Conflict(f"{plan} is {plan.get_state_display()}: a waiver would have no effect")
    waiver.granted_by, waiver.granted_at = acting_user, timezone.now()
    waiver.save(update_fields=["granted_by", "granted_at"])
    _record("waiver.granted", acting_user, waiver)
    return waiver


@transaction.atomic
def refuse_waiver(*, acting_user: User, waiver: Waiver, reason: str = "") -> Waiver:
    """Refuse a waiver that is not granted yet: a user with the right to approve, or the user who requested it.

    Parameters
    ----------
    acting_user, waiver
        Who refuses, and what.
    reason
        Optional; kept in the audit trail.

    Returns
    -------
    Waiver
        The ended waiver.

    Raises
    ------
    NotAllowed
        When the user neither requested it nor has the right to approve.
    Conflict
        When the waiver is granted or has ended.
    """
    if acting_user.pk != waiver.requested_by_id:
        rights.require(acting_user, rights.APPROVE, waiver.plan.fleet)
    _, waiver = _locked(waiver)
    if waiver.granted_at is not None:
        raise Conflict("this waiver is already granted; revoke it", code="granted")
    return _end(acting_user, waiver, "waiver.refused", reason)


@transaction.atomic
def revoke_waiver(*, acting_user: User, waiver: Waiver, reason: str = "") -> Waiver:
    """End a waiver that is in force: a user with the right to approve, or the user who requested it.

    Parameters
    ----------
    acting_user, waiver
        Who revokes, and what.
    reason
        Optional; kept in the audit trail.

    Returns
    -------
    Waiver
        The ended waiver.

    Raises
    ------
    NotAllowed
        When the user neither requested it nor has the right to approve.
    Conflict
        When the waiver is not granted or has ended.
    """
    if acting_user.pk != waiver.requested_by_id:
        rights.require(acting_user, rights.APPROVE, waiver.plan.fleet)
    _, waiver = _locked(waiver)
    if waiver.granted_at is None:
        raise Conflict("this waiver is not granted; refuse it", code="not-granted")
    return _end(acting_user, waiver, "waiver.revoked", reason)


def _end(acting_user: User, waiver: Waiver, action: str, reason: str) -> Waiver:
    waiver.ended_by, waiver.ended_at = acting_user, timezone.now()
    waiver.save(update_fields=["ended_by", "ended_at"])
    _record(action, acting_user, waiver, reason)
    return waiver


def _record(action: str, acting_user: User, waiver: Waiver, reason: str = "") -> None:
    record_event(
        action,
        acting_user=acting_user,
        fleet=waiver.plan.fleet,
        subject=waiver.plan,
        after={
            "waiver": waiver.pk,
            "check": waiver.check_name,
            "reason": waiver.reason,
            "requested_by": waiver.requested_by.get_username(),
            "expires_at": waiver.expires_at.isoformat(),
        },
        reason=reason,
    )
