"""Shadow replays: the candidate and Flat-LB on the same arrivals, at several loads and seeds."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.digests import code_version
from planner.errors import Conflict, Invalid
from planner.models import BASELINE, CANDIDATE, Job, Plan, Replay, ReplayCell
from planner.routing import POLICIES
from planner.services import audit, jobs, locking, plans, rights, traces

DEFAULT_POLICIES = ("flat-lb", "sticky", "cacheroute")
DEFAULT_SEEDS = (1, 2, 3)
# Shares of what the destinations, each by its speed, can take at the calibrated knee, when no loads are given.
DEFAULT_LOAD_SHARES = (0.4, 0.7, 1.0)
MAX_CELLS = 2_000
ARRIVALS = ("poisson", "scaled", "gamma", "bootstrap")


def lock_replay(pk: int) -> Replay:
    """The replay's plan and the replay, locked in that order."""
    plan_id = Replay.objects.values_list("plan_id", flat=True).get(pk=pk)
    plans.lock_plan(plan_id)
    found: Replay = locking.lock(Replay, pk)
    return found


def check_options(
    plan: Plan,
    *,
    policies: list[str] | None = None,
    loads_rps: list[float] | None = None,
    seeds: list[int] | None = None,
    arrivals: str = "poisson",
    cv: float | None = None,
    requests: int = 20_000,
    warmup: float = 0.2,
) -> dict[str, Any]:
    """The options of a replay with their defaults filled in, or a refusal that names the field.

    Flat-LB and the candidate are always among the policies: without both there is nothing to compare.
    """
    assert plan.calibration is not None  # a database constraint of this kind of plan
    names = list(dict.fromkeys([BASELINE, CANDIDATE, *(policies or DEFAULT_POLICIES)]))
    for name in names:
        if name not in POLICIES:
            raise Invalid(f"{name!r} is not one of {', '.join(POLICIES)}", field="policies")
    capacity = plan.calibration.q_cap * sum(plan.capacity)
    loads = sorted(set(loads_rps or [float(f"{capacity * share:.3g}") for share in DEFAULT_LOAD_SHARES]))
    if any(not 1e-6 <= load <= 1e8 for load in loads):
        raise Invalid("loads are requests/s from 1e-6 to 1e8", field="loads_rps")
    seeds = sorted(set(seeds or DEFAULT_SEEDS))
    if any(not 0 <= seed < 2**31 for seed in seeds):
        raise Invalid("seeds are whole numbers from 0 to 2^31 - 1", field="seeds")
    if arrivals not in ARRIVALS:
        raise Invalid(f"{arrivals!r} is not one of {', '.join(ARRIVALS)}", field="arrivals")
    if arrivals == "scaled" and len(seeds) > 1:
        raise Invalid(
            "the trace's own gaps, scaled, are the same for every seed; give one seed, or other arrivals",
            field="seeds",
        )
    if (arrivals == "gamma") != (cv is not None):
        raise Invalid("gamma arrivals need their coefficient of variation, and no others have one", field="cv")
    if cv is not None and not 0 < cv < 1e3:
        raise Invalid("the coefficient of variation is a number above 0", field="cv")
    if not 100 <= requests <= 5_000_000:
        raise Invalid("replay between 100 and 5,000,000 requests", field="requests")
    if not 0 <= warmup < 1:
        raise Invalid("the warm-up is a share of the requests, from 0 to below 1", field="warmup")
    if len(names) * len(loads) * len(seeds) > MAX_CELLS:
        raise Invalid(f"more than {MAX_CELLS} cells; take fewer loads or seeds", field="loads_rps")
    return {
        "policies": names, "loads_rps": loads, "seeds": seeds, "arrivals": arrivals, "cv": cv, "requests": requests,
        "warmup": warmup,
    }  # fmt: skip


@transaction.atomic
def start_replay(
    *, acting_user: User, plan: Plan, expected_version: int | None = None, **options: Any
) -> tuple[Replay, Job]:
    """Start a replay of a built plan with the options of `check_options`.

    Each (policy, load, seed) is a cell, and a task of its own.
    """
    rights.require(acting_user, rights.PLAN)
    plan = plans.lock_plan(plan.pk, expected_version)
    if plan.kind == Plan.Kind.FLAT:
        raise Conflict("Flat-LB needs no replay: it is what plans are compared with")
    chosen = check_options(plan, **options)
    assert plan.workload is not None  # a database constraint of this kind of plan
    try:
        synthetic = traces.synthetic_settings(plan.workload, chosen["requests"])
    except ValueError as error:
        raise Conflict(str(error)) from error
    names, loads, seeds = chosen["policies"], chosen["loads_rps"], chosen["seeds"]
    cells = [(policy, load, seed) for load in loads for seed in seeds for policy in names]
    plans.move(plan, Plan.State.REPLAYING)
    profile = plan.fleet.serving_profile
    row = Replay.objects.create(
        plan=plan,
        workload=plan.workload,
        policies=names,
        loads_rps=loads,
        seeds=seeds,
        arrivals=chosen["arrivals"],
        parameters={
            **{name: chosen[name] for name in ("requests", "warmup", "cv")},
            "synthetic_trace": synthetic,
        },
        slo_p99_s=plan.fleet.slo_p99_s,
        engine_profile=profile.engine_profile,
        fingerprint=profile.fingerprint,
        code_version=code_version(),
        created_by=acting_user,
    )
    ReplayCell.objects.bulk_create(
        ReplayCell(replay=row, policy=policy, load_rps=load, seed=seed) for policy, load, seed in cells
    )
    job = jobs.file_job(
        acting_user=acting_user, fleet=plan.fleet, kind=Job.Kind.REPLAY, subject_id=row.pk, total=len(cells)
    )
    audit.record(
        "replay.started",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=row,
        after={"plan": plan.number, "policies": names, "loads_rps": loads, "seeds": seeds, "cells": len(cells)},
    )
    return row, job


def after_cancelled_replay(*, job: Job) -> None:
    """Close a cancelled replay and its open cells (rows are locked by the caller)."""
    row = Replay.objects.get(pk=job.subject_id or 0)
    row.cells.filter(state__in=["queued", "running"]).update(
        state=ReplayCell.State.CANCELLED, finished_at=timezone.now()
    )
    row.state, row.finished_at = Replay.State.CANCELLED, timezone.now()
    row.bump("state", "finished_at")
    plan = Plan.objects.get(pk=row.plan_id)
    if plan.state == Plan.State.REPLAYING:
        plans.move(plan, Plan.State.BUILT)
