"""The evidence of a plan: every value that its checklist rests on, as types over the JSON that is stored.

The stored JSON, not these types, has the digest that approvals name: `Evidence` keeps it whole. Evidence of earlier
formats lacks some entries; the fields of those have defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from planner.analysis.verdict import Comparison, PolicyFigures
from planner.records import JsonObject, Record

__all__ = [
    "BlastRadius",
    "CalibrationEvidence",
    "Dip",
    "Distribution",
    "Envelope",
    "Evidence",
    "FallbackEvidence",
    "Fingerprints",
    "IncumbentEvidence",
    "IncumbentFigures",
    "OtherRates",
    "PlanEvidence",
    "PolicyEvidence",
    "ReplanEvidence",
    "ReplayEvidence",
    "SyntheticTrace",
    "TouchedTenant",
    "WaiverEvidence",
    "WhatIf",
    "WorkloadEvidence",
]

# Median, sigma of the logarithm, lowest and highest value of a log-normal length in tokens.
LengthsOfTokens = tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class PolicyEvidence(Record):
    """Values of the fleet's policy that checks use."""

    version: int = 0
    slo_p99_s: float
    max_rates_age_days: int
    max_imbalance: float
    max_loss_imbalance: float
    accept_simulated: bool
    min_loads: int
    min_seeds: int
    min_requests: int
    max_error_rate: float = 0.0
    telemetry_stale_s: float


@dataclass(frozen=True, kw_only=True)
class PlanEvidence(Record):
    """The plan and its table. ``capacity`` is the speed of each destination, ``peak_use`` a share of q_cap."""

    number: int = 0
    table_digest: str = ""
    destinations: tuple[int, ...]
    capacity: tuple[float, ...]
    slots_per_destination: int
    slots: int
    slots_used: int
    imbalance: float
    cannot_fit: int
    admitted: int
    most_held: int | None = None
    peak_use: float | None = None
    worst_loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReplanEvidence(Record):
    """What a replan keeps and moves; shares of the admitted rate."""

    incumbent: int
    incumbent_table: str = ""
    incumbent_is_live: bool
    moved_share: float | None = None
    cooled_share: float | None = None
    rewarm_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class IncumbentEvidence(Record):
    """The plan that is active, where it is not Flat-LB; ``apart`` is why it cannot be replayed beside the candidate."""

    plan: int
    table_digest: str = ""
    apart: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkloadEvidence(Record):
    """The rates: when they were measured (ISO 8601), requests/s in all, and whether they were generated."""

    id: int = 0
    name: str = ""
    measured_at: str
    measured_at_stated: bool
    simulated: bool
    total_rps: float


@dataclass(frozen=True, kw_only=True)
class CalibrationEvidence(Record):
    """q_cap (requests/s) and warm slots of one destination; ``q_cap_censored`` is left, right or empty."""

    id: int = 0
    source: str
    q_cap: float
    q_cap_censored: str
    warm_slots: int
    slots_measured: int
    margin: float | None = None
    sweep_points: int


@dataclass(frozen=True, kw_only=True)
class SyntheticTrace(Record):
    """How requests were made from rates."""

    active_keys: int
    prefix_tokens: LengthsOfTokens
    suffix_tokens: LengthsOfTokens
    output_tokens: LengthsOfTokens


@dataclass(frozen=True, kw_only=True)
class IncumbentFigures(PolicyFigures):
    """Figures of the active plan in the candidate's replay, and its differences to the candidate."""

    policy: str
    against: Comparison


