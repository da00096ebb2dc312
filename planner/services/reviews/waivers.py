"""Waivers: leave to go on although a check does not pass. Asked for by one person, granted by another, for a time.

Nothing of the check changes: it shows red for ever, with the waiver beside it. Waivers in force are part of the
evidence, so that granting one, revoking one and its end make older approvals stale.
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
    """Ask for a waiver of a check of the plan that does not pass.

    Raises
    ------
    Invalid
        For a check that does not exist or cannot be waived, without a reason, or for longer than 30 days.
    Conflict
        When the check passes, was not judged yet, or has a waiver that is asked for or in force.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    check = CHECKS.get(check_name)
    if check is None:
        raise Invalid(f"no check is named {check_name[:60]!r}; known: {', '.join(CHECKS)}", field="check_name")
    if not check.waivable:
        raise Invalid(f"{check_name} cannot be waived: {check.title[0].lower()}{check.title[1:]}", field="check_name")
    if not reason.strip():
        raise Invalid("say why the plan may go on without this check", field="reason")
    if len(reason) > MAX_REASON:
        raise Invalid(f"{MAX_REASON:,} characters at most", field="reason")
    now = timezone.now()
    if not now < expires_at <= now + dt.timedelta(days=MAX_DAYS, minutes=1):
        raise Invalid(f"a waiver ends in the future, within {MAX_DAYS} days", field="expires_at")
    plan = lock_plan(plan.pk)
    if plan.kind == Plan.Kind.FLAT or plan.state not in Plan.CANDIDATE:
        raise Conflict(f"{plan} is {plan.get_state_display()}: it has no use for a waiver")
    _require_open(plan, check_name)
    plan.waivers.filter(check_name=check_name, ended_at=None, expires_at__lte=now).update(ended_at=now)
    if plan.waivers.filter(check_name=check_name, ended_at=None).exists():
        raise Conflict(
            f"a waiver of {check_name} is asked for or in force already; refuse or revoke it first", code="exists"
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
        raise Conflict("the checklist was not evaluated yet, so there is nothing to waive", code="gate-missing")
    if found["verdict"] == PASS:
        raise Conflict(f"{check_name} passes: there is nothing to waive", code="passes")


def _locked(waiver: Waiver) -> tuple[Plan, Waiver]:
    """The plan, then the waiver; refused when the waiver ended."""
    plan = lock_plan(waiver.plan_id)
    waiver = lock(Waiver, waiver.pk)
    if waiver.ended_at is not None or waiver.expires_at <= timezone.now():
        raise Conflict("this waiver has ended; ask for another", code="ended")
    return plan, waiver


@transaction.atomic
def grant_waiver(*, acting_user: User, waiver: Waiver) -> Waiver:
    """Grant it: somebody with the right to approve, who neither asked for it nor wrote or submitted the plan."""
    rights.require(acting_user, rights.APPROVE, waiver.plan.fleet)
    plan, waiver = _locked(waiver)
    if waiver.granted_at is not None:
        raise Conflict("this waiver is granted already", code="granted")
    if acting_user.pk in (waiver.requested_by_id, plan.author_id, plan.submitted_by_id):
        raise NotAllowed(
            "Who asked for a waiver, and the author and submitter of the plan, cannot grant it; a second person must.",
            code="second-person",
        )
    if plan.state not in Plan.CANDIDATE:
        raise Conflict(f"{plan} is {plan.get_state_display()}: it has no use for a waiver")
    waiver.granted_by, waiver.granted_at = acting_user, timezone.now()
    waiver.save(update_fields=["granted_by", "granted_at"])
    _record("waiver.granted", acting_user, waiver)
    return waiver


@transaction.atomic
def refuse_waiver(*, acting_user: User, waiver: Waiver, reason: str = "") -> Waiver:
    """Refuse what was asked for and not granted yet: who may approve, or who asked for it and takes it back."""
    if acting_user.pk != waiver.requested_by_id:
        rights.require(acting_user, rights.APPROVE, waiver.plan.fleet)
    _, waiver = _locked(waiver)
    if waiver.granted_at is not None:
        raise Conflict("this waiver is granted already; revoke it", code="granted")
    return _end(acting_user, waiver, "waiver.refused", reason)


@transaction.atomic
def revoke_waiver(*, acting_user: User, waiver: Waiver, reason: str = "") -> Waiver:
    """End a waiver that is in force: who may approve, or who asked for it."""
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
