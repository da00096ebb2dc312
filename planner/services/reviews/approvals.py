"""Approving and rejecting: a second person decides on evidence that cannot change meanwhile."""

from __future__ import annotations

import datetime as dt

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from planner.errors import Conflict, Invalid, NotAllowed, StaleVersion
from planner.models import Approval, GateEvaluation, Plan
from planner.selectors.access import rights
from planner.selectors.reviews.approvals import approvers_of, in_force
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.base.states import lock_plan, move_plan
from planner.services.gate.preload import Preloaded, with_preloaded
from planner.services.reviews.evidence_changes import current_evaluation

# An expired approval is closed when the approver approves again: it ended when it expired, and is not shown as
# withdrawn.
_EXPIRED = Q(withdrawn_at=None) | Q(withdrawn_at__gte=F("expires_at"))


def _decide(plan: Plan, evaluation: GateEvaluation, acting_user: User, decision: str, comment: str) -> Approval:
    assert plan.author is not None  # A database constraint of this kind of plan.
    approves = decision == Approval.Decision.APPROVE
    now = timezone.now()
    mine = plan.approvals.filter(approver=acting_user, evidence_digest=evaluation.evidence_digest, decision=decision)
    # An expired approval is replaced by the new one.
    mine.filter(withdrawn_at=None, expires_at__lte=now).update(withdrawn_at=now, withdrawn_reason="it had expired")
    try:
        with transaction.atomic():
            return Approval.objects.create(
                plan=plan,
                evaluation=evaluation,
                decision=decision,
                evidence_digest=evaluation.evidence_digest,
                comment=comment,
                approver=acting_user,
                author=plan.author,
                submitter=plan.submitted_by or plan.author,
                shared_email=_shared_email(acting_user, plan) if approves else "",
                expires_at=now + dt.timedelta(days=plan.fleet.approval_days) if approves else None,
            )
    except IntegrityError as error:
        raise Conflict("you have already decided on this evaluation", code="decided") from error


def _shared_email(approver: User, plan: Plan) -> str:
    """The address that the approver shares with the author or submitter: they may be one person with two accounts."""
    own = approver.email.strip()
    others = (plan.author, plan.submitted_by)
    same = any(own.lower() == other.email.strip().lower() for other in others if other is not None)
    return own if own and same else ""


def approve_plan(
    *,
    acting_user: User,
    plan: Plan,
    evidence_digest: str,
    comment: str = "",
    expected_version: int | None = None,
) -> Approval:
    """Approve the evidence that was shown.
     The author and the submitter never may, not even an admin. The plan is approved when the quorum of the fleet,
    counted in different people, is reached.

    Parameters
    ----------
    acting_user, plan
        The approver, and a plan in review.
    evidence_digest
        Digest of the evidence that the approver has read.
    comment
        Optional; stored with the approval and in the audit trail.
    expected_version
        Version of the plan that the caller has read; None skips the check.

    Returns
    -------
    Approval
        The stored approval.

    Raises
    ------
    NotAllowed
        When the user lacks the right to approve, or is author or submitter of the plan.
    StaleVersion
        When the plan has another version than the expected one, or the evidence was judged again since.
    Conflict
        When the plan is not in review, the latest evaluation is missing, not passed or stale, or the user has already
        approved this evidence.
    Busy
        When the active plan changes faster than its files can be read.
    """
    rights.require(acting_user, rights.APPROVE, plan.fleet)
    return with_preloaded(
        plan.pk, lambda stored: _approve(acting_user, plan, evidence_digest, comment, expected_version, stored)
    )


def _approve(
    acting_user: User,
    plan: Plan,
    evidence_digest: str,
    comment: str,
    expected_version: int | None,
    stored: Preloaded,
) -> Approval:
    plan = lock_plan(plan.pk, expected_version)
    rights.require_now(acting_user, rights.APPROVE, plan.fleet)
    if plan.state != Plan.State.IN_REVIEW:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not in review")
    if acting_user.pk in (plan.author_id, plan.submitted_by_id):
        raise NotAllowed("The author and the submitter cannot approve; a second person must.", code="second-person")
    evaluation = current_evaluation(plan, stored)
    if evidence_digest != evaluation.evidence_digest:
        raise StaleVersion(
            "The evidence was judged again since you read it; read it again before you decide.", code="evidence-stale"
        )
    approval = _decide(plan, evaluation, acting_user, Approval.Decision.APPROVE, comment)
    approvals = count_approvals(plan, evaluation)
    if approvals >= plan.fleet.min_approvals:
        move_plan(plan, Plan.State.APPROVED)
    else:
        plan.bump()
    record_event(
        "plan.approved",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={
            "approvals": approvals,
            "of": plan.fleet.min_approvals,
            "state": plan.state,
            **({"shared_email": approval.shared_email} if approval.shared_email else {}),
        },
        reason=comment,
        evidence_digest=evaluation.evidence_digest,
    )
    return approval


@transaction.atomic
def reject_plan(*, acting_user: User, plan: Plan, comment: str, expected_version: int | None = None) -> Approval:
    """Reject a plan in review. Author and submitter may too.

    Parameters
    ----------
    acting_user, plan
        A user with the right to approve, and a plan in review.
    comment
        The reason, not blank: the author reads it.
    expected_version
        Version of the plan that the caller has read; None skips the check.

    Returns
    -------
    Approval
        The stored decision, on the latest evaluation.

    Raises
    ------
    NotAllowed
        When the user lacks the right to approve.
    Invalid
        When the comment is blank.
    StaleVersion
        When the plan has another version than the expected one.
    Conflict
        When the plan is not in review, or the user has already rejected it on this evidence.
    """
    rights.require(acting_user, rights.APPROVE, plan.fleet)
    if not comment.strip():
        raise Invalid("give a reason, so that the author can correct the plan", field="comment")
    plan = lock_plan(plan.pk, expected_version)
    if plan.state != Plan.State.IN_REVIEW:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not in review")
    evaluation = plan.gate_evaluations.latest("id")
    decision = _decide(plan, evaluation, acting_user, Approval.Decision.REJECT, comment)
    move_plan(plan, Plan.State.REJECTED)
    record_event(
        "plan.rejected",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={"state": plan.state},
        reason=comment,
        evidence_digest=evaluation.evidence_digest,
    )
    return decision


