"""Figures of one cell of a replay: a bounded number of values, none of them NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.analysis import PerTenant, available_tokens, dip, hit_chain, hit_curve, per_tenant
from planner.analysis.cell import CellCurve, CellDip, CellFigures, CellTenants, RestOfTenants, TenantFigures
from planner.routing import RoutingTable
from planner.simulation import ReplayResult, Trace

# Tenants of a cell that are listed by name: those with the most requests, and the worst. The rest are only counted.
LISTED_TENANTS = 50
CURVE_BINS = 60

Tenants = tuple[Sequence[str], NDArray[np.int64]]

# Cached: the cells of a replay use the prompts of one trace, whatever their arrivals.
_last: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None


def figures_of_result(
    result: ReplayResult,
    trace: Trace,
    table: RoutingTable | None,
    tenants: Tenants | None,
    at_s: Sequence[float] = (),
) -> CellFigures:
    """Return the figures of one cell: `ReplayResult.summary`, and figures of tenants, locality and recovery.

    All figures are of measured requests: served, and after the warm-up.

    Parameters
    ----------
    result, trace
        The replay and the (retimed) trace that it replayed.
    table : RoutingTable, optional
        What the policy dispatched by; without one nothing is planned.
    tenants : (names, int64[keys]), optional
        As `artifacts.load_tenants` gives them: the tenant of each key of the workload.
    at_s : sequence of float
        Seconds at which something happened (a fault began, plans were switched): asks for the curve of the hit rate
        and its dip after each of them.

    Returns
    -------
    CellFigures
        Tenants only with `tenants`, curve and dips only with `at_s`.
    """
    part = result.measured()
    admitted = None if table is None else np.isin(result.key[part], table.admitted)
    chain = hit_chain(
        _available(trace)[part], result.prompt_tokens[part], result.cached_tokens[part], admitted=admitted
    )
    figures = CellFigures.from_json(
        {**result.summary(), "throughput_rps": _throughput(result, part), **chain.as_dict()}
    )
    if tenants is not None:
        figures = _with_tenants(figures, result, tenants)
    if len(at_s):
        figures = _with_events(figures, result, sorted(float(at) for at in at_s))
    return figures


def _throughput(result: ReplayResult, part: NDArray[np.bool_]) -> float | None:
    """Return finished requests/s, from the first arrival to the last answer."""
    if not part.any():
        return None
    arrival = result.arrival_s[part]
    span = float((arrival + result.latency_s[part]).max() - arrival[0])
    return int(part.sum()) / span if span > 0 else None


def _available(trace: Trace) -> NDArray[np.int64]:
    global _last
    offsets, ids = trace.blocks
    if _last is None or _last[0] is not offsets or _last[1] is not ids:
        _last = (offsets, ids, available_tokens(offsets, ids, trace.prompt_tokens, trace.block_tokens))
    return _last[2]


def _with_tenants(figures: CellFigures, result: ReplayResult, tenants: Tenants) -> CellFigures:
    names, tenant_of_key = tenants
    counted = np.arange(len(result.key)) >= result.warmup_requests
    key = result.key[counted]
    known = key < len(tenant_of_key)
    found = per_tenant(
        np.where(known, tenant_of_key[np.where(known, key, 0)], -1) if len(tenant_of_key) else np.full(len(key), -1),
        result.prompt_tokens[counted],
        result.cached_tokens[counted],
        np.where(result.served[counted], result.latency_s[counted], np.nan),
        tenants=len(names),
    )
    sent = found.requests + found.unserved
    order = np.lexsort((np.arange(len(names)), -sent))
    listed = [int(t) for t in order[:LISTED_TENANTS] if sent[t]]
    if found.worst is not None and found.worst not in listed:
        listed.append(found.worst)
    return replace(
        figures,
        tenants=CellTenants(
            count=int((sent > 0).sum()),
            silent=int((sent == 0).sum()),
            too_few=found.too_few,
            min_requests=found.min_requests,
            without_tenant=found.without_tenant,
            unserved=int(found.unserved.sum()),
            worst=None if found.worst is None else names[found.worst],
            listed=tuple(_row(names[t], found, t) for t in listed),
            rest=RestOfTenants(
                tenants=int((sent > 0).sum()) - len(listed), requests=int(sent.sum() - sent[listed].sum())
            ),
        ),
        jain_hit=_finite(found.jain_hit_rate),
        jain_p99=_finite(found.jain_p99),
        worst_tenant_ratio=found.worst_ratio,
    )


def _row(name: str, found: PerTenant, tenant: int) -> TenantFigures:
    return TenantFigures(
        tenant=name,
        requests=int(found.requests[tenant]),
        unserved=int(found.unserved[tenant]),
        hit_rate=_finite(found.hit_rate[tenant]),
        request_hit_rate=_finite(found.request_hit_rate[tenant]),
        p50_s=_finite(found.p50_s[tenant]),
        p99_s=_finite(found.p99_s[tenant]),
    )


def _with_events(figures: CellFigures, result: ReplayResult, at_s: list[float]) -> CellFigures:
    """Add the curve over the whole run, warm-up included; the level before an event leaves the warm-up out."""
    served = result.served
    curve = hit_curve(
        result.arrival_s[served], result.prompt_tokens[served], result.cached_tokens[served], bins=CURVE_BINS
    )
    warm = min(result.warmup_requests, len(result.arrival_s) - 1)
    from_s = float(result.arrival_s[warm]) if len(result.arrival_s) else 0.0
    ends = [*at_s[1:], None]
    dips = (dip(curve, at, from_s=from_s, until_s=end).as_dict() for at, end in zip(at_s, ends, strict=True))
    return replace(
        figures,
        curve=CellCurve(
            width_s=curve.width_s,
            requests=tuple(curve.requests.tolist()),
            prompt_tokens=tuple(curve.prompt_tokens.tolist()),
            cached_tokens=tuple(curve.cached_tokens.tolist()),
            warmup_s=from_s if result.warmup_requests else 0.0,
        ),
        dips=tuple(CellDip.from_json(found) for found in dips),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
