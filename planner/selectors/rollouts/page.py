"""Rollouts on pages: one rollout, those of a fleet, and the part of a plan page."""

from __future__ import annotations

from typing import Any

from planner.errors import ArtifactLost
from planner.models import AuditEvent, Fleet, Plan, Rollout, RolloutAnalysis
from planner.selectors.rollouts.blast_radius import blast_radius
from planner.selectors.rollouts.queries import (
    LONG_PLAN,
    freeze_of,
    open_freezes,
    rollout_state,
    rollouts_with_state,
    step_number,
)
from planner.selectors.rollouts.rollback_targets import retained_plans

SHOWN_ROLLOUTS = 50
SHOWN_ANALYSES = 50
SHOWN_EVENTS = 50
# Plans that may still come to traffic: their blast radius is shown before the approval.
UNDECIDED = (Plan.State.REPLAYED, Plan.State.IN_REVIEW, Plan.State.APPROVED)


def plan_part(plan: Plan) -> dict[str, object]:
    """Return the newest rollout of a plan, its standing, other rollouts ahead on the fleet, and the blast radius."""
    rollout = rollouts_with_state().filter(plan=plan).first()
    undecided = plan.state in UNDECIDED and plan.kind != Plan.Kind.FLAT
    on_traffic = rollout is not None and rollout.state in (Rollout.State.CANARY, Rollout.State.ACTIVE)
    return {
        "rollout": rollout,
        "standing": rollout_state(rollout) if rollout is not None else None,
        "other_ahead": _other_ahead(plan, rollout) if undecided else None,
        **(radius(plan) if undecided and not on_traffic else {}),
    }


def _other_ahead(plan: Plan, rollout: Rollout | None) -> Rollout | None:
    if rollout is not None and rollout.state in Rollout.AHEAD:
        return None
    ahead = (
        Rollout.objects.filter(fleet=plan.fleet_id, state__in=Rollout.AHEAD).select_related("plan").defer(*LONG_PLAN)
    )
    return ahead.first()


def radius(plan: Plan, against: Plan | None = None) -> dict[str, object]:
    """Return ``blast``, the blast radius, or None and in ``blast_lost`` the artifact that cannot be read."""
    try:
        found = blast_radius(plan, against)
    except ArtifactLost as lost:
        return {"blast": None, "blast_lost": lost.message}
    return {"blast": found, "blast_simulated": plan.workload is not None and plan.workload.simulated}


def rollout_page(rollout: Rollout) -> dict[str, object]:
    """Return the context of a rollout page without the header; the row is from `rollouts_with_state`."""
    analyses = list(rollout.analyses.order_by("-id")[:SHOWN_ANALYSES])
    ahead = rollout.state in Rollout.AHEAD
    return {
        "rollout": rollout,
        "standing": rollout_state(rollout),
        "rows": step_rows(rollout, analyses),
        "analyses": analyses,
        "simulated": any(analysis.simulated for analysis in analyses),
        "evaluation": rollout.plan.gate_evaluations.filter(evidence_digest=rollout.evidence_digest).only("pk").last(),
        "events": list(
            AuditEvent.objects.filter(fleet=rollout.fleet, subject_type="rollout", subject_id=rollout.pk)
            .defer("before", "after")
            .order_by("-id")[:SHOWN_EVENTS]
        ),
        **(radius(rollout.plan, rollout.incumbent) if ahead and rollout.incumbent is not None else {}),
    }


def step_rows(rollout: Rollout, analyses: list[RolloutAnalysis]) -> list[dict[str, Any]]:
    """Return the steps: ``is`` is done, current or ahead; each with its latest analysis."""
    latest: dict[int, RolloutAnalysis] = {}
    for analysis in analyses:  # the newest first
        latest.setdefault(analysis.step, analysis)
    holds = {step["weight"]: step["hold_s"] for step in rollout.planned_steps}
    now, carries = step_number(rollout), rollout.state in (Rollout.State.CANARY, Rollout.State.ACTIVE)
    rows: list[dict[str, Any]] = [
        {
            "number": step.number,
            "weight": step.weight,
            "hold_s": holds.get(step.weight),
            "is": "current" if step.number == now and carries else "done",
            "entered_at": step.entered_at,
            "entered_by": step.entered_by,
            "analysis": latest.get(step.number),
        }
        for step in rollout.steps.all()
    ]
    if rollout.state not in Rollout.AHEAD:
        return rows
    last = rows[-1]["weight"] if rows else 0.0
    weights = [*(step["weight"] for step in rollout.planned_steps if step["weight"] > last), 1.0]
    return rows + [
        {"number": now + at, "weight": weight, "hold_s": holds.get(weight), "is": "ahead", "entered_at": None}
        for at, weight in enumerate(weights, start=1)
    ]


def rollouts_page(fleet: Fleet) -> dict[str, object]:
    """Return the rollouts of a fleet, its rollback targets and freezes."""
    freezes = list(open_freezes())
    return {
        "rollouts": list(
            Rollout.objects.filter(fleet=fleet)
            .select_related("plan", "started_by")
            .defer(*LONG_PLAN)
            .order_by("-id")[:SHOWN_ROLLOUTS]
        ),
        "most": SHOWN_ROLLOUTS,
        "retained": retained_plans(fleet),
        "freeze_of_all": next((freeze for freeze in freezes if freeze.fleet_id is None), None),
        "freeze_of_fleet": next((freeze for freeze in freezes if freeze.fleet_id == fleet.pk), None),
        "freeze": freeze_of(fleet, freezes),
    }
