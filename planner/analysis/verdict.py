"""What the cells of a replay say together: the types of a verdict, which is stored as JSON.

Verdicts of earlier releases lack some entries; the fields of those have defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from planner.records import Record

__all__ = [
    "CapacityOfSeeds",
    "Comparison",
    "Curve",
    "Difference",
    "DipOfSeeds",
    "EventsAtLoad",
    "LoadDifference",
    "LoadFigures",
    "MeanOfSeeds",
    "PolicyFigures",
    "TenantOfSeeds",
    "TenantsAtLoad",
    "Verdict",
]


@dataclass(frozen=True, kw_only=True)
class MeanOfSeeds(Record):
    """Mean over seeds and half-width of its 95% t interval; ``half`` is None where one seed gives no interval.

    ``missing`` is the number of seeds without a value, unset where all have one.
    """

    mean: float
    half: float | None = None
    missing: int | UnsetType = UNSET


@dataclass(frozen=True, kw_only=True)
class Difference(Record):
    """Paired difference over seeds; without a pair of values ``mean`` is None.

    ``excludes_zero_all_loads`` is judged with the confidence corrected for all loads looked at (Bonferroni).
    """

    mean: float | None
    half: float | None = None
    excludes_zero: bool = False
    excludes_zero_all_loads: bool = False

    @property
    def below_zero(self) -> bool:
        """Whether the interval is below zero."""
        return self.excludes_zero and self.mean is not None and self.mean < 0

    @property
    def above_zero(self) -> bool:
        """Whether the interval is above zero."""
        return self.excludes_zero and self.mean is not None and self.mean > 0


@dataclass(frozen=True, kw_only=True)
class LoadDifference(Difference):
    """Paired difference at one load, requests/s."""

    load_rps: float
    mean: float


@dataclass(frozen=True, kw_only=True)
class LoadFigures(Record):
    """Figures of a policy at one load: means over seeds, and counts added up over seeds.

    Latencies are seconds, hit rates shares of 1. ``requests`` is the smallest number of measured requests of a seed.
    A mean is None where no seed has a value.
    """

    load_rps: float
    seeds: int = 0
    hit_rate: MeanOfSeeds | None = None
    request_hit_rate: MeanOfSeeds | None = None
    p50_s: MeanOfSeeds | None = None
    p95_s: MeanOfSeeds | None = None
    p99_s: MeanOfSeeds
    ttft_p99_s: MeanOfSeeds | None = None
    imbalance: MeanOfSeeds | None = None
    busy_imbalance: MeanOfSeeds | None = None
    throughput_rps: MeanOfSeeds | None = None
    available: MeanOfSeeds | None = None
    planned: MeanOfSeeds | None = None
    delivered: MeanOfSeeds | None = None
    delivered_planned: MeanOfSeeds | None = None
    jain_hit: MeanOfSeeds | None = None
    jain_p99: MeanOfSeeds | None = None
    worst_tenant_ratio: MeanOfSeeds | None = None
    requests_per_destination: tuple[float, ...] = ()
    requests: int = 0
    preemptions: int = 0
    refused: int = 0
    redispatched: int = 0

    def mean(self, name: str) -> MeanOfSeeds | None:
        """The mean of a figure by its name."""
        found: MeanOfSeeds | None = getattr(self, name)
        return found


@dataclass(frozen=True, kw_only=True)
class CapacityOfSeeds(Record):
    """Capacity within the SLO over seeds: as text, per seed, and the step of the ladder that each seed reached.

    ``of`` is the number of loads; ``censored`` lists the sides (left, right) on which a seed is censored.
    """

    text: str
    per_seed: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    of: int = 0
    censored: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PolicyFigures(Record):
    """Figures of a policy at each load that it was run at, ascending, and its capacity."""

    loads: tuple[LoadFigures, ...] = ()
    capacity: CapacityOfSeeds = CapacityOfSeeds(text="not run")


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """Paired differences to another policy, at each load that both were run at; of capacity in steps of the ladder."""

    hit_rate: tuple[LoadDifference, ...] = ()
    p99_s: tuple[LoadDifference, ...] = ()
    p50_s: tuple[LoadDifference, ...] = ()
    busy_imbalance: tuple[LoadDifference, ...] = ()
    throughput_rps: tuple[LoadDifference, ...] = ()
    capacity_steps: Difference = Difference(mean=None)

    def rows(self, name: str) -> tuple[LoadDifference, ...]:
        """The differences of a figure by its name."""
        found: tuple[LoadDifference, ...] = getattr(self, name)
        return found


@dataclass(frozen=True, kw_only=True)
class TenantOfSeeds(Record):
    """Figures of a tenant at one load; ``requests`` is a mean over seeds."""

    tenant: str
    requests: float
    worst_of_seeds: int
    hit_rate: MeanOfSeeds | None = None
    request_hit_rate: MeanOfSeeds | None = None
    p50_s: MeanOfSeeds | None = None
    p99_s: MeanOfSeeds | None = None


@dataclass(frozen=True, kw_only=True)
class TenantsAtLoad(Record):
    """Tenants of a policy at one load, the busiest first; ``worst`` counts the seeds in which each was the worst."""

    load_rps: float
    count: int
    not_listed: int
    too_few: int
    without_tenant: int
    unserved: int
    min_requests: int
    seeds: int
    worst: dict[str, int] = field(default_factory=dict)
    rows: tuple[TenantOfSeeds, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Curve(Record):
    """Sums of all seeds in bins of ``width_s`` seconds by time of arrival; the warm-up ends at ``warmup_s``."""

    width_s: float
    warmup_s: float = 0.0
    requests: tuple[int, ...] = ()
    prompt_tokens: tuple[int, ...] = ()
    cached_tokens: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DipOfSeeds(Record):
    """Dip of the hit rate after one event over all seeds.

    ``duration_s`` is of the seeds that recovered; ``censored`` of ``of`` seeds did not within ``seen_s`` seconds.
    """

    before: MeanOfSeeds | None
    depth_points: MeanOfSeeds | None
    duration_s: MeanOfSeeds | None
    at_s: float
    seen_s: float
    censored: int
    of: int


@dataclass(frozen=True, kw_only=True)
class EventsAtLoad(Record):
    """Hit rate over time at one load, and its dip after each event."""

    load_rps: float
    curve: Curve
    dips: tuple[DipOfSeeds, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """What the cells of a replay say together.

    Attributes
    ----------
    slo_p99_s : float
        SLO of the p99 latency, seconds.
    loads_rps : tuple of float
        Every load that a policy was run at, ascending, requests/s.
    policies : dict of str to PolicyFigures
        Figures by policy. A (policy, load) that was not run is left out.
    against_flat, against_candidate : dict of str to Comparison
        Paired differences, the policy minus Flat-LB, and another plan minus the candidate.
    capacity : dict of str to str
        Capacity of each policy as text: never a bare number when it is censored.
    tenants, events : dict of str to rows by load
        Unset where no cell has tenants, faults or a switch of plans.
    """

    slo_p99_s: float
    loads_rps: tuple[float, ...]
    seeds: tuple[int, ...]
    policies: dict[str, PolicyFigures]
    against_flat: dict[str, Comparison] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=dict)
    against_candidate: dict[str, Comparison] | UnsetType = UNSET
    tenants: dict[str, tuple[TenantsAtLoad, ...]] | UnsetType = UNSET
    events: dict[str, tuple[EventsAtLoad, ...]] | UnsetType = UNSET

    def tenants_of(self, policy: str) -> tuple[TenantsAtLoad, ...]:
        """Tenants of a policy by load; empty where its cells have none."""
        return () if isinstance(self.tenants, UnsetType) else self.tenants.get(policy, ())

    def events_of(self, policy: str) -> tuple[EventsAtLoad, ...]:
        """Events of a policy by load; empty where its cells have none."""
        return () if isinstance(self.events, UnsetType) else self.events.get(policy, ())
