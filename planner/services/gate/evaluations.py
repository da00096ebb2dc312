"""Judge a plan by the checklist, and store the evaluation."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner import checklist
from planner.checklist import JudgedItem, Live
from planner.checklist.evidence import Evidence
from planner.digests import digest
from planner.models import GateEvaluation, GateItem, Plan
from planner.selectors.access import rights
from planner.selectors.monitoring import queries as monitoring
from planner.services.audit.events import record_event
from planner.services.base.states import lock_plan
from planner.services.gate.evidence import collect_evidence
from planner.services.gate.preload import Preloaded, read_table, with_preloaded


def live_of(plan: Plan, stored: Preloaded | None = None) -> Live:
    """The facts about the plan at this moment that are not part of its evidence; `stored` as in `collect_evidence`."""
    return Live(
        now=timezone.now(),
        table_readable=(stored or read_table(plan)).readable(plan),
        monitor_at=monitoring.last_ran(plan.fleet),
        telemetry_at=monitoring.last_telemetry(plan.fleet),
    )


def judge(plan: Plan, evidence: Evidence, stored: Preloaded | None = None) -> list[JudgedItem]:
    """Judge the six items of the checklist at this moment.

    Parameters
    ----------
    plan, evidence
        The plan, and its evidence.
    stored
        As in `collect_evidence`; without it the table of the plan is verified now.

    Returns
    -------
    list of JudgedItem
        The six items, in order.
    """
    return checklist.judge(evidence, live_of(plan, stored))


def evaluate_gate(*, acting_user: User, plan: Plan) -> GateEvaluation:
    """Judge the plan now, for a user with the right to plan."""
    rights.require(acting_user, rights.PLAN, plan.fleet)
    return with_preloaded(plan.pk, lambda stored: judge_plan(acting_user=acting_user, plan=plan, stored=stored))


@transaction.atomic
def judge_plan(*, acting_user: User | None, plan: Plan, stored: Preloaded) -> GateEvaluation:
    """Judge the plan now; store evidence, verdicts and digest. Older evaluations do not change.

    Parameters
    ----------
    acting_user
        The user in the audit event; None for the console. The caller checks the right.
    plan
        The plan; it is locked until the transaction ends.
    stored
        What `preload.read` has read of this plan.

    Returns
    -------
    GateEvaluation
        The stored evaluation.

    Raises
    ------
    preload.NotPreloaded
        When `stored` was read for another active plan than the present one.
    """
    plan = lock_plan(plan.pk)
    evidence = collect_evidence(plan, stored)
    items = judge(plan, evidence, stored)
    evaluation = GateEvaluation.objects.create(
        plan=plan,
        replay_id=evidence.replay.id if evidence.replay else None,
        passed=checklist.passed(items),
        policy_version=evidence.policy.version,
        evidence=evidence.document,
        evidence_digest=digest(evidence.document),
        created_by=acting_user,
    )
    GateItem.objects.bulk_create(
        GateItem(
            evaluation=evaluation,
            number=item.number,
            title=item.title,
            verdict=item.verdict,
            explanation=item.explanation,
            numbers=item.numbers,
            links=_links(plan, evaluation, item.number),
            checks=[judged.as_dict() for judged in item.checks],
            waived=item.waived,
        )
        for item in items
    )
    record_event(
        "gate.evaluated",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={
            "passed": evaluation.passed,
            "items": [item.verdict for item in items],
            "policy_version": evaluation.policy_version,
            "waived": [waiver.check for waiver in evidence.waivers],
        },
        evidence_digest=evaluation.evidence_digest,
    )
    return evaluation


def _links(plan: Plan, evaluation: GateEvaluation, number: int) -> list[list[str]]:
    replay = [["replay", f"/api/v1/replays/{evaluation.replay_id}/"]] if evaluation.replay_id else []
    calibration = ["calibration", f"/api/v1/calibrations/{plan.calibration_id}/"]
    return {
        1: [["workload", f"/api/v1/workloads/{plan.workload_id}/"], calibration],
        2: [calibration],
        3: replay,
        4: replay,
        5: replay,
        6: [["fleet", f"/api/v1/fleets/{plan.fleet.slug}/"], calibration, *replay],
    }[number]