def approvals_in_force(plan: Plan, evidence_digest: str) -> QuerySet[Approval]:
    """Approvals that count: for this evidence, not withdrawn, not expired, by other people who may still approve.

    An approval by somebody who has since become the submitter does not count, and neither does one by a user who lost
    the right or whose account was switched off.
    """
    return _in_force(plan, evidence_digest).filter(approver__in=approvers_of(plan.fleet_id))


def _in_force(plan: Plan, evidence_digest: str) -> QuerySet[Approval]:
    given = plan.approvals.filter(in_force(), decision=Approval.Decision.APPROVE, evidence_digest=evidence_digest)
    return given.exclude(approver__in=[plan.author_id, plan.submitted_by_id or plan.author_id])


def count_approvals(plan: Plan, evaluation: GateEvaluation) -> int:
    """The different people who approved this evidence, however often it was judged."""
    return approvals_in_force(plan, evaluation.evidence_digest).count()  # By constraint, one per person.


def quorum_lost(plan: Plan, evaluation: GateEvaluation) -> Conflict | None:
    """Why an approved plan no longer has the approvals that it needs; None while it has them.

    The quorum is the present one of the fleet, whatever it was when people voted.
    """
    have, need = count_approvals(plan, evaluation), plan.fleet.min_approvals
    if have >= need:
        return None
    counted = approvals_in_force(plan, evaluation.evidence_digest)
    given = plan.approvals.filter(decision=Approval.Decision.APPROVE, evidence_digest=evaluation.evidence_digest)
    given = given.exclude(approver__in=counted.values("approver")).select_related("approver")
    again = f"{have} of {need} approvals count; submit the plan for review again"
    lost = _in_force(plan, evaluation.evidence_digest).exclude(pk__in=counted.values("pk")).select_related("approver")
    if names := ", ".join(sorted(str(approval.approver) for approval in lost)):
        text = f"{names} approved but may no longer approve on this fleet: {again}"
        return Conflict(text, code="approver-lost-right")
    if expired := given.filter(_EXPIRED, expires_at__lte=timezone.now()).order_by("-expires_at").first():
        assert expired.expires_at is not None  # The query selects it.
        text = f"the approval of {expired.approver} expired on {expired.expires_at:%Y-%m-%d %H:%M} UTC: {again}"
        return Conflict(text, code="approval-expired")
    if withdrawn := given.exclude(withdrawn_at=None).order_by("-withdrawn_at").first():
        why = f" ({withdrawn.withdrawn_reason})" if withdrawn.withdrawn_reason else ""
        return Conflict(f"{withdrawn.approver} withdrew the approval{why}: {again}", code="approval-withdrawn")
    return Conflict(
        "the approvals are for other evidence than the latest; submit the plan for review again",
        code="evidence-stale",
    )


@transaction.atomic
def withdraw_approval(*, acting_user: User, approval: Approval, reason: str = "") -> Approval:
    """Withdraw one's own approval. The plan cannot be deployed or taken further while it lacks an approval.

    A plan that carries traffic keeps it: abort the rollout or fall back to stop it.

    Parameters
    ----------
    acting_user, approval
        The user who approved, and the approval.
    reason
        Optional; shown with the approval and in the audit trail.

    Returns
    -------
    Approval
        The withdrawn approval.

    Raises
    ------
    NotAllowed
        When the approval is another user's.
    Conflict
        When it is a rejection, or already withdrawn.
    """
    plan = lock_plan(approval.plan_id)
    approval = lock(Approval, approval.pk)
    if approval.approver_id != acting_user.pk:
        raise NotAllowed(
            "Only the user who approved can withdraw the approval; reject the plan instead.", code="not-yours"
        )
    if approval.decision != Approval.Decision.APPROVE:
        raise Conflict("a rejection is final: order a plan with the same inputs instead")
    if approval.withdrawn_at is not None:
        raise Conflict("this approval is already withdrawn", code="withdrawn")
    approval.withdrawn_at, approval.withdrawn_reason = timezone.now(), reason
    approval.save(update_fields=["withdrawn_at", "withdrawn_reason"])
    plan.bump()
    record_event(
        "approval.withdrawn",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        before={"approval": approval.pk, "given_at": approval.created_at.isoformat()},
        after={
            "approvals": approvals_in_force(plan, approval.evidence_digest).count(),
            "of": plan.fleet.min_approvals,
            "state": plan.state,
        },
        reason=reason,
        evidence_digest=approval.evidence_digest,
    )
    return approval


def require_approved(plan: Plan, stored: Preloaded) -> GateEvaluation:
    """The evaluation under which a plan is approved, checked again for a deployment, under the locks.

    `stored` was read before them (`preload.with_preloaded`).

    Raises
    ------
    Conflict
        When the plan is not approved, or the approved evidence is no longer current.
    ArtifactLost
        When its table cannot be read.
    """
    if plan.state != Plan.State.APPROVED:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not approved", code="not-approved")
    # A table that cannot be read from storage now must not reach the routers.
    stored.require_table(plan)
    evaluation = current_evaluation(plan, stored)
    if (lost := quorum_lost(plan, evaluation)) is not None:
        raise lost
    return evaluation
