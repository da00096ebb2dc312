"""Studies of a built plan: how its table would change with other inputs."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from planner.digests import code_version, digest
from planner.errors import Conflict, Invalid, JobFailed
from planner.models import Job, Plan, Study
from planner.records import JsonObject
from planner.routing.sensitivity import FACTORS, HEAD_SHARES, sensitivity
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.states import lock_plan
from planner.services.jobs import jobs, kinds
from planner.services.plans import tables as plan_tables


@transaction.atomic
def order_study(*, acting_user: User, plan: Plan, kind: str = Study.Kind.SENSITIVITY) -> Job:
    """Order a study of a plan that has its table.

    The result is a `Study`; the table does not change. ``sensitivity``: warm slots and q_cap are varied together, from
    0.75 to 1.25 times the values of the plan, under five shares of the key of highest rate: 125 plans from scratch with
    the options of the plan.

    Parameters
    ----------
    acting_user, plan
        Who orders it, and the plan.
    kind
        A value of `Study.Kind`.

    Returns
    -------
    Job
        The queued job.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    Invalid
        For an unknown kind.
    Conflict
        When the plan has no table, or a study of it is queued or running.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    if kind not in Study.Kind.values:
        raise Invalid(f"{kind!r} is not one of {', '.join(Study.Kind.values)}", field="kind")
    plan = lock_plan(plan.pk)
    if plan.table_id is None:
        raise Conflict(f"{plan} has no table; build it first")
    if open_study(plan) is not None:
        raise Conflict(f"a study of {plan} is already queued or running")
    job = jobs.file_job(
        acting_user=acting_user,
        fleet=plan.fleet,
        kind=Job.Kind.STUDY,
        subject_id=plan.pk,
        total=len(HEAD_SHARES) + 1,
        payload={"kind": kind},
    )
    record_event("study.ordered", acting_user=acting_user, fleet=plan.fleet, subject=plan, after={"kind": kind})
    return job


def open_study(plan: Plan) -> Job | None:
    """Return the open job of a study of this plan."""
    return Job.objects.filter(kind=Job.Kind.STUDY, subject_id=plan.pk, state__in=Job.OPEN).first()


def run_study(job: Job) -> None:
    """Run the study of a claimed job and store its result; if the job was cancelled meanwhile, store nothing."""
    plan = Plan.objects.select_related("fleet", "workload").get(pk=job.subject_id or 0)
    assert plan.workload is not None  # A database constraint of plans that have a table.
    if not jobs.progress(job, 1, "rates loaded"):
        return
    inputs = plan_tables.load_inputs(plan)
    options = plan_tables.build_options(plan, inputs)
    started = time.perf_counter()
    settings: list[JsonObject] = []
    for at, share in enumerate(HEAD_SHARES):
        try:
            part = sensitivity(
                inputs.rates, destinations=len(plan.parameters["destinations"]), head_shares=(share,), **options
            )
        except ValueError as error:
            raise JobFailed(str(error)) from error
        settings += [{name: _finite(value) for name, value in asdict(setting).items()} for setting in part]
        if not jobs.progress(job, at + 2, f"{len(settings)} plans of {len(HEAD_SHARES) * len(FACTORS) ** 2}"):
            return
    study_ms = (time.perf_counter() - started) * 1e3
    parameters = {"factors": list(FACTORS), "head_shares": list(HEAD_SHARES)}
    kind = job.payload["kind"]
    inputs_digest = digest(
        {"kind": kind, "rates": plan.workload.rates.digest, "plan": plan.parameters, "study": parameters}
    )
    with transaction.atomic():
        if not jobs.lock_mine(job):
            return  # Cancelled, or claimed by another worker.
        study = Study.objects.create(
            plan=plan,
            kind=kind,
            parameters=parameters,
            results={"settings": settings, "study_ms": round(study_ms, 3)},
            inputs_digest=inputs_digest,
            code_version=code_version(),
            created_by=job.created_by,
        )
        record_event(
            "study.finished",
            acting_user=job.created_by,
            fleet=plan.fleet,
            subject=plan,
            after={"study": study.pk, "kind": kind, "plans": len(settings)},
            evidence_digest=digest(settings),
        )
        jobs.finish(job, Job.State.SUCCEEDED, result={"plan": plan.pk, "study": study.pk})


@transaction.atomic
def study_failed(job: Job, *, message: str, crashed: bool) -> None:
    """Record that a study failed. A job that was cancelled or claimed by another worker does not change.

    Parameters
    ----------
    job, message
        The job, and the cause as users read it.
    crashed
        True for a fault (state "errored"), False for an expected failure (state "failed").
    """
    if not jobs.lock_mine(job):
        return
    jobs.finish(job, Job.State.ERRORED if crashed else Job.State.FAILED, error=message)
    record_event(
        "study.failed",
        acting_user=job.created_by,
        fleet=job.fleet,
        subject=Plan.objects.get(pk=job.subject_id or 0),
        after={"kind": job.payload["kind"]},
        reason=message,
    )


def _finite(value: Any) -> Any:
    """Replace infinity and NaN, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


kinds.register(Job.Kind.STUDY, kinds.JobKind(run=run_study, failed=study_failed))