@dataclass(frozen=True, kw_only=True)
class ReplayEvidence(Record):
    """The latest finished replay that is no what-if. ``runs`` counts the runs of gaps of a bootstrap."""

    id: int | None = None
    policies: tuple[str, ...]
    loads_rps: tuple[float, ...]
    seeds: tuple[int, ...]
    slo_p99_s: float
    arrivals: str | None = None
    cv: float | None = None
    run_length: int | None = None
    runs: int | None = None
    warmup: float | None = None
    refined_loads: dict[str, tuple[float, ...]] | None = None
    synthetic_trace: SyntheticTrace | None = None
    measured_requests: int
    earlier_replays: int = 0
    capacity: dict[str, str]
    cacheroute: PolicyFigures
    flat: PolicyFigures
    against_flat: Comparison | None
    incumbent: IncumbentFigures | None = None


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A replay with faults, a plan switch or other rules of the two compared policies."""

    id: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Envelope(Record):
    """The validated range: outside it the fleet falls back (paper, section 5.7, item 5)."""

    p99_limit_s: float | None = None
    load_low_rps: float | None = None
    load_high_rps: float | None = None
    active_keys: int | None = None
    max_imbalance: float | None = None
    max_error_rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class FallbackEvidence(Record):
    """Whether the fleet has an approved Flat-LB plan."""

    ready: bool


@dataclass(frozen=True, kw_only=True)
class Fingerprints(Record):
    """Fingerprints of the serving profile: now, and of the calibration, the build and the replay; empty: unknown."""

    fleet: str
    calibration: str
    plan: str
    replay: str


@dataclass(frozen=True, kw_only=True)
class OtherRates(Record):
    """Rates of another shape: their workload, and each figure that differs with both values (plan's first)."""

    id: int = 0
    name: str
    apart: dict[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Distribution(Record):
    """Digests of the rates planned for and replayed, and other rates that have another shape."""

    plan: str
    replay: str
    calibration: OtherRates | None
    newer: OtherRates | None


@dataclass(frozen=True, kw_only=True)
class TouchedTenant(Record):
    """A tenant with keys whose destinations change; ``share_of_own`` is a share of its own rate."""

    tenant: str
    keys: int
    rate_rps: float
    share_of_own: float


@dataclass(frozen=True, kw_only=True)
class Dip(Record):
    """Cold requests at a switch: their share at first, and seconds until half and a tenth of it is left."""

    cold_share: float
    first_misses: int
    half_s: float
    tenth_s: float
    how: str


@dataclass(frozen=True, kw_only=True)
class BlastRadius(Record):
    """What changes when all keys follow a plan instead of another (number ``against``; 0 is Flat-LB). An estimate.

    Keys are counts: ``keys_gained`` only the new table keeps warm, ``keys_lost`` only the old one, ``keys_moved`` both
    with other destinations; ``keys_gone`` are keys of the old table that the workload does not have. Rates are shares
    of the workload's requests/s (``rate_rps``); ``rate_moved`` is of gained, lost and moved keys together.
    ``rewarm_tokens`` is None where the workload has no prefix lengths.
    """

    against: int
    estimate: bool = True
    keys_gained: int = 0
    keys_lost: int = 0
    keys_moved: int = 0
    keys_gone: int = 0
    rate_gained: float = 0.0
    rate_lost: float = 0.0
    rate_changed: float = 0.0
    rate_moved: float = 0.0
    rate_rps: float = 0.0
    tenants: tuple[TouchedTenant, ...] = ()
    tenant_count: int = 0
    rewarm_tokens: int | None = 0
    dip: Dip


@dataclass(frozen=True, kw_only=True)
class WaiverEvidence(Record):
    """A waiver in force; times are ISO 8601."""

    id: int = 0
    check: str
    reason: str
    requested_by: str
    requested_at: str = ""
    granted_by: str
    granted_at: str = ""
    expires_at: str


@dataclass(frozen=True, kw_only=True)
class Evidence(Record):
    """All that the verdict of a checklist rests on. `document` is the JSON that is stored and has the digest."""

    format: str = ""
    destinations_up: tuple[int, ...]
    capacity_up: tuple[float, ...]
    policy: PolicyEvidence
    plan: PlanEvidence
    replan: ReplanEvidence | None = None
    incumbent: IncumbentEvidence | None = None
    workload: WorkloadEvidence
    calibration: CalibrationEvidence
    replay: ReplayEvidence | None
    what_ifs: tuple[WhatIf, ...] = ()
    envelope: Envelope | None
    fallback: FallbackEvidence
    fingerprints: Fingerprints
    distribution: Distribution
    blast_radius: BlastRadius | None = None
    waivers: tuple[WaiverEvidence, ...] = ()
    document: JsonObject = field(default_factory=dict, repr=False)

    @property
    def replayed(self) -> ReplayEvidence:
        """The replay, for checks that are only judged with one."""
        assert self.replay is not None
        return self.replay

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read stored evidence.

        Raises
        ------
        msgspec.ValidationError
            When an entry that every format has is absent or has another type.
        """
        rows = [{"id": row["id"], "reasons": row["with"]} for row in document.get("what_ifs", ())]
        found = super().from_json({**document, "what_ifs": rows})
        return replace(found, document=document)

    def to_json(self) -> JsonObject:
        """The stored JSON, unchanged."""
        return self.document
