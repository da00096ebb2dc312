"""Submitting, approving and rejecting: a second person decides on evidence that cannot change under them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from planner.digests import digest
from planner.errors import Conflict, Invalid, NotAllowed, StaleVersion
from planner.models import Approval, GateEvaluation, Plan, Rollout
from planner.selectors.rollout_state import LIVE
from planner.selectors.votes import approvers_of, in_force
from planner.services import audit, checks, gates, rights
from planner.services.evidence import waivers_in_force
from planner.services.locking import lock
from planner.services.plans import lock_plan, move
from planner.services.stored import Stored, after_reading

# Parts of the evidence as people call them.
_WORDS = {
    "destinations_up": "the destinations that are up",
    "capacity_up": "the speeds of the destinations",
    "replan": "the live plan that it starts from",
    "incumbent": "the plan that is live",
    "fingerprints": "the serving profile",
    "distribution": "the distribution of the rates",
    "policy": "the fleet's policy",
    "replay": "the replay",
    "what_ifs": "the what-if replays",
    "envelope": "the validated range",
    "blast_radius": "what it would touch",
    "waivers": "the waivers in force",
}
# Parts that follow from others: named alone they would say little, and beside them nothing new.
_FOLLOWS = {"blast_radius": ("incumbent",), "envelope": ("policy", "replay"), "incumbent": ("replan",)}
# One that ran out is closed when its giver approves anew: later than its time, and no withdrawal.
_EXPIRED = Q(withdrawn_at=None) | Q(withdrawn_at__gte=F("expires_at"))


def submit_plan(*, acting_user: User, plan: Plan, expected_version: int | None = None) -> Plan:
    """Ask for a decision. Only a plan whose latest evaluation passed, on evidence still true, can be submitted.

    An approved plan is submitted again when its approvals are for other evidence than what is true now.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    return after_reading(plan.pk, lambda stored: _submit(acting_user, plan, expected_version, stored))


def _submit(acting_user: User, plan: Plan, expected_version: int | None, stored: Stored) -> Plan:
    plan = lock_plan(plan.pk, expected_version)
    rights.require_now(acting_user, rights.PLAN, plan.fleet)
    evaluation = current_evaluation(plan, stored)
    if plan.state == Plan.State.APPROVED and votes(plan, evaluation) >= plan.fleet.min_approvals:
        raise Conflict(f"{plan} is approved on this very evidence already")
    if acting_user.get_username() in {w["granted_by"] for w in waivers_in_force(plan)}:
        raise NotAllowed(
            "You granted a waiver of this plan; somebody else must submit it, for you are its second person.",
            code="second-person",
        )
    plan.submitted_by = acting_user
    move(plan, Plan.State.IN_REVIEW, "submitted_by")
    audit.record("plan.submitted", acting_user=acting_user, fleet=plan.fleet, subject=plan, after={"state": plan.state})
    return plan


def changed_since(plan: Plan, evaluation: GateEvaluation) -> list[str]:
    """What is not any more as it was judged, in words; empty while the evidence is still true."""
    return _changed(gates.collect_evidence(plan), evaluation)


def _changed(evidence: dict[str, Any], evaluation: GateEvaluation) -> list[str]:
    if digest(evidence) == evaluation.evidence_digest:
        return []
    if evaluation.evidence.get("format") != evidence["format"]:
        return ["what the console looks at"]
    then = evaluation.evidence
    names = {k for k in {*evidence, *then} if evidence.get(k) != then.get(k)}
    if "incumbent" in names and _without_incumbent(evidence) == _without_incumbent(then):
        names.discard("replay")  # the replay is the same; who is live beside it is not
    told = [name for name in sorted(names) if not names.intersection(_FOLLOWS.get(name, ()))]
    return [_told(name, evidence, then) for name in told]


def _without_incumbent(evidence: dict[str, Any]) -> dict[str, Any]:
    return {**(evidence.get("replay") or {}), "incumbent": None}


def _told(name: str, now: dict[str, Any], then: dict[str, Any]) -> str:
    """A part of the evidence in words; of the policy which values, so that nobody has to look for them."""
    words = _WORDS.get(name, name)
    if name != "policy" or not then.get(name):
        return words
    changed = [k for k in sorted(now[name]) if k != "version" and now[name][k] != then[name].get(k)]
    fields = [k.replace("_", " ") for k in changed]
    return f"{words} ({', '.join(fields)})" if fields else f"{words} (version {now[name]['version']})"


