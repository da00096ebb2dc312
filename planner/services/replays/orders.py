"""Shadow replays: the candidate and Flat-LB on the same arrivals, at several loads and seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.digests import code_version
from planner.errors import Conflict
from planner.models import Job, Plan, PlanState, Replay, ReplayCell, Rollout
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.states import lock_plan, move_plan
from planner.services.jobs import jobs
from planner.services.replays.options import check_options, check_requests_of
from planner.simulation.options import ReplayOptions, SyntheticRequests

# Options that have a column of their own.
COLUMNS = ("policies", "loads_rps", "seeds", "arrivals")


def start_replay(
    *, acting_user: User, plan: Plan, expected_version: int | None = None, **options: Any
) -> tuple[Replay, Job]:
    """Start a replay of a built plan with options that `options.chosen` checks.

    Each (policy, load, seed) is a cell and runs as a task of its own. A replay with faults, a plan switch or other
    parameters of the two compared policies is a what-if: it leaves the state of the plan as it is, and is not evidence.

    Parameters
    ----------
    acting_user, plan
        Who starts it, and the candidate.
    expected_version
        Version of the plan that the caller has read; None skips the check.
    **options
        Options of `options.chosen`.

    Returns
    -------
    tuple of Replay and Job
        The replay, and its queued job.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    StaleVersion
        When the plan has another version than the expected one.
    Invalid
        For an option that cannot be used; `field` names it.
    Conflict
        For Flat-LB, or a state of the plan that does not allow it; while another replay of the plan is queued or
        running; also for an ordinary replay of a plan that carries traffic, because new evidence would void the
        approvals under a running rollout.
    ArtifactLost
        When the workload or the table of another plan cannot be read from storage.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    plan = Plan.objects.select_related("fleet__serving_profile", "workload__rates", "workload__trace").get(pk=plan.pk)
    if plan.kind == Plan.Kind.FLAT:
        raise Conflict("Flat-LB needs no replay: plans are compared with it")
    # Neither the inputs nor the workload of a plan change, so this takes no lock and may read files.
    chosen = check_options(plan, **options)
    assert plan.workload is not None  # A database constraint of this kind of plan.
    synthetic = check_requests_of(plan.workload, chosen)
    if synthetic is None:  # The number of requests that is replayed, not the number that was ordered.
        chosen = replace(chosen, requests=min(chosen.requests, plan.workload.request_count))
    return create_replay(acting_user, plan, expected_version, chosen, synthetic)


@transaction.atomic
def create_replay(
    acting_user: User,
    plan: Plan,
    expected_version: int | None,
    chosen: ReplayOptions,
    synthetic: SyntheticRequests | None,
) -> tuple[Replay, Job]:
    """Store a replay with its cells and its job. The caller has checked the right and the options.

    Parameters
    ----------
    acting_user, plan
        Who starts it, and the candidate; it is locked.
    expected_version
        Version of the plan that the caller has read; None skips the check.
    chosen
        Checked options of the replay.
    synthetic
        Settings of synthetic requests; None for a workload with a trace.

    Returns
    -------
    tuple of Replay and Job
        The replay, and its queued job.

    Raises
    ------
    StaleVersion
        When the plan has another version than the expected one.
    Conflict
        While another replay of the plan is queued or running, or when the state of the plan does not allow it; also for
        an ordinary replay of a plan that carries traffic.
    """
    plan = lock_plan(plan.pk, expected_version)
    running = plan.replays.filter(state=Replay.State.RUNNING).first()
    if running is not None:
        raise Conflict(f"{running} is queued or running: wait for it or cancel it")
    plan_state = "" if chosen.what_if else plan.state
    if not chosen.what_if:
        if plan.rollouts.filter(state__in=Rollout.LIVE).exists():
            raise Conflict(
                f"{plan} carries traffic, and another replay would replace the evidence of its approvals: replay it "
                "as a what-if, or order a plan with the same inputs and replay that",
                code="live",
            )
        move_plan(plan, Plan.State.REPLAYING)
    elif plan.state not in Plan.BUILT:
        raise Conflict(f"{plan} is {plan.get_state_display()}: it cannot be replayed")
    assert plan.workload is not None  # A database constraint of this kind of plan.
    profile = plan.fleet.serving_profile
    row = Replay.objects.create(
        plan=plan,
        workload=plan.workload,
        policies=list(chosen.policies),
        loads_rps=list(chosen.loads_rps),
        seeds=list(chosen.seeds),
        arrivals=chosen.arrivals,
        parameters={
            **{name: value for name, value in chosen.to_json().items() if name not in COLUMNS},
            "synthetic_trace": None if synthetic is None else synthetic.to_json(),
        },
        what_if=bool(chosen.what_if),
        plan_state=plan_state,
        slo_p99_s=plan.fleet.slo_p99_s,
        engine_profile=profile.engine_profile,
        fingerprint=profile.fingerprint,
        code_version=code_version(),
        created_by=acting_user,
    )
    names, loads, seeds = row.policies, row.loads_rps, row.seeds
    cells = [(policy, load, seed) for load in loads for seed in seeds for policy in names]
    ReplayCell.objects.bulk_create(
        ReplayCell(replay=row, policy=policy, load_rps=load, seed=seed) for policy, load, seed in cells
    )
    job = jobs.file_job(
        acting_user=acting_user, fleet=plan.fleet, kind=Job.Kind.REPLAY, subject_id=row.pk, total=len(cells)
    )
    record_event(
        "replay.started",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=row,
        after={
            "plan": plan.number,
            "policies": names,
            "loads_rps": loads,
            "seeds": seeds,
            "cells": len(cells),
            "what_if": list(chosen.what_if),
        },
    )
    return row, job


def after_cancelled_replay(*, acting_user: User, job: Job) -> None:
    """Close a cancelled replay and its open cells; the caller has locked the rows."""
    row = Replay.objects.get(pk=job.subject_id or 0)
    cancel_open_cells(row)
    row.state, row.finished_at = Replay.State.CANCELLED, timezone.now()
    row.bump("state", "finished_at")
    restore_state(row, Plan.objects.get(pk=row.plan_id))


def cancel_open_cells(row: Replay) -> None:
    """Cancel cells that are queued or running; a worker that runs one detects it and drops the result."""
    row.cells.filter(state__in=ReplayCell.OPEN).update(state=ReplayCell.State.CANCELLED, finished_at=timezone.now())


def restore_state(row: Replay, plan: Plan) -> None:
    """Restore the state that the locked plan had before a replay that was cancelled or failed: approvals are kept."""
    if plan.state == Plan.State.REPLAYING and not row.what_if:
        # Replays that started before the state was recorded restore the plan to built.
        move_plan(plan, PlanState(row.plan_state or Plan.State.BUILT))
