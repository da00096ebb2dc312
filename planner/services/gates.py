"""Judging a plan by the checklist, and keeping what was judged."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner import artifacts
from planner.digests import digest
from planner.errors import ArtifactLost
from planner.models import GateEvaluation, GateItem, Plan
from planner.selectors import monitoring
from planner.services import audit, checks, rights
from planner.services.checks import JudgedItem, Live
from planner.services.evidence import FORMAT, collect_evidence

__all__ = ["FORMAT", "collect_evidence", "evaluate_gate", "judge", "judge_plan", "live_of"]


def live_of(plan: Plan) -> Live:
    """What is true of the plan at this moment and is no part of its evidence."""
    return Live(
        now=timezone.now(),
        table_readable=_readable(plan),
        monitor_at=monitoring.last_ran(),
        telemetry_at=monitoring.last_telemetry(plan.fleet),
    )


def _readable(plan: Plan) -> bool:
    if plan.table is None:
        return False
    try:
        artifacts.verify(plan.table)
    except ArtifactLost:
        return False
    return True


def judge(plan: Plan, evidence: dict[str, object]) -> list[JudgedItem]:
    """The six items, in order, as they are judged at this moment."""
    return checks.judge(evidence, live_of(plan))


def evaluate_gate(*, acting_user: User, plan: Plan) -> GateEvaluation:
    """Judge the plan now, because somebody with the right to plan asks for it."""
    rights.require(acting_user, rights.PLAN, plan.fleet)
    return judge_plan(acting_user=acting_user, plan=plan)


@transaction.atomic
def judge_plan(*, acting_user: User | None, plan: Plan) -> GateEvaluation:
    """Judge the plan now and store evidence, verdicts and digest. Older evaluations stay as they are."""
    from planner.services.plans import lock_plan

    plan = lock_plan(plan.pk)
    evidence = collect_evidence(plan)
    items = judge(plan, evidence)
    evaluation = GateEvaluation.objects.create(
        plan=plan,
        replay_id=evidence["replay"]["id"] if evidence["replay"] else None,
        passed=checks.passed(items),
        policy_version=evidence["policy"]["version"],
        evidence=evidence,
        evidence_digest=digest(evidence),
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
    audit.record(
        "gate.evaluated",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={
            "passed": evaluation.passed,
            "items": [item.verdict for item in items],
            "policy_version": evaluation.policy_version,
            "waived": [w["check"] for w in evidence["waivers"]],
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
