"""Figures of one cell of a replay: one policy at one load with one seed. They are stored as JSON, none of them NaN.

Cells of earlier releases lack some entries; the fields of those have defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from planner.records import Record

__all__ = ["CellCurve", "CellDip", "CellFigures", "CellTenants", "RestOfTenants", "TenantFigures"]


@dataclass(frozen=True, kw_only=True)
class TenantFigures(Record):
    """Figures of a tenant: measured requests, requests that were not served, hit rates (shares) and latencies (s)."""

    tenant: str
    requests: int
    unserved: int
    hit_rate: float | None
    request_hit_rate: float | None
    p50_s: float | None
    p99_s: float | None


@dataclass(frozen=True, kw_only=True)
class RestOfTenants(Record):
    """Tenants that are not listed, and their requests together."""

    tenants: int
    requests: int


@dataclass(frozen=True, kw_only=True)
class CellTenants(Record):
    """Tenants of a cell: the busiest and the worst are listed, the rest is counted.

    ``too_few`` tenants have fewer than ``min_requests`` measured requests and so no p99; ``silent`` ones have none.
    """

    count: int
    silent: int = 0
    too_few: int
    min_requests: int
    without_tenant: int
    unserved: int
    worst: str | None
    listed: tuple[TenantFigures, ...]
    rest: RestOfTenants = RestOfTenants(tenants=0, requests=0)


@dataclass(frozen=True, kw_only=True)
class CellCurve(Record):
    """Requests and tokens in bins of ``width_s`` seconds by time of arrival; the warm-up ends at ``warmup_s``."""

    width_s: float
    requests: tuple[int, ...]
    prompt_tokens: tuple[int, ...]
    cached_tokens: tuple[int, ...]
    warmup_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CellDip(Record):
    """Dip of the hit rate after an event (`planner.analysis.Dip`)."""

    at_s: float
    before: float | None
    within: float | None = None
    lowest: float | None = None
    depth_points: float | None
    duration_s: float | None
    censored: bool
    seen_s: float


@dataclass(frozen=True, kw_only=True)
class CellFigures(Record):
    """Figures of the measured requests: served, and after the warm-up.

    Latencies are seconds; hit rates and the four parts of the hit chain (``available``, ``planned``, ``delivered``,
    ``delivered_planned``) are shares of prompt tokens. None: the figure does not exist. Unset: the cell has no tenants,
    or no fault and no switch of plans.
    """

    policy: str = ""
    seed: int = 0
    requests: int
    warmup_requests: int = 0
    refused: int = 0
    redispatched: int = 0
    offered_rps: float | None = None
    throughput_rps: float | None = None
    hit_rate: float | None = None
    request_hit_rate: float | None = None
    imbalance: float | None = None
    busy_imbalance: float | None = None
    requests_per_destination: tuple[int, ...] = ()
    busy_s: tuple[float, ...] = ()
    queue_peak: int = 0
    preemptions: int = 0
    latency_mean_s: float | None = None
    profile_fingerprint: str = ""
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    ttft_p99_s: float | None = None
    available: float | None = None
    planned: float | None = None
    delivered: float | None = None
    delivered_planned: float | None = None
    active_keys: int | UnsetType = UNSET
    tenants: CellTenants | UnsetType = UNSET
    jain_hit: float | UnsetType | None = UNSET
    jain_p99: float | UnsetType | None = UNSET
    worst_tenant_ratio: float | UnsetType | None = UNSET
    curve: CellCurve | UnsetType = UNSET
    dips: tuple[CellDip, ...] | UnsetType = UNSET

    def value(self, name: str) -> float | None:
        """A figure by its name; None where it is None or unset."""
        found: float | UnsetType | None = getattr(self, name)
        return None if isinstance(found, UnsetType) else found
