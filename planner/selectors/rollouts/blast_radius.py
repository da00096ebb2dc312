"""Blast radius of a plan: keys, tenants and rate that change, and how long caches take to follow.

An estimate from two tables and the rates of the plan; nothing is replayed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from planner import artifacts
from planner.analysis import Homes, Switch, cooling_time, switch
from planner.checklist.evidence import BlastRadius, Dip, TouchedTenant
from planner.errors import Conflict
from planner.models import Artifact, Plan, Rollout

# Tenants that are listed, those with the highest changed rate first; the others are counted.
LISTED_TENANTS = 20
# Part of the evidence and so of its digest: another wording would make every earlier approval stale. Pages say it in
# their own words.
HOW = (
    "First order: each pair of a key and a destination that is new starts cold, is warm from its first request on, "
    "requests arrive at random at the measured rates, nothing is evicted; what the old routing happens to have cached "
    "elsewhere is not counted."
)

_Side = tuple[str, tuple[int, ...]] | None  # Digest of the table, and indices of its destinations in the fleet.


def blast_radius(plan: Plan, against: Plan | None = None) -> BlastRadius:
    """Return what changes when all keys follow ``plan`` instead of the active plan (or ``against``).

    The result is the same for the same two tables and rates, so evidence may hold it: rates, shares and times are
    rounded to nine digits. ``dip`` is computed by `planner.analysis.switch`.

    Parameters
    ----------
    plan : Plan
        The new plan.
    against : Plan, optional
        The other plan; the active one by default.

    Returns
    -------
    BlastRadius
        Counts, shares and times.

    Raises
    ------
    Conflict
        When the plan has no table yet.
    ArtifactLost
        When a table or the rates cannot be read.
    """
    if plan.table_id is None and plan.kind != Plan.Kind.FLAT:
        raise Conflict(f"{plan} has no table yet: it is {plan.get_state_display()}", code="not-built")
    old = active_plan(plan) if against is None else against
    source = plan if plan.workload_id is not None else old
    if source.workload_id is None or old.pk == plan.pk:  # a plan against itself, or Flat-LB against Flat-LB
        return BlastRadius(
            against=old.number, dip=Dip(cold_share=0.0, first_misses=0, half_s=0.0, tenth_s=0.0, how=HOW)
        )
    assert source.workload is not None  # its id is set
    return replace(_between(_side(plan), _side(old), source.workload.rates.digest), against=old.number)


def active_plan(plan: Plan) -> Plan:
    """Return the plan that routes the fleet now."""
    live = Rollout.objects.select_related("plan__table", "plan__workload__rates")
    return live.defer("plan__summary", "plan__workload__shape").get(fleet=plan.fleet_id, state="active").plan


def _side(plan: Plan) -> _Side:
    return None if plan.table is None else (plan.table.digest, tuple(plan.parameters["destinations"]))


@lru_cache(maxsize=64)
def _between(new: _Side, old: _Side, rates_digest: str) -> BlastRadius:
    stored = artifacts.load(Artifact.objects.get(digest=rates_digest))
    names, rates = stored.column("key").combine_chunks(), stored.column("rate").to_numpy()
    found = switch(_homes(new, names), _homes(old, names), rates, prefix_tokens=artifacts.prefix_tokens_of(stored))
    total = float(rates.sum())
    touched = np.concatenate([found.gained, found.lost, found.moved])

    def share(keys: NDArray[np.int64]) -> float:
        return _rounded(float(rates[keys].sum()) / total if total else 0.0)

    tenants, count = _tenants(artifacts.tenants_of(stored), touched, rates)
    return BlastRadius(
        against=0,  # set by the caller
        keys_gained=len(found.gained),
        keys_lost=len(found.lost),
        keys_moved=len(found.moved),
        keys_gone=found.gone,
        rate_gained=share(found.gained),
        rate_lost=share(found.lost),
        rate_changed=share(found.moved),
        rate_moved=share(touched),
        rate_rps=_rounded(total),
        tenants=tenants,
        tenant_count=count,
        rewarm_tokens=found.rewarm_tokens,
        dip=_dip(found, total),
    )


def _homes(side: _Side, names: pa.Array) -> Homes:
    """Return the homes of a table; its keys are found by name in the workload."""
    if side is None:
        return Homes(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))
    table_digest, index_of = side
    table, keys = artifacts.load_table(Artifact.objects.get(digest=table_digest))
    place = pc.index_in(pa.array(keys, pa.string()), value_set=names).fill_null(-1).to_numpy(zero_copy_only=False)
    return Homes(place.astype(np.int64), table.offsets, np.array(index_of, dtype=np.int64)[table.members])


def _tenants(
    tenants: tuple[list[str], np.ndarray] | None, touched: np.ndarray, rates: np.ndarray
) -> tuple[tuple[TouchedTenant, ...], int]:
    """Return tenants whose keys change destinations, those with the highest rate first, and their number."""
    if tenants is None:
        return (), 0
    names, owner = tenants
    keys = np.bincount(owner[touched], minlength=len(names))
    own = np.bincount(owner, weights=rates, minlength=len(names))
    rate = np.bincount(owner[touched], weights=rates[touched], minlength=len(names))
    found = np.flatnonzero(keys)
    order = found[np.lexsort((found, -rate[found]))]
    rows = tuple(
        TouchedTenant(
            tenant=names[i],
            keys=int(keys[i]),
            rate_rps=_rounded(float(rate[i])),
            share_of_own=_rounded(float(rate[i] / own[i])) if own[i] else 0.0,
        )
        for i in order[:LISTED_TENANTS].tolist()
    )
    return rows, len(found)


def _dip(found: Switch, total: float) -> Dip:
    """Return the share of cold requests at the switch, and the times until half and a tenth of it is left."""
    return Dip(
        cold_share=_rounded(float(found.cold_rates.sum()) / total if total else 0.0),
        first_misses=len(found.cold_rates),
        half_s=_rounded(cooling_time(found.cold_rates, 0.5)),
        tenth_s=_rounded(cooling_time(found.cold_rates, 0.1)),
        how=HOW,
    )


def _rounded(value: float) -> float:
    """Round: the last digits of a sum differ between machines, and digests must not."""
    return float(f"{value:.9g}")
