"""Ordering and building plans."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from planner import artifacts
from planner.digests import code_version, digest
from planner.errors import Conflict, Invalid, JobFailed, Refused
from planner.models import Calibration, Fleet, Job, Plan, PlanState, Workload
from planner.services import audit, jobs, plan_options, plan_tables, replay_options, rights
from planner.services.locking import lock

# Figures of a built table that the audit trail keeps.
REPORTED = ("admitted", "slots_used", "imbalance", "cannot_fit", "worst_loss", "moved_share", "cooled_share")


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
    incumbent: Plan | None = None,
    replay: dict[str, Any] | None = None,
    note: str = "",
    **options: Any,
) -> tuple[Plan, Job]:
    """Order a plan with the options of `plan_options.checked`.

    With `incumbent`, a plan of the fleet that has a table, it is a replan: what is warm stays where it is as far
    as the balance allows. The build is a job; with `replay` (see `replays.start_replay`) a replay follows it.
    """
    rights.require(acting_user, rights.PLAN, fleet)
    # Before the lock: falling back takes it too, and must not wait for a large file.
    plan_options.check_workload(fleet, workload, **options)
    if replay is not None:
        with _within_replay():
            replay_options.check_requests(workload, **replay)
            replay_options.check_others(fleet, workload, **replay)
    fleet = lock(Fleet, fleet.pk)
    parameters = plan_options.checked(fleet=fleet, calibration=calibration, incumbent=incumbent, **options)
    if replay is not None:
        # Refused now, while somebody is looking, and not after the build.
        with _within_replay():
            replay_options.chosen(Plan(fleet=fleet, calibration=calibration, parameters=parameters), **replay)
    latest = fleet.plans.aggregate(n=Max("number"))["n"] or 0
    plan = Plan.objects.create(
        fleet=fleet,
        number=latest + 1,
        workload=workload,
        calibration=calibration,
        incumbent=incumbent,
        parameters=parameters,
        fingerprint=fleet.serving_profile.fingerprint,
        inputs_digest=_inputs_digest(workload, incumbent, parameters),
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


@contextmanager
def _within_replay() -> Iterator[None]:
    """What is wrong with the options of the replay is named by its place in the order."""
    try:
        yield
    except Invalid as refusal:
        place = "workload" if refusal.field == "plan" else f"replay/{refusal.field}" if refusal.field else "replay"
        raise Invalid(refusal.message, code=refusal.code, field=place) from refusal


def _inputs_digest(workload: Workload, incumbent: Plan | None, parameters: dict[str, Any]) -> str:
    inputs: dict[str, Any] = {"rates": workload.rates.digest, "parameters": parameters}
    if incumbent is not None and incumbent.table is not None:
        inputs["incumbent"] = {"table": incumbent.table.digest, "destinations": incumbent.parameters["destinations"]}
    return digest(inputs)


def build_plan(job: Job) -> None:
    """Run the build of a claimed job: load rates, run Algorithm 1 or a replan, store the table."""
    with transaction.atomic():
        plan = lock_plan(job.subject_id or 0)
        if not _may_be_built(job, plan):
            return
        if plan.state == Plan.State.QUEUED:
            move(plan, Plan.State.BUILDING)
    jobs.progress(job, 1, "rates loaded")
    inputs = plan_tables.load_inputs(plan)
    started = time.perf_counter()
    try:
        built = plan_tables.build(plan, inputs)
    except ValueError as error:
        raise JobFailed(str(error)) from error
    build_ms = (time.perf_counter() - started) * 1e3
    jobs.progress(job, 2, "table built")
    stored = artifacts.store_table(built.table, inputs.key_names)
    summary = {**plan_tables.summary_of(plan, built), "build_ms": round(build_ms, 3)}
    prepared = _prepared_replay(job, plan)
    with transaction.atomic():
        plan = lock_plan(plan.pk)
        if not _may_be_built(job, plan):
            return
        plan.table, plan.summary, plan.code_version = stored, summary, code_version()
        move(plan, Plan.State.BUILT, "table", "summary", "code_version")
        audit.record(
            "plan.built",
            acting_user=job.created_by,
            fleet=plan.fleet,
            subject=plan,
            after={k: summary[k] for k in REPORTED},
            evidence_digest=stored.digest,
        )
        result = {"plan": plan.pk, "build_ms": summary["build_ms"]}
        # In this transaction, so that whoever waits for the build never sees a gap before the replay's job.
        result |= _replay_next(job, plan, prepared)
        jobs.finish(job, Job.State.SUCCEEDED, result=result)


def _may_be_built(job: Job, plan: Plan) -> bool:
    """Whether the job is still ours and its locked plan waits for a table; a job that can do nothing is closed."""
    if not jobs.lock_mine(job):
        return False  # cancelled, or another worker has taken it over
    if plan.state in (Plan.State.QUEUED, Plan.State.BUILDING):
        return True
    if plan.state != Plan.State.CANCELLED:
        raise JobFailed(f"{plan} is {plan.get_state_display()} already: there is nothing to build")
    jobs.finish(job, Job.State.CANCELLED, error=f"{plan} was cancelled")
    return False


def _prepared_replay(job: Job, plan: Plan) -> tuple[dict[str, Any], dict[str, Any] | None] | Refused | None:
    """The replay that follows the build, with its options checked, or why it cannot be; None when none is wanted.

    Reads storage, and so comes before the build's transaction: nobody waits for a large file at the plan's lock.
    """
    if not job.payload.get("replay"):
        return None
    assert plan.workload is not None  # a database constraint of this kind of plan
    try:
        rights.require(job.created_by, rights.PLAN, plan.fleet)
        chosen = replay_options.with_unknown_keys(plan, replay_options.chosen(plan, **job.payload["replay"]))
        return chosen, replay_options.check_requests(plan.workload, **chosen)
    except Refused as refusal:
        return refusal


def _replay_next(
    job: Job, plan: Plan, prepared: tuple[dict[str, Any], dict[str, Any] | None] | Refused | None
) -> dict[str, Any]:
    from planner.services import replays

    if prepared is None:
        return {}
    try:
        if isinstance(prepared, Refused):
            raise prepared
        row, following = replays._start(job.created_by, plan, None, *prepared)
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
