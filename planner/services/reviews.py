"""Submitting, approving and rejecting: a second person decides on evidence that cannot change under them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from planner import artifacts
from planner.digests import digest
from planner.errors import Conflict, Invalid, NotAllowed, StaleVersion
from planner.models import Approval, GateEvaluation, Plan
from planner.services import audit, gates, rights
from planner.services.checklist import PASS
from planner.services.plans import lock_plan, move

# Parts of the evidence as people call them.
_WORDS = {
    "destinations_up": "the destinations that are up",
    "capacity_up": "the speeds of the destinations",
    "replan": "the live plan that it starts from",
    "fingerprints": "the serving profile",
    "policy": "the fleet's policy",
    "replay": "the replay",
    "what_ifs": "the what-if replays",
    "envelope": "the validated range",
}


@transaction.atomic
def submit_plan(*, acting_user: User, plan: Plan, expected_version: int | None = None) -> Plan:
    """Ask for a decision. Only a plan whose latest evaluation passed, on evidence still true, can be submitted.

    An approved plan is submitted again when its approvals are for other evidence than what is true now.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    plan = lock_plan(plan.pk, expected_version)
    evaluation = current_evaluation(plan)
    if plan.state == Plan.State.APPROVED and votes(plan, evaluation) >= plan.fleet.min_approvals:
        raise Conflict(f"{plan} is approved on this very evidence already")
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
    names = sorted(k for k in evidence if evidence[k] != evaluation.evidence.get(k))
    return [_WORDS.get(name, name) for name in names]


def current_evaluation(plan: Plan) -> GateEvaluation:
    """The latest evaluation, when it passed and its evidence is what would be collected and judged now.

    Raises
    ------
    Conflict
        Saying what is missing, did not pass, or changed since.
    """
    evaluation = plan.gate_evaluations.order_by("-id").first()
    if evaluation is None:
        raise Conflict("the checklist was not evaluated yet; replay the plan first", code="gate-missing")
    if not evaluation.passed:
        open_items = [str(item) for item in evaluation.items.exclude(verdict=PASS)]
        raise Conflict(f"the checklist does not pass: {'; '.join(open_items)}", code="gate-not-passed")
    evidence = gates.collect_evidence(plan)
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
    lapsed = [j.explanation for j in gates.judge(evidence) if j.verdict != PASS]
    if lapsed:
        raise Conflict(f"the checklist passed but no longer does: {lapsed[0]}", code="evidence-lapsed")
    return evaluation


def _decide(plan: Plan, evaluation: GateEvaluation, acting_user: User, decision: str, comment: str) -> Approval:
    assert plan.author is not None  # a database constraint of this kind of plan
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
            )
    except IntegrityError as error:
        raise Conflict("you have decided on this evaluation already", code="decided") from error


@transaction.atomic
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
    plan = lock_plan(plan.pk, expected_version)
    if plan.state != Plan.State.IN_REVIEW:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not in review")
    if acting_user.pk in (plan.author_id, plan.submitted_by_id):
        raise NotAllowed("The author and the submitter cannot approve; a second person must.", code="second-person")
    evaluation = current_evaluation(plan)
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
        after={"approvals": approvals, "of": plan.fleet.min_approvals, "state": plan.state},
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


def votes(plan: Plan, evaluation: GateEvaluation) -> int:
    """Different people who approved this very evidence, however often it was judged.

    Whoever has become the submitter since does not count: a second person is somebody else.
    """
    approving = plan.approvals.filter(decision=Approval.Decision.APPROVE, evidence_digest=evaluation.evidence_digest)
    return approving.exclude(approver__in=[plan.author_id, plan.submitted_by_id or plan.author_id]).count()


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
    if plan.rollouts.filter(state__in=["canary", "active"]).exists():
        raise Conflict(f"{plan} carries traffic; fall back or replace it first", code="live")
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


def require_approved(plan: Plan) -> GateEvaluation:
    """The evaluation under which a plan is approved, checked again for a deploy.

    Raises
    ------
    Conflict
        When the plan is not approved, or what was approved is not what is true now.
    """
    if plan.state != Plan.State.APPROVED:
        raise Conflict(f"{plan} is {plan.get_state_display()}, not approved", code="not-approved")
    evaluation = current_evaluation(plan)
    # What cannot be read from storage now must not reach the routers.
    assert plan.table is not None  # approved plans have one
    artifacts.verify(plan.table)
    if votes(plan, evaluation) < plan.fleet.min_approvals:
        raise Conflict(
            "the approvals are for other evidence than the latest; submit the plan for review again",
            code="evidence-stale",
        )
    return evaluation