def current_evaluation(plan: Plan, stored: Stored) -> GateEvaluation:
    """The latest evaluation, when it passed and its evidence is what would be collected and judged now.

    `stored` was read before the plan was locked (`stored.after_reading`).

    Raises
    ------
    Conflict
        Saying what is missing, did not pass, or changed since.
    """
    evaluation = plan.gate_evaluations.order_by("-id").first()
    if evaluation is None:
        raise Conflict("the checklist was not evaluated yet; replay the plan first", code="gate-missing")
    if not evaluation.passed:
        open_items = [str(item) for item in evaluation.items.exclude(verdict=checks.PASS).filter(waived=False)]
        raise Conflict(f"the checklist does not pass: {'; '.join(open_items)}", code="gate-not-passed")
    evidence = gates.collect_evidence(plan, stored)
    if evaluation.evidence.get("format") != evidence["format"]:
        raise Conflict(
            "the checklist was evaluated by an older version of the console, which looked at less; somebody who may "
            "plan has to evaluate it again",
            code="evidence-stale",
        )
    if changed := _changed(evidence, evaluation):
        raise Conflict(
            f"the evidence changed since it was judged ({', '.join(changed)}); somebody who may plan has to evaluate "
            "the checklist again",
            code="evidence-stale",
        )
    lapsed = [item.explanation for item in gates.judge(plan, evidence, stored) if not item.settled]
    if lapsed:
        raise Conflict(f"the checklist passed but no longer does: {lapsed[0]}", code="evidence-lapsed")
    return evaluation


def _decide(plan: Plan, evaluation: GateEvaluation, acting_user: User, decision: str, comment: str) -> Approval:
    assert plan.author is not None  # a database constraint of this kind of plan
    approves = decision == Approval.Decision.APPROVE
    now = timezone.now()
    mine = plan.approvals.filter(approver=acting_user, evidence_digest=evaluation.evidence_digest, decision=decision)
    # One that has run out makes room for a new one.
    mine.filter(withdrawn_at=None, expires_at__lte=now).update(withdrawn_at=now, withdrawn_reason="it had run out")
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
        raise Conflict("you have decided on this evaluation already", code="decided") from error


def _shared_email(approver: User, plan: Plan) -> str:
    """The address that the approver has in common with the author or submitter: perhaps one person, two accounts."""
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
    """Approve on the evidence that was shown (`evidence_digest`). Never the author or submitter, admin or not.

    The plan is approved when the fleet's quorum of different people is reached.
    """
    rights.require(acting_user, rights.APPROVE, plan.fleet)
    return after_reading(
        plan.pk, lambda stored: _approve(acting_user, plan, evidence_digest, comment, expected_version, stored)
    )


