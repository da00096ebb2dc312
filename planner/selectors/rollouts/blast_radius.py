"""What bringing a plan to traffic would touch: keys, tenants, rate, and how long the caches take to follow.

An estimate from the two tables and the rates that the plan was made for; nothing is replayed for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner import artifacts
from planner.analysis import Homes, Switch, cooling_time, switch
from planner.errors import Conflict
from planner.models import Artifact, Plan, Rollout

# Tenants that are listed, those with the most rate touched first; the others are counted.
LISTED_TENANTS = 20
HOW = (
    "First order: each pair of a key and a destination that is new starts cold, is warm from its first request on, "
    "requests arrive at random at the measured rates, nothing is evicted; what the old routing happens to have cached "
    "elsewhere is not counted."
)

_Side = tuple[str, tuple[int, ...]] | None  # digest of the table, the fleet's indices of its destinations


def blast_radius(plan: Plan, against: Plan | None = None) -> dict[str, Any]:
    """What changes when all keys go by ``plan`` instead of the plan that is active now (or ``against``).

    JSON-able, and the same for the same two tables and rates: it may stand in evidence. Shares are of the requests/s
    of the plan's workload. A rate, share or time is rounded to nine digits.

    ``keys_gained`` only the new table keeps warm, ``keys_lost`` only the old one, ``keys_moved`` both with other
    destinations, ``keys_gone`` are keys of the old table that the workload does not know. ``rate_moved`` is the share
    whose destinations change: of the keys gained, lost and moved together. ``rewarm_tokens`` is None where the
    workload does not know prefix lengths. ``dip`` is what the hit rate suffers meanwhile, by `planner.analysis.switch`.

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
    found = {"against": old.number, "estimate": True}
    if source.workload_id is None or old.pk == plan.pk:
        return {**found, **_nothing()}
    assert source.workload is not None  # its id is there
    return {**found, **_between(_side(plan), _side(old), source.workload.rates.digest)}


def active_plan(plan: Plan) -> Plan:
    """The plan that routes the fleet of this one now."""
    live = Rollout.objects.select_related("plan__table", "plan__workload__rates")
    return live.defer("plan__summary", "plan__workload__shape").get(fleet=plan.fleet_id, state="active").plan


def _side(plan: Plan) -> _Side:
    return None if plan.table is None else (plan.table.digest, tuple(plan.parameters["destinations"]))


@lru_cache(maxsize=64)
def _between(new: _Side, old: _Side, rates_digest: str) -> dict[str, Any]:
    stored = artifacts.load(Artifact.objects.get(digest=rates_digest))
    names, rates = stored.column("key").combine_chunks(), stored.column("rate").to_numpy()
    found = switch(_homes(new, names), _homes(old, names), rates, prefix_tokens=artifacts.prefix_tokens_of(stored))
    total = float(rates.sum())
    touched = np.concatenate([found.gained, found.lost, found.moved])
    shares = {
        name: _rounded(float(rates[keys].sum()) / total if total else 0.0)
        for name, keys in (
            ("rate_gained", found.gained),
            ("rate_lost", found.lost),
            ("rate_changed", found.moved),
            ("rate_moved", touched),
        )
    }
    return {
        **_nothing(),
        "keys_gained": len(found.gained),
        "keys_lost": len(found.lost),
        "keys_moved": len(found.moved),
        "keys_gone": found.gone,
        **shares,
        "rate_rps": _rounded(total),
        **_tenants(artifacts.tenants_of(stored), touched, rates),
        "rewarm_tokens": found.rewarm_tokens,
        "dip": _dip(found, total),
    }


def _nothing() -> dict[str, Any]:
    """Of a plan against itself, or of Flat-LB against Flat-LB."""
    return {
        "keys_gained": 0,
        "keys_lost": 0,
        "keys_moved": 0,
        "keys_gone": 0,
        "rate_gained": 0.0,
        "rate_lost": 0.0,
        "rate_changed": 0.0,
        "rate_moved": 0.0,
        "rate_rps": 0.0,
        "tenants": [],
        "tenant_count": 0,
        "rewarm_tokens": 0,
        "dip": {"cold_share": 0.0, "first_misses": 0, "half_s": 0.0, "tenth_s": 0.0, "how": HOW},
    }


def _homes(side: _Side, names: pa.Array) -> Homes:
    """Homes of a table, its keys found by name among those of the workload."""
    if side is None:
        return Homes(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))
    table_digest, index_of = side
    table, keys = artifacts.load_table(Artifact.objects.get(digest=table_digest))
    place = pc.index_in(pa.array(keys, pa.string()), value_set=names).fill_null(-1).to_numpy(zero_copy_only=False)
    return Homes(place.astype(np.int64), table.offsets, np.array(index_of, dtype=np.int64)[table.members])


def _tenants(tenants: tuple[list[str], np.ndarray] | None, touched: np.ndarray, rates: np.ndarray) -> dict[str, Any]:
    """Tenants with a key that is touched: how many of their keys, and the share of their own rate."""
    if tenants is None:
        return {"tenants": [], "tenant_count": 0}
    names, owner = tenants
    keys = np.bincount(owner[touched], minlength=len(names))
    own = np.bincount(owner, weights=rates, minlength=len(names))
    rate = np.bincount(owner[touched], weights=rates[touched], minlength=len(names))
    found = np.flatnonzero(keys)
    order = found[np.lexsort((found, -rate[found]))]
    rows = [
        {
            "tenant": names[i],
            "keys": int(keys[i]),
            "rate_rps": _rounded(float(rate[i])),
            "share_of_own": _rounded(float(rate[i] / own[i])) if own[i] else 0.0,
        }
        for i in order[:LISTED_TENANTS].tolist()
    ]
    return {"tenants": rows, "tenant_count": len(found)}


def _dip(found: Switch, total: float) -> dict[str, Any]:
    """Share of all requests that meet a cold destination at the switch, and until half and a tenth of that is left."""
    return {
        "cold_share": _rounded(float(found.cold_rates.sum()) / total if total else 0.0),
        "first_misses": len(found.cold_rates),
        "half_s": _rounded(cooling_time(found.cold_rates, 0.5)),
        "tenth_s": _rounded(cooling_time(found.cold_rates, 0.1)),
        "how": HOW,
    }


def _rounded(value: float) -> float:
    """The last digits of a sum differ between machines; a digest must not."""
    return float(f"{value:.9g}")
