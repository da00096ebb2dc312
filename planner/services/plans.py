"""Ordering and building plans."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from planner import artifacts
from planner.digests import code_version, digest
from planner.errors import Conflict, Invalid, JobFailed, Refused
from planner.models import Calibration, Destination, Fleet, Job, Plan, PlanState, Workload
from planner.routing import build_table
from planner.services import audit, jobs, rights
from planner.services.locking import lock

ADMISSIONS = ("top_rate",)


def lock_plan(pk: int, expected_version: int | None = None) -> Plan:
    """The plan's row, locked."""
    plan: Plan = lock(Plan, pk, expected_version)
    return plan


def move(plan: Plan, state: PlanState, *fields: str) -> None:
    """Change the state of a locked plan, refusing what its transitions do not allow."""
    if not PlanState(plan.state).may_become(state):
        raise Conflict(f"{plan} is {plan.get_state_display()}; it cannot become {state.label}")
    plan.state = state
    plan.bump("state", *fields)


@transaction.atomic
def order_plan(
    *,
    acting_user: User,
    fleet: Fleet,
    workload: Workload,
    calibration: Calibration,
    admission: str = "top_rate",
    balance_target: float | None = None,
    slots_per_destination: int | None = None,
    replay: dict[str, Any] | None = None,
    note: str = "",
) -> tuple[Plan, Job]:
    """Order a plan. The build is a job; with `replay` (see `replays.start_replay`) a replay follows it."""
    rights.require(acting_user, rights.PLAN)
    fleet = lock(Fleet, fleet.pk)
    if workload.fleet_id != fleet.pk:
        raise Invalid("this workload belongs to another fleet", field="workload")
    if calibration.fleet_id != fleet.pk:
        raise Invalid("this calibration belongs to another fleet", field="calibration")
    if admission not in ADMISSIONS:
        raise Invalid(f"{admission!r} is not one of {', '.join(ADMISSIONS)}", field="admission")
    if balance_target is not None and not 1 <= balance_target < 1e6:
        raise Invalid("the balance target is a max/mean ratio of at least 1", field="balance_target")
    slots = calibration.warm_slots if slots_per_destination is None else slots_per_destination
    if not 0 <= slots <= 1_000_000_000:
        raise Invalid("warm slots are a whole number from 0 to 1,000,000,000", field="slots_per_destination")
    up = list(fleet.destinations.filter(state=Destination.State.UP).order_by("index"))
    if not up:
        raise Conflict("no destination of this fleet is up, so there is nowhere to place a key")
    parameters = {
        "admission": admission,
        "balance_target": balance_target,
        "q_cap": calibration.q_cap,
        "slots_per_destination": slots,
        "slots": slots * len(up),
        # Members of the table are positions in this list of the fleet's destination indices.
        "destinations": [d.index for d in up],
    }
    if replay is not None:
        from planner.services import replays

        # Refused now, while somebody is looking, and not after the build.
        replays.check_options(Plan(fleet=fleet, calibration=calibration, parameters=parameters), **replay)
    latest = fleet.plans.aggregate(n=Max("number"))["n"] or 0
    plan = Plan.objects.create(
        fleet=fleet,
        number=latest + 1,
        workload=workload,
        calibration=calibration,
        parameters=parameters,
        fingerprint=fleet.serving_profile.fingerprint,
        inputs_digest=digest({"rates": workload.rates.digest, "parameters": parameters}),
        author=acting_user,
        note=note,
    )
    job = jobs.file_job(
        acting_user=acting_user,
        fleet=fleet,
        kind=Job.Kind.BUILD_PLAN,
        subject_id=plan.pk,
        total=3,
        payload={"replay": replay},
    )
    audit.record(
        "plan.ordered",
        acting_user=acting_user,
        fleet=fleet,
        subject=plan,
        after={"workload": workload.name, "calibration": calibration.pk, **parameters, "replay": bool(replay)},
        reason=note,
    )
    return plan, job


