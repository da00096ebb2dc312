"""Progress of jobs: time since the start, and for replays the remaining time, estimated from finished cells."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet, Sum, Value
from django.utils import timezone

from planner.models import Job, ReplayCell

# With cells queued and none running for this long, no worker runs the replay, and the remaining time is unknown.
STALLED_S = 20.0
State = ReplayCell.State


def elapsed_s(job: Job) -> float | None:
    """Seconds since a worker began, up to the end of a finished job; None while it is queued."""
    if job.started_at is None:
        return None
    return max(0.0, ((job.finished_at or timezone.now()) - job.started_at).total_seconds())


def eta_s(jobs: Iterable[Job]) -> dict[int, float | None]:
    """Seconds that each open replay job will still take, by the id of the job; other jobs are left out.

    1. The cost of a cell is the mean of the finished cells of its policy (all cells of a replay have the same
       requests); a policy without a finished cell takes the mean of the others.
    2. The remaining work is that cost for each queued cell, and the remaining part of it for each running cell.
    3. It is divided by the mean number of cells that ran at a time: the workers that this replay really has.

    None while no cell is finished, and while no worker runs the replay. Later rounds of bisection are not included: the
    cells that they add are unknown. One query for all jobs.
    """
    replays = {
        job.subject_id or 0: job for job in jobs if job.kind == Job.Kind.REPLAY and job.is_open and job.started_at
    }
    if not replays:
        return {}
    policies: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in _by_policy(ReplayCell.objects.filter(replay__in=replays)):
        policies[row["replay"]].append(row)
    return {job.pk: _left(policies[replay], elapsed_s(job) or 0.0) for replay, job in replays.items()}


def _by_policy(cells: QuerySet[ReplayCell]) -> Iterable[Any]:
    """Counts and seconds of the cells by replay and policy, summed by the database."""
    finished, running = Q(state=State.SUCCEEDED), Q(state=State.RUNNING)
    return (
        cells.order_by()
        .values("replay", "policy")
        .annotate(
            queued=Count("pk", filter=Q(state=State.QUEUED)),
            running=Count("pk", filter=running),
            finished=Count("pk", filter=finished),
            took=Sum(F("finished_at") - F("started_at"), filter=finished),
            running_for=Sum(Value(timezone.now()) - F("started_at"), filter=running),
            last=Max("finished_at", filter=finished),
        )
    )


def _left(policies: list[dict[str, Any]], elapsed: float) -> float | None:
    finished = sum(row["finished"] for row in policies)
    running = sum(row["running"] for row in policies)
    if not finished or not elapsed:
        return None
    last = max(row["last"] for row in policies if row["last"] is not None)
    if not running and (timezone.now() - last).total_seconds() > STALLED_S:
        return None
    took = sum(_seconds(row["took"]) for row in policies)
    work = 0.0
    for row in policies:
        cost = _seconds(row["took"]) / row["finished"] if row["finished"] else took / finished
        work += row["queued"] * cost + max(0.0, row["running"] * cost - _seconds(row["running_for"]))
    at_a_time = max(float(running), took / elapsed)
    return work / at_a_time if at_a_time else None


def _seconds(value: dt.timedelta | None) -> float:
    return value.total_seconds() if value is not None else 0.0


def with_progress(jobs: list[Job]) -> list[Job]:
    """The jobs, each with `elapsed_s` and `eta_s` for a page to show."""
    left = eta_s(jobs)
    for job in jobs:
        job.elapsed_s, job.eta_s = elapsed_s(job), left.get(job.pk)  # type: ignore[attr-defined]  # no columns
    return jobs
