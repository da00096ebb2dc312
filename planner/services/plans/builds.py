"""Build the table of an ordered plan, as a job."""

from __future__ import annotations

import time

from django.contrib.auth.models import User
from django.db import transaction

from planner import artifacts
from planner.digests import code_version
from planner.errors import JobFailed, Refused
from planner.models import Job, Plan
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.states import lock_plan, move_plan
from planner.services.jobs import jobs, kinds
from planner.services.plans import tables as plan_tables
from planner.services.replays import options as replay_options
from planner.services.replays.orders import create_replay
from planner.simulation.options import ReplayOptions, SyntheticRequests

# Checked options of the replay that follows a build, and the settings of its requests.
PreparedReplay = tuple[ReplayOptions, SyntheticRequests | None]

# Figures of a built table that the audit event contains.
REPORTED = ("admitted", "slots_used", "imbalance", "cannot_fit", "worst_loss", "moved_share", "cooled_share")


def build_plan(job: Job) -> None:
    """Run the build of a claimed job: load rates, run Algorithm 1 or a replan, store the table."""
    with transaction.atomic():
        plan = lock_plan(job.subject_id or 0)
        if not _may_be_built(job, plan):
            return
        if plan.state == Plan.State.QUEUED:
            move_plan(plan, Plan.State.BUILDING)
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
        move_plan(plan, Plan.State.BUILT, "table", "summary", "code_version")
        record_event(
            "plan.built",
            acting_user=job.created_by,
            fleet=plan.fleet,
            subject=plan,
            after={k: summary[k] for k in REPORTED},
            evidence_digest=stored.digest,
        )
        result = {"plan": plan.pk, "build_ms": summary["build_ms"]}
        # In this transaction, so that the build never appears finished without the job of its replay.
        result |= _replay_next(job, plan, prepared)
        jobs.finish(job, Job.State.SUCCEEDED, result=result)


def _may_be_built(job: Job, plan: Plan) -> bool:
    """Whether this worker still holds the job and its locked plan waits for a table; a job with nothing to do is
    closed.
    """
    if not jobs.lock_mine(job):
        return False  # Cancelled, or claimed by another worker.
    if plan.state in (Plan.State.QUEUED, Plan.State.BUILDING):
        return True
    if plan.state != Plan.State.CANCELLED:
        raise JobFailed(f"{plan} is already {plan.get_state_display()}: there is nothing to build")
    jobs.finish(job, Job.State.CANCELLED, error=f"{plan} was cancelled")
    return False


def _prepared_replay(job: Job, plan: Plan) -> PreparedReplay | Refused | None:
    """The replay that follows the build, with its options checked, or why it cannot start; None when none is ordered.

    Reads storage, so it runs before the transaction of the build: nobody waits for a large file at the lock.
    """
    if not job.payload.get("replay"):
        return None
    assert plan.workload is not None  # A database constraint of this kind of plan.
    try:
        rights.require(job.created_by, rights.PLAN, plan.fleet)
        chosen = replay_options.with_unknown_keys(plan, replay_options.chosen(plan, **job.payload["replay"]))
        return chosen, replay_options.check_requests_of(plan.workload, chosen)
    except Refused as refusal:
        return refusal


def _replay_next(job: Job, plan: Plan, prepared: PreparedReplay | Refused | None) -> JsonObject:
    if prepared is None:
        return {}
    try:
        if isinstance(prepared, Refused):
            raise prepared
        row, following = create_replay(job.created_by, plan, None, *prepared)
    except Refused as refusal:
        return {"replay_refused": refusal.message}
    return {"replay": row.pk, "replay_job": following.pk}


@transaction.atomic
def build_failed(job: Job, *, message: str, crashed: bool) -> None:
    """Record that a build failed. A job that was cancelled or claimed by another worker, and its plan, do not change.

    Parameters
    ----------
    job, message
        The job, and the cause as users read it; a plan that waits for its table fails with it.
    crashed
        True for a fault (job state "errored"), False for an expected failure (job state "failed").
    """
    plan = lock_plan(job.subject_id or 0)
    if not jobs.lock_mine(job):
        return  # Cancelled, or claimed by another worker.
    jobs.finish(job, Job.State.ERRORED if crashed else Job.State.FAILED, error=message)
    if plan.state in (Plan.State.QUEUED, Plan.State.BUILDING):
        plan.failure = message
        move_plan(plan, Plan.State.FAILED, "failure")
        record_event(
            "plan.build_failed",
            acting_user=job.created_by,
            fleet=plan.fleet,
            subject=plan,
            after={"state": plan.state},
            reason=message,
        )


def after_cancelled_build(*, acting_user: User, job: Job) -> None:
    """Cancel the plan of a cancelled build; the caller has locked its row."""
    plan = Plan.objects.get(pk=job.subject_id or 0)
    if plan.state in (Plan.State.QUEUED, Plan.State.BUILDING):
        move_plan(plan, Plan.State.CANCELLED)
        record_event("plan.cancelled", acting_user=acting_user, fleet=plan.fleet, subject=plan)


kinds.register(
    Job.Kind.BUILD_PLAN,
    kinds.JobKind(run=build_plan, failed=build_failed, lock=lock_plan, cancelled=after_cancelled_build),
)