def build_plan(job: Job) -> None:
    """Run the build of a claimed job: load rates, run Algorithm 1, store the table."""
    with transaction.atomic():
        plan = lock_plan(job.subject_id or 0)
        if plan.state == Plan.State.QUEUED:
            move(plan, Plan.State.BUILDING)
    jobs.progress(job, 1, "rates loaded")
    workload, parameters = plan.workload, plan.parameters
    assert workload is not None  # a database constraint of this kind of plan
    key_names, rates = artifacts.load_rates(workload.rates)
    started = time.perf_counter()
    try:
        table = build_table(
            rates,
            destinations=len(parameters["destinations"]),
            q_cap=parameters["q_cap"],
            slots=parameters["slots"],
            admission=parameters["admission"],
            balance_target=parameters["balance_target"],
        )
    except ValueError as error:
        raise JobFailed(str(error)) from error
    build_ms = (time.perf_counter() - started) * 1e3
    jobs.progress(job, 2, "table built")
    stored = artifacts.store_table(table, key_names)
    total = float(rates.sum())
    top = [
        {"key": key_names[i], "rate": float(rates[i]), "members": table.members_of(i).tolist()}
        for i in table.admitted[:20].tolist()
    ]
    summary = {
        "keys": len(rates),
        "admitted": len(table.admitted),
        "admitted_rate": float(table.admitted_rate),
        "admitted_share": float(table.admitted_rate) / total if total else 0.0,
        "replicated": int(np.count_nonzero(table.replicas > 1)),
        "cannot_fit": len(table.cannot_fit),
        "slots_used": int(table.slots_used),
        "imbalance": float(table.imbalance),
        "load": [round(float(x), 6) for x in table.load],
        "top_keys": top,
        "build_ms": round(build_ms, 3),
    }
    with transaction.atomic():
        plan = lock_plan(plan.pk)
        if not jobs.lock_mine(job) or plan.state != Plan.State.BUILDING:
            return
        plan.table, plan.summary, plan.code_version = stored, summary, code_version()
        move(plan, Plan.State.BUILT, "table", "summary", "code_version")
        audit.record(
            "plan.built",
            acting_user=job.created_by,
            fleet=plan.fleet,
            subject=plan,
            after={k: summary[k] for k in ("admitted", "slots_used", "imbalance", "cannot_fit")},
            evidence_digest=stored.digest,
        )
        result = {"plan": plan.pk, "build_ms": summary["build_ms"]}
        # In this transaction, so that whoever waits for the build never sees a gap before the replay's job.
        result |= _replay_next(job, plan)
        jobs.finish(job, Job.State.SUCCEEDED, result=result)


def _replay_next(job: Job, plan: Plan) -> dict[str, Any]:
    from planner.services import replays

    if not job.payload.get("replay"):
        return {}
    try:
        row, following = replays.start_replay(acting_user=job.created_by, plan=plan, **job.payload["replay"])
    except Refused as refusal:
        return {"replay_refused": refusal.message}
    return {"replay": row.pk, "replay_job": following.pk}


@transaction.atomic
def build_failed(job: Job, *, message: str, crashed: bool) -> None:
    """Record that a build could not be done."""
    plan = lock_plan(job.subject_id or 0)
    if not jobs.lock_mine(job):
        return  # cancelled, or another worker has taken it over
    jobs.finish(job, Job.State.ERRORED if crashed else Job.State.FAILED, error=message)
    if plan.state in (Plan.State.QUEUED, Plan.State.BUILDING):
        plan.failure = message
        move(plan, Plan.State.FAILED, "failure")
        audit.record(
            "plan.build_failed",
            acting_user=job.created_by,
            fleet=plan.fleet,
            subject=plan,
            after={"state": plan.state},
            reason=message,
        )


def after_cancelled_build(*, acting_user: User, job: Job) -> None:
    """The plan of a cancelled build is cancelled with it (its row is locked by the caller)."""
    plan = Plan.objects.get(pk=job.subject_id or 0)
    if plan.state in (Plan.State.QUEUED, Plan.State.BUILDING):
        move(plan, Plan.State.CANCELLED)
        audit.record("plan.cancelled", acting_user=acting_user, fleet=plan.fleet, subject=plan)
