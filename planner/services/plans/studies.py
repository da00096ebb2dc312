"""Studies of a built plan: how its table changes with other inputs."""

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
    """Order a study of a plan that has its table; the result is a `Study`, and the table stays as it is.

    ``sensitivity``: warm slots and q_cap are varied together, from 0.75 to 1.25 times what the plan was built with,
    under five shares of the busiest key: 125 plans from scratch with the plan's own options.

    Raises
    ------
    If the kind is unknown.
        For a kind that is not known.
    If the plan has no table, or a study of it is open.
        When the plan has no table, or a study of it is under way.
    """
    rights.require(acting_user, rights.PLAN, plan.fleet)
    if kind not in Study.Kind.values:
        raise Invalid(f"{kind!r} is not one of {', '.join(Study.Kind.values)}", field="kind")
    plan = lock_plan(plan.pk)
    if plan.table_id is None:
        raise Conflict(f"{plan} has no table; build it first")
    if open_study(plan) is not None:
        raise Conflict(f"a study of {plan} is already running; wait for it or cancel it")
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
    """Run the study of a claimed job and store its result; store nothing if the job was cancelled."""
    plan = Plan.objects.select_related("fleet", "workload").get(pk=job.subject_id or 0)
    assert plan.workload is not None  # a database constraint of plans that have a table
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
            return  # cancelled, or another worker has taken it over
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
    """Record that a study failed."""
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
    """Replace infinity and NaN, which JSON lacks, by None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


kinds.register(Job.Kind.STUDY, kinds.JobKind(run=run_study, failed=study_failed))