def _approve(
    acting_user: User,
    plan: Plan,
    evidence_digest: str,
    comment: str,
    expected_version: int | None,
    stored: Stored,
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
            "The evidence was judged again since you read it; look at it once more.", code="evidence-stale"
        )
    approval = _decide(plan, evaluation, acting_user, Approval.Decision.APPROVE, comment)
    approvals = votes(plan, evaluation)
    if approvals >= plan.fleet.min_approvals:
        move(plan, Plan.State.APPROVED)
    else:
        plan.bump()
    audit.record(
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
    """Reject a plan in review; the reason is required, for the author reads it."""
    rights.require(acting_user, rights.APPROVE, plan.fleet)
    if not comment.strip():
        raise Invalid("say why, so that the author can mend it", field="comment")
    plan = lock_plan(plan.pk, expected_version)
    if plan.state != Plan.State.IN_REVIEW:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not in review")
    evaluation = plan.gate_evaluations.latest("id")
    decision = _decide(plan, evaluation, acting_user, Approval.Decision.REJECT, comment)
    move(plan, Plan.State.REJECTED)
    audit.record(
        "plan.rejected",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={"state": plan.state},
        reason=comment,
        evidence_digest=evaluation.evidence_digest,
    )
    return decision


def standing(plan: Plan, evidence_digest: str) -> QuerySet[Approval]:
    """Approvals that count: of this very evidence, neither withdrawn nor expired, by others who may still approve.

    Whoever has become the submitter since does not count: a second person is somebody else. Nor does who lost the
    right, or whose account was switched off.
    """
    return _in_force(plan, evidence_digest).filter(approver__in=approvers_of(plan.fleet_id))


def _in_force(plan: Plan, evidence_digest: str) -> QuerySet[Approval]:
    given = plan.approvals.filter(in_force(), decision=Approval.Decision.APPROVE, evidence_digest=evidence_digest)
    return given.exclude(approver__in=[plan.author_id, plan.submitted_by_id or plan.author_id])


def votes(plan: Plan, evaluation: GateEvaluation) -> int:
    """Different people who approved this very evidence, however often it was judged."""
    return standing(plan, evaluation.evidence_digest).count()  # by constraint one a person


def quorum_lost(plan: Plan, evaluation: GateEvaluation) -> Conflict | None:
    """Why an approved plan has not the approvals that it needs any more; None while it has them.

    The quorum is the fleet's of this moment, whatever it was when people voted.
    """
    have, need = votes(plan, evaluation), plan.fleet.min_approvals
    if have >= need:
        return None
    counted = standing(plan, evaluation.evidence_digest)
    given = plan.approvals.filter(decision=Approval.Decision.APPROVE, evidence_digest=evaluation.evidence_digest)
    given = given.exclude(approver__in=counted.values("approver")).select_related("approver")
    again = f"{have} of {need} stand; submit the plan for review again"
    lost = _in_force(plan, evaluation.evidence_digest).exclude(pk__in=counted.values("pk")).select_related("approver")
    if names := ", ".join(sorted(str(approval.approver) for approval in lost)):
        text = f"{names} approved and may not approve on this fleet any more: {again}"
        return Conflict(text, code="approver-lost-right")
    if expired := given.filter(_EXPIRED, expires_at__lte=timezone.now()).order_by("-expires_at").first():
        assert expired.expires_at is not None  # filtered by it
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
    """Take one's own approval back. It counts no longer; a plan that lacks one cannot be deployed or taken further.

    What carries traffic stays there: to take it off is to abort or to fall back.
    """
    plan = lock_plan(approval.plan_id)
    approval = lock(Approval, approval.pk)
    if approval.approver_id != acting_user.pk:
        raise NotAllowed("Only who gave an approval can withdraw it; reject the plan instead.", code="not-yours")
    if approval.decision != Approval.Decision.APPROVE:
        raise Conflict("a rejection is final: order a plan with the same inputs instead")
    if approval.withdrawn_at is not None:
        raise Conflict("this approval is withdrawn already", code="withdrawn")
    approval.withdrawn_at, approval.withdrawn_reason = timezone.now(), reason
    approval.save(update_fields=["withdrawn_at", "withdrawn_reason"])
    plan.bump()
    audit.record(
        "approval.withdrawn",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        before={"approval": approval.pk, "given_at": approval.created_at.isoformat()},
        after={
            "approvals": standing(plan, approval.evidence_digest).count(),
            "of": plan.fleet.min_approvals,
            "state": plan.state,
        },
        reason=reason,
        evidence_digest=approval.evidence_digest,
    )
    return approval


@transaction.atomic
def withdraw_plan(*, acting_user: User, plan: Plan, expected_version: int | None = None) -> Plan:
    """Take a plan back from review."""
    rights.require(acting_user, rights.PLAN, plan.fleet)
    plan = lock_plan(plan.pk, expected_version)
    if plan.state != Plan.State.IN_REVIEW:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not in review")
    move(plan, Plan.State.REPLAYED)
    audit.record("plan.withdrawn", acting_user=acting_user, fleet=plan.fleet, subject=plan, after={"state": plan.state})
    return plan


@transaction.atomic
def retire_plan(*, acting_user: User, plan: Plan, reason: str = "", expected_version: int | None = None) -> Plan:
    """Put a plan away for good: an approved one is retired, one that never got that far is cancelled."""
    rights.require(acting_user, rights.PLAN, plan.fleet)
    plan = lock_plan(plan.pk, expected_version)
    if plan.kind == Plan.Kind.FLAT:
        raise Conflict("Flat-LB is never put away: it is what a fleet falls back to")
    if plan.rollouts.filter(state__in=LIVE).exists():
        raise Conflict(f"{plan} carries traffic; fall back or replace it first", code="live")
    if (ahead := plan.rollouts.filter(state=Rollout.State.SCHEDULED).first()) is not None:
        at = f"{ahead.scheduled_for:%Y-%m-%d %H:%M} UTC"
        raise Conflict(f"the canary of {plan} is scheduled for {at}; call that off first", code="scheduled")
    if plan.state not in (Plan.State.BUILT, Plan.State.REPLAYED, Plan.State.APPROVED):
        raise Conflict(f"{plan} is {plan.get_state_display()}; cancel its job or withdraw it first")
    move(plan, Plan.State.RETIRED if plan.state == Plan.State.APPROVED else Plan.State.CANCELLED)
    audit.record(
        "plan.retired",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={"state": plan.state},
        reason=reason,
    )
    return plan


def require_approved(plan: Plan, stored: Stored) -> GateEvaluation:
    """The evaluation under which a plan is approved, checked again for a deploy, under the locks.

    `stored` was read before them (`stored.after_reading`).

    Raises
    ------
    Conflict
        When the plan is not approved, or what was approved is not what is true now.
    """
    if plan.state != Plan.State.APPROVED:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not approved", code="not-approved")
    # What cannot be read from storage now must not reach the routers.
    stored.require_table(plan)
    evaluation = current_evaluation(plan, stored)
    if (lost := quorum_lost(plan, evaluation)) is not None:
        raise lost
    return evaluation
