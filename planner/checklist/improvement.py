"""Item 4: p99 or capacity better than Flat-LB, with an interval that excludes zero, and no worse than what is live.

A higher hit rate alone never counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.analysis.verdict import Comparison, LoadDifference
from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence
from planner.formatting import give_or_take

MATTERS = 0.5  # of the measured rate: at lower loads being better says nothing of the traffic that is to be served

NONE_SERVED = "Neither policy meets the SLO at any replayed load, so there is nothing to compare: replay lower loads."


@dataclass(frozen=True)
class _Compared:
    """Candidate and Flat-LB, at the loads that one of them serves within the SLO: above, p99 says nothing of either."""

    served: list[LoadDifference]  # differences of p99, candidate - Flat-LB
    flat_p99: dict[float, float]
    matters_rps: float
    capacities: str

    @property
    def anywhere(self) -> list[LoadDifference]:
        """Better, with one chance in twenty over all loads together."""
        return [row for row in self.served if row.excludes_zero_all_loads and row.mean < 0]

    @property
    def better(self) -> list[LoadDifference]:
        """Better at a load that matters."""
        return [row for row in self.anywhere if row.load_rps >= self.matters_rps]


def _compared(evidence: Evidence) -> _Compared:
    replay = evidence.replayed
    p99_at = [{row.load_rps: row.p99_s.mean for row in figures.loads} for figures in (replay.cacheroute, replay.flat)]
    against = replay.against_flat or Comparison()
    capacity = replay.capacity
    return _Compared(
        [row for row in against.p99_s if min(p99[row.load_rps] for p99 in p99_at) <= replay.slo_p99_s],
        p99_at[1],
        MATTERS * evidence.workload.total_rps,
        f"capacity {capacity.get('cacheroute')} against {capacity.get('flat-lb')} requests/s",
    )


@check(item=4, name="comparable", title="There is something to compare", needs="replay")
def comparable(evidence: Evidence, live: Live) -> Judgement:
    """Seeds that give an interval, and a load that at least one of the two serves within the SLO."""
    replay = evidence.replayed
    if replay.against_flat is None:
        return Judgement(MISSING, "No replay to compare with Flat-LB.")
    least = evidence.policy.min_seeds
    if len(replay.seeds) < least:
        return Judgement(MISSING, f"{len(replay.seeds)} seeds give no interval; {least} are needed.")
    served = _compared(evidence).served
    if not served:
        return Judgement(MISSING, NONE_SERVED)
    if any(row.half <= 1e-9 * abs(row.mean) for row in served if row.mean and row.half is not None):
        return Judgement(MISSING, "The seeds gave identical replays, so there is no interval: take other arrivals.")
    return Judgement(PASS, f"Compared at {len(served)} loads within the SLO.")


@check(item=4, name="capacity-not-lower", title="Capacity not lower than Flat-LB's", needs="replay")
def capacity_not_lower(evidence: Evidence, live: Live) -> Judgement:
    """Capacity in steps of the replayed loads, paired by seed."""
    replay = evidence.replayed
    if replay.against_flat is None:
        return Judgement(MISSING, "No replay to compare with Flat-LB.")
    steps = replay.against_flat.capacity_steps
    numbers = {"capacity": replay.capacity, "capacity_steps": steps}
    text = _compared(evidence).capacities
    if steps.below_zero:
        return Judgement(FAIL, f"Capacity is lower than Flat-LB's: {text}.", numbers)
    return Judgement(PASS, f"{text[0].upper()}{text[1:]}.", numbers)


@check(item=4, name="p99-not-worse", title="p99 worse than Flat-LB's at no load within the SLO", needs="replay")
def p99_not_worse(evidence: Evidence, live: Live) -> Judgement:
    """Worse counts at any single load, however low."""
    worse = [row for row in _compared(evidence).served if row.above_zero]
    if worse:
        row = worse[0]
        return Judgement(FAIL, f"p99 is worse by {give_or_take(row.mean, row.half)} s at {row.load_rps:g} requests/s.")
    return Judgement(PASS, "p99 is worse at no load within the SLO.")


@check(
    item=4,
    name="better-than-flat",
    title="p99 or capacity better than Flat-LB's, beyond chance",
    waivable=False,
    needs="replay",
)
def better_than_flat(evidence: Evidence, live: Live) -> Judgement:
    """At a load that matters. Only the hit rate better: fail. Intervals that straddle zero: missing."""
    return _better(evidence)


def _better(evidence: Evidence) -> Judgement:
    replay = evidence.replayed
    against = replay.against_flat
    if against is None:
        return Judgement(MISSING, "No replay to compare with Flat-LB.")
    found = _compared(evidence)
    steps, matters, capacities = against.capacity_steps, found.matters_rps, found.capacities
    numbers = {
        "better_counts_from_rps": matters,
        "p99_difference_s": against.p99_s,
        "hit_rate_difference": against.hit_rate,
    }
    if len(replay.seeds) < evidence.policy.min_seeds:
        return Judgement(MISSING, f"{len(replay.seeds)} seeds give no interval.", numbers)
    if not found.served:
        return Judgement(MISSING, NONE_SERVED, numbers)
    # More capacity counts where it is more at a load that matters: the candidate serves it, and Flat-LB does not.
    validated = (evidence.envelope and evidence.envelope.load_high_rps) or 0.0
    flat = found.flat_p99
    more = [load for load in flat if matters <= load <= validated and flat[load] > replay.slo_p99_s]
    wider = steps.above_zero
    if wider and more:
        return Judgement(PASS, f"Better {capacities}.", numbers)
    if found.better:
        row = max(found.better, key=lambda r: r.load_rps)
        return Judgement(
            PASS,
            f"p99 is better by {give_or_take(-row.mean, row.half)} s at {row.load_rps:g} requests/s; {capacities}.",
            numbers,
        )
    if wider or found.anywhere:
        return Judgement(
            MISSING,
            f"Better only below {matters:g} requests/s, which is {MATTERS:.0%} of the measured rate: that says nothing "
            f"of the traffic that is to be served ({capacities}).",
            numbers,
        )
    if any(row.above_zero for row in against.hit_rate):
        return Judgement(FAIL, f"Only the hit rate is higher; p99 and capacity are not ({capacities}).", numbers)
    return Judgement(MISSING, f"The intervals straddle zero: no difference shown ({capacities}).", numbers)


@check(item=4, name="incumbent-not-better", title="No worse than the plan that is live", needs="replay")
def incumbent_not_better(evidence: Evidence, live: Live) -> Judgement:
    """A plan must not take traffic from one that serves it better."""
    incumbent = evidence.incumbent
    if incumbent is None:
        return Judgement(PASS, "Flat-LB is what is live.")
    replay, name = evidence.replayed, f"plan {incumbent.plan}, which is live"
    beside = replay.incumbent
    if beside is None:
        return Judgement(MISSING, f"Nothing compares it with {name}.")
    numbers = {
        "incumbent_p99_difference_s": beside.against.p99_s,
        "incumbent_capacity_steps": beside.against.capacity_steps,
    }
    # The incumbent's figures minus the candidate's: below zero the incumbent's p99 is the shorter one.
    steps = beside.against.capacity_steps
    if steps.above_zero:
        return Judgement(
            FAIL,
            f"Capacity is lower than that of {name}: {replay.capacity.get('cacheroute')} against "
            f"{replay.capacity.get(beside.policy)} requests/s.",
            numbers,
        )
    p99_at = [{r.load_rps: r.p99_s.mean for r in of.loads} for of in (replay.cacheroute, beside)]
    served = [
        row
        for row in beside.against.p99_s
        if min(p99.get(row.load_rps, float("inf")) for p99 in p99_at) <= replay.slo_p99_s
    ]
    if not served:
        return Judgement(MISSING, f"No load within the SLO compares it with {name}.", numbers)
    for row in served:
        if row.below_zero:
            return Judgement(
                FAIL,
                f"p99 is worse than that of {name} by {give_or_take(-row.mean, row.half)} s at "
                f"{row.load_rps:g} requests/s.",
                numbers,
            )
    return Judgement(PASS, f"p99 and capacity are not worse than those of {name}.", numbers)


@summary(item=4)
def summary_of_better(evidence: Evidence) -> str:
    """What is better, and by how much."""
    judged = _better(evidence)
    beside = f" No worse than plan {evidence.incumbent.plan}, which is live." if evidence.incumbent else ""
    worse = " p99 is worse at no load within the SLO." if judged.explanation.startswith("Better") else ""
    return judged.explanation + worse + beside
