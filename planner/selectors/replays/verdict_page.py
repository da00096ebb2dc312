"""The verdict of a replay as rows of tables; verdicts of earlier releases lack some of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from planner.analysis import t_interval
from planner.analysis.verdict import (
    Comparison,
    DipOfSeeds,
    LoadDifference,
    LoadFigures,
    MeanOfSeeds,
    PolicyFigures,
    TenantOfSeeds,
    TenantsAtLoad,
    Verdict,
)
from planner.formatting import give_or_take, rounded
from planner.models import BASELINE, Replay
from planner.selectors.replays.policy_names import CANDIDATE, in_order, policy_name
from planner.simulation.options import ReplayParameters


@dataclass(frozen=True)
class FigureRow:
    """Figures of a policy at a load. ``first``: the first row of its load; ``within``: p99 meets the SLO."""

    load: float
    policy: str
    name: str
    figures: LoadFigures
    within: bool
    first: bool


@dataclass(frozen=True)
class DifferenceRow:
    """Paired differences of a policy at a load; None where one of both has no value."""

    load: float
    policy: str
    name: str
    first: bool
    p99_s: LoadDifference
    hit_rate: LoadDifference | None
    p50_s: LoadDifference | None
    busy_imbalance: LoadDifference | None
    throughput_rps: LoadDifference | None


@dataclass(frozen=True)
class LadderCell:
    """How many seeds met the SLO at a load and at every lower one."""

    met: int
    of: int


@dataclass(frozen=True)
class LadderRow:
    """Capacity of a policy, and a cell for each load; None at loads that it was not run at (bisection adds some)."""

    policy: str
    name: str
    text: str
    censored: tuple[str, ...]
    cells: list[LadderCell | None]


@dataclass(frozen=True)
class Ladder:
    """Loads and rows; ``left`` names the policies that meet the SLO at no load with any seed."""

    loads: tuple[float, ...]
    rows: list[LadderRow]

    @property
    def left(self) -> list[str]:
        """Names of the policies that are left-censored with every seed."""
        return [row.name for row in self.rows if row.censored == ("left",)]


@dataclass(frozen=True)
class CapacityMark:
    """Capacity of a policy as a chart draws it.

    ``low`` and ``high`` are the least and the greatest known value of a seed, ``mean`` and ``half`` their interval;
    None where no seed has one. ``left`` and ``right``: a seed is censored on that side.
    """

    text: str
    left: bool
    right: bool
    low: float | None
    high: float | None
    mean: float | None
    half: float | None


@dataclass(frozen=True)
class TenantRow:
    """A tenant under the candidate, and under Flat-LB."""

    tenant: TenantOfSeeds
    flat: TenantOfSeeds | None


@dataclass(frozen=True)
class FairnessRow:
    """Fairness of a policy between tenants."""

    name: str
    figures: LoadFigures
    tenants: TenantsAtLoad


@dataclass(frozen=True)
class Fairness:
    """Tenants at one load: a summary of each policy, and the tenants of the candidate beside Flat-LB."""

    load: float
    summary: list[FairnessRow]
    tenants: TenantsAtLoad
    rows: list[TenantRow]


@dataclass(frozen=True)
class RecoveryRow:
    """The dip of the hit rate after one event; ``back`` says when it recovered."""

    load: float
    policy: str
    name: str
    event: str
    dip: DipOfSeeds
    back: str


@dataclass(frozen=True)
class VerdictTables:
    """Every table of a verdict; a table without rows is not shown."""

    figures: list[FigureRow]
    differences: list[DifferenceRow]
    other_plans: list[DifferenceRow]
    ladder: Ladder
    chain: list[FigureRow]
    fairness: Fairness | None
    recovery: list[RecoveryRow]


@dataclass(frozen=True)
class ReplayVerdict:
    """A finished replay with its verdict and its options as types."""

    replay: Replay

    @cached_property
    def verdict(self) -> Verdict:
        """The stored verdict."""
        return Verdict.from_json(self.replay.verdict)

    @cached_property
    def parameters(self) -> ReplayParameters:
        """The stored options."""
        return ReplayParameters.from_json(self.replay.parameters)

    def figures_of(self, policy: str) -> dict[float, LoadFigures]:
        """Figures of a policy by load, only of loads that it was run at."""
        return {row.load_rps: row for row in self.verdict.policies.get(policy, PolicyFigures()).loads}

    def by_load(self) -> list[FigureRow]:
        """Figures of each policy at each load, load by load."""
        of = {policy: self.figures_of(policy) for policy in in_order(self.replay.policies)}
        rows = []
        for load in self.verdict.loads_rps:
            for at, policy in enumerate(policy for policy in of if load in of[policy]):
                figures = of[policy][load]
                within = figures.p99_s.mean <= self.replay.slo_p99_s
                rows.append(FigureRow(load, policy, policy_name(policy), figures, within, first=at == 0))
        return rows


def verdict_tables(found: ReplayVerdict) -> VerdictTables:
    """Every table of the verdict."""
    verdict, rows = found.verdict, found.by_load()
    others = verdict.against_candidate if isinstance(verdict.against_candidate, dict) else {}
    return VerdictTables(
        figures=rows,
        differences=difference_rows(verdict.against_flat),
        other_plans=difference_rows(others),
        ladder=ladder(found),
        chain=[row for row in rows if row.figures.available],
        fairness=fairness(found),
        recovery=recovery_rows(found),
    )


def compared_at(found: ReplayVerdict) -> tuple[float, LoadFigures, LoadFigures] | None:
    """The highest load at which candidate or Flat-LB meets the SLO, else the lowest; and the figures of both there.

    None when there is no load that both were run at.
    """
    mine, flat = found.figures_of(CANDIDATE), found.figures_of(BASELINE)
    both = sorted(set(mine) & set(flat))
    if not both:
        return None
    within = [x for x in both if min(mine[x].p99_s.mean, flat[x].p99_s.mean) <= found.replay.slo_p99_s]
    at = within[-1] if within else both[0]
    return at, mine[at], flat[at]


def shown_load(found: ReplayVerdict) -> float | None:
    """Return the load that single-load charts show first: the middle of the loads run by most policies."""
    policies = found.replay.policies
    ran = {load: sum(load in found.figures_of(p) for p in policies) for load in found.figures_of(CANDIDATE)}
    most = [load for load, times in ran.items() if times == max(ran.values())]
    return most[len(most) // 2] if most else None


def difference_rows(against: dict[str, Comparison]) -> list[DifferenceRow]:
    """Paired differences of each policy at each load, load by load."""
    order = in_order(list(against))
    compared = sorted(
        ((row.load_rps, at, policy, row) for at, policy in enumerate(order) for row in against[policy].p99_s),
        key=lambda found: found[:2],
    )
    rows = []
    before = None
    for load, _, policy, p99 in compared:
        of = {name: _at(against[policy].rows(name), load) for name in OTHER_DIFFERENCES}
        rows.append(DifferenceRow(load, policy, policy_name(policy), before != load, p99, **of))
        before = load
    return rows


OTHER_DIFFERENCES = ("hit_rate", "p50_s", "busy_imbalance", "throughput_rps")


def _at(rows: tuple[LoadDifference, ...], load: float) -> LoadDifference | None:
    return next((row for row in rows if row.load_rps == load), None)


def ladder(found: ReplayVerdict) -> Ladder:
    """The loads, and for each policy its capacity and how many seeds met the SLO up to each load."""
    loads = found.verdict.loads_rps
    rows = []
    for policy in in_order(found.replay.policies):
        capacity = found.verdict.policies[policy].capacity
        own, steps = list(found.figures_of(policy)), capacity.steps
        cells = [
            LadderCell(met=sum(step > own.index(load) for step in steps), of=len(steps)) if load in own else None
            for load in loads
        ]
        rows.append(LadderRow(policy, policy_name(policy), capacity.text, capacity.censored, cells))
    return Ladder(loads, rows)


def capacities(found: ReplayVerdict) -> dict[str, CapacityMark]:
    """Capacity of each policy as a chart draws it."""
    marks = {}
    for policy in found.replay.policies:
        capacity = found.verdict.policies[policy].capacity
        own = list(found.figures_of(policy))
        values = [own[step - 1] for step in capacity.steps if step]
        mean = t_interval(values) if values else None
        marks[policy] = CapacityMark(
            text=capacity.text,
            left="left" in capacity.censored,
            right="right" in capacity.censored,
            low=min(values, default=None),
            high=max(values, default=None),
            mean=mean.mean if mean else None,
            half=mean.half_width if mean else None,
        )
    return marks


def fairness(found: ReplayVerdict) -> Fairness | None:
    """Tenants at the compared load; None when the workload names no tenants."""
    at = compared_at(found)
    if at is None:
        return None
    load = at[0]
    here: dict[str, TenantsAtLoad] = {}
    for policy in in_order(found.replay.policies):
        for row in found.verdict.tenants_of(policy):
            if row.load_rps == load:  # a policy that was not run at this load has no row
                here[policy] = row
    if CANDIDATE not in here:
        return None
    summary = [FairnessRow(policy_name(policy), found.figures_of(policy)[load], row) for policy, row in here.items()]
    flat = {row.tenant: row for row in here[BASELINE].rows} if BASELINE in here else {}
    rows = [TenantRow(row, flat.get(row.tenant)) for row in here[CANDIDATE].rows]
    return Fairness(load, summary, here[CANDIDATE], rows)


def event_labels(found: ReplayVerdict, policy: str) -> list[str]:
    """Label of each moment at which something happened in a cell of this policy, in the order of its dips."""
    at: dict[float, list[str]] = {}
    for fault in found.parameters.faults:
        at.setdefault(fault.start, []).append(f"{fault.destination} {fault.kind}")
        if fault.kind == "down" and fault.end is not None and fault.end < 1:
            at.setdefault(fault.end, []).append(f"{fault.destination} back, cold")
    switch = found.parameters.switch
    if switch and policy == CANDIDATE:
        at.setdefault(switch.at, []).append(f"plan {switch.plan} gives way to plan {found.replay.plan.number}")
    return [" and ".join(at[moment]) for moment in sorted(at)]


def recovery_rows(found: ReplayVerdict) -> list[RecoveryRow]:
    """The dip of the hit rate at each load, for each policy and event: how deep, and how long until it recovered."""
    rows = []
    order = [policy for policy in in_order(found.replay.policies) if found.verdict.events_of(policy)]
    for policy in order:
        labels = event_labels(found, policy)
        for row in found.verdict.events_of(policy):
            for at, dip in enumerate(row.dips):
                label = labels[at] if at < len(labels) else f"event {at + 1}"
                rows.append(RecoveryRow(row.load_rps, policy, policy_name(policy), label, dip, _back(dip)))
    return sorted(rows, key=lambda row: (row.load, row.dip.at_s, order.index(row.policy)))


def _back(dip: DipOfSeeds) -> str:
    """When the curve recovered, in words: never a bare number where some seeds did not see it."""
    if dip.before is None:
        return "no requests before to compare with"
    if dip.censored == dip.of or dip.duration_s is None:
        return f">{rounded(dip.seen_s)} s: not back before the end"
    text = f"{_seconds(dip.duration_s)} s"
    if dip.censored:
        text += f" where it came back; {dip.censored} of {dip.of} seeds did not within {rounded(dip.seen_s)} s"
    return text


def _seconds(value: MeanOfSeeds) -> str:
    return give_or_take(value.mean, value.half)
