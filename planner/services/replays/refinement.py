"""Bisection of the ladder of a replay: after the last cell of a round, add loads between the highest that passes and
the
lowest that fails.
"""

from __future__ import annotations

import math
from collections import defaultdict

from django.db import transaction
from django.db.models import F

from planner.models import Job, Replay, ReplayCell
from planner.services.jobs import jobs
from planner.simulation.ladder import next_load
from planner.simulation.options import ReplayParameters


def add_round(row: Replay, job: Job) -> bool:
    """Add the cells of the next round to the locked replay; False when no round is left or there is nothing to refine.

    Each policy gets one load, the same for all of its seeds, from the mean p99 over the seeds. It follows from stored
    figures alone, so the added loads do not depend on the number of workers.
    """
    chosen = ReplayParameters.from_json(row.parameters)
    if row.refine_rounds >= chosen.refine:
        return False
    p99 = _p99(row)
    added: dict[str, float] = {}
    for policy in row.policies:
        # fsum: the same mean for any order of the rows.
        means = {load: math.fsum(seeds.values()) / len(seeds) for load, seeds in p99[policy].items()}
        load = next_load(list(means), list(means.values()), row.slo_p99_s, extend=chosen.extend)
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


def _p99(row: Replay) -> dict[str, dict[float, dict[int, float]]]:
    """p99 of every finished cell, by policy, load and seed; no other figure is read."""
    found: dict[str, dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    cells = row.cells.filter(state=ReplayCell.State.SUCCEEDED).order_by("policy", "load_rps", "seed")
    for policy, load, seed, value in cells.values_list("policy", "load_rps", "seed", "figures__p99_s"):
        found[policy][load][seed] = float(value)
    return found
