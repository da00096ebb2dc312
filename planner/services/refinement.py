"""Bisection of a replay's ladder: after the last cell of a round, cells between what passes and what fails."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from django.db import transaction
from django.db.models import F

from planner.analysis import t_interval
from planner.models import Job, Replay, ReplayCell
from planner.services import jobs
from planner.simulation import Capacity, capacity
from planner.simulation.ladder import next_load


def add_round(row: Replay, job: Job) -> bool:
    """Add the cells of the next round of the locked replay; False when no round is left or nothing to refine.

    Each policy gets one load, the same for all of its seeds, from the mean p99 over them. It follows from figures
    that are equal however many workers there were, so the added loads are equal too.
    """
    if row.refine_rounds >= row.parameters.get("refine", 0):
        return False
    p99 = _p99(row)
    added: dict[str, float] = {}
    for policy in row.policies:
        # fsum: the same mean in whatever order the rows come.
        means = {load: math.fsum(seeds.values()) / len(seeds) for load, seeds in p99[policy].items()}
        extend = bool(row.parameters.get("extend"))
        load = next_load(list(means), list(means.values()), row.slo_p99_s, extend=extend)
        if load is not None:
            added[policy] = load
    if not added:
        return False
    ReplayCell.objects.bulk_create(
        ReplayCell(replay=row, policy=policy, load_rps=load, seed=seed)
        for policy, load in added.items()
        for seed in row.seeds
    )
    for policy, load in added.items():
        row.refined_loads.setdefault(policy, []).append(load)
    row.refine_rounds += 1
    row.bump("refined_loads", "refine_rounds")
    Job.objects.filter(pk=job.pk).update(total=F("total") + len(added) * len(row.seeds))
    transaction.on_commit(lambda: jobs.send(job), robust=True)
    return True


def refined_capacity(row: Replay) -> dict[str, Any]:
    """Capacity of each policy over the ladder and what bisection added to it; empty without refinement.

    Returns
    -------
    dict, per policy: ``loads_rps`` (ascending), ``p99_s`` (mean over seeds at each), ``per_seed`` and ``text``
    (capacities as they are to be printed: never a bare number when censored) and ``censored``.
    """
    if not row.refined_loads:
        return {}
    p99 = _p99(row)
    return {policy: _refined(p99[policy], row.seeds, row.slo_p99_s) for policy in row.policies}


def _refined(p99: dict[float, dict[int, float]], seeds: list[int], slo_s: float) -> dict[str, Any]:
    loads = sorted(p99)
    found = [capacity(loads, [p99[load][seed] for load in loads], slo_s) for seed in seeds]
    return {
        "loads_rps": loads,
        "p99_s": [math.fsum(p99[load].values()) / len(seeds) for load in loads],
        "per_seed": [str(one) for one in found],
        "text": _text(found),
        "censored": sorted({one.censored for one in found if one.censored}),
    }


def _text(found: list[Capacity]) -> str:
    if len({str(one) for one in found}) == 1:
        return str(found[0])
    values = [one.value for one in found if one.value is not None and one.censored is None]
    if len(values) < len(found):
        ordered = sorted(found, key=lambda one: -math.inf if one.value is None else one.value)
        return f"{ordered[0]} to {ordered[-1]}"
    mean = t_interval(values)
    return f"{mean.mean:.3g} ± {mean.half_width:.2g}"


def _p99(row: Replay) -> dict[str, dict[float, dict[int, float]]]:
    """p99 of every finished cell, by policy, load and seed: that one figure, not all of them."""
    found: dict[str, dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    cells = row.cells.filter(state=ReplayCell.State.SUCCEEDED).order_by("policy", "load_rps", "seed")
    for policy, load, seed, value in cells.values_list("policy", "load_rps", "seed", "figures__p99_s"):
        found[policy][load][seed] = float(value)
    return found
