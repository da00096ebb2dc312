"""The verdict over the cells of a replay: means with intervals, paired differences, capacity with censoring."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from planner.analysis import paired_difference
from planner.analysis.verdict import (
    CapacityOfSeeds,
    Comparison,
    Difference,
    LoadDifference,
    LoadFigures,
    PolicyFigures,
    Verdict,
)
from planner.formatting import give_or_take
from planner.models import BASELINE, CANDIDATE, Replay
from planner.services.replays.verdict_parts import Cells, events_of, mean_of, tenants_of
from planner.simulation import Capacity, capacity

# Figures of a cell that are averaged over seeds.
MEANS = (
    "hit_rate",
    "request_hit_rate",
    "p50_s",
    "p95_s",
    "p99_s",
    "ttft_p99_s",
    "imbalance",
    "busy_imbalance",
    "throughput_rps",
    "available",
    "planned",
    "delivered",
    "delivered_planned",
    "jain_hit",
    "jain_p99",
    "worst_tenant_ratio",
)
# Counts of a cell that are added up over seeds.
COUNTS = ("preemptions", "refused", "redispatched")
# Figures of which the difference to another policy on the same arrivals is judged.
PAIRED = ("hit_rate", "p99_s", "p50_s", "busy_imbalance", "throughput_rps")
# Label of another plan of the fleet that is replayed too; its number follows.
OTHER_PLAN = f"{CANDIDATE}@"


def verdict_of(replay: Replay) -> Verdict:
    """Judge a replay by its succeeded cells. A (policy, load) that was not run is left out."""
    cells = Cells(replay.cells.filter(state="succeeded"))
    names = list(replay.policies)
    policies = {p: _policy(cells, p, replay.slo_p99_s) for p in names}
    others = [p for p in names if p.startswith(OTHER_PLAN)]
    return Verdict(
        slo_p99_s=replay.slo_p99_s,
        loads_rps=tuple(sorted({load for p in names for load in cells.loads(p)})),
        seeds=tuple(replay.seeds),
        policies=policies,
        against_flat={p: _against(cells, p, BASELINE, replay.slo_p99_s) for p in names if p != BASELINE},
        capacity={p: policies[p].capacity.text for p in names},
        against_candidate={p: _against(cells, p, CANDIDATE, replay.slo_p99_s) for p in others} or UNSET,
        tenants=tenants_of(cells, names) or UNSET,
        events=events_of(cells, names) or UNSET,
    )


def _policy(cells: Cells, policy: str, slo_s: float) -> PolicyFigures:
    loads = cells.loads(policy)
    if not loads:
        return PolicyFigures()
    found = [(seed, *_capacity_of(cells, policy, seed, loads, slo_s)) for seed in cells.seeds(policy)]
    return PolicyFigures(
        loads=tuple(_at_load(cells, policy, load) for load in loads),
        capacity=_capacity([c for _, c, _ in found], [s for *_, s in found], len(loads)),
    )


def _at_load(cells: Cells, policy: str, load: float) -> LoadFigures:
    of_seed = list(cells.at(policy, load).values())
    columns = zip(*(f.requests_per_destination for f in of_seed), strict=True)
    return LoadFigures.from_json(
        {
            "load_rps": load,
            "seeds": len(of_seed),
            "requests_per_destination": [sum(column) / len(of_seed) for column in columns],
            "requests": min(f.requests for f in of_seed),
            **{name: mean_of(f.value(name) for f in of_seed) for name in MEANS},
            **{name: sum(getattr(f, name) for f in of_seed) for name in COUNTS},
        }
    )


def _capacity_of(cells: Cells, policy: str, seed: int, loads: list[float], slo_s: float) -> tuple[Capacity, int]:
    """Capacity of one seed, and how many of `loads` are within it: 0 when left-censored, all when right-censored."""
    run = [load for load in loads if seed in cells.at(policy, load)]
    p99_s = [cells.at(policy, load)[seed].p99_s for load in run]
    found = capacity(run, [value for value in p99_s if value is not None], slo_s)  # Every succeeded cell has one.
    return found, 0 if found.value is None else sum(load <= found.value for load in loads)


def _capacity(found: list[Capacity], steps: list[int], loads: int) -> CapacityOfSeeds:
    per_seed = tuple(str(c) for c in found)
    censored = tuple(sorted({c.censored for c in found if c.censored}))
    if len(set(per_seed)) == 1:
        text = per_seed[0]
    elif censored:
        text = f"{min(found, key=_order)} to {max(found, key=_order)}"
    else:
        mean = mean_of(c.value for c in found)
        assert mean is not None
        low, high = min(found, key=_order), max(found, key=_order)
        # Seeds stop at few different loads, so an interval beyond the tested loads would claim more than was
        # measured.
        assert low.value is not None  # Not censored.
        within = mean.half is not None and low.lowest <= mean.mean - mean.half <= low.value
        text = give_or_take(mean.mean, mean.half) if within else f"{low} to {high}"
    return CapacityOfSeeds(text=text, per_seed=per_seed, steps=tuple(steps), of=loads, censored=censored)


def _order(c: Capacity) -> tuple[float, bool]:
    return (float("-inf") if c.value is None else c.value, c.censored == "right")


def _against(cells: Cells, policy: str, base: str, slo_s: float) -> Comparison:
    """Paired differences, policy - base, over the seeds that both have at the loads that both were run at."""
    loads = [load for load in cells.loads(policy) if cells.shared(policy, base, load)]
    differences: dict[str, tuple[LoadDifference, ...]] = {}
    for name in PAIRED:
        rows = []
        for load in loads:
            pairs = [(mine.value(name), other.value(name)) for mine, other in cells.shared(policy, base, load)]
            known = [(a, b) for a, b in pairs if a is not None and b is not None]
            if known:
                a, b = map(list, zip(*known, strict=True))
                rows.append(LoadDifference(load_rps=load, **vars(_pair(a, b, looks=len(loads)))))
        differences[name] = tuple(rows)
    steps: list[tuple[int, int]] = []
    for seed in cells.seeds(policy):
        both = [load for load in loads if seed in cells.at(policy, load) and seed in cells.at(base, load)]
        if both:
            mine, other = (_capacity_of(cells, p, seed, both, slo_s)[1] for p in (policy, base))
            steps.append((mine, other))
    return Comparison(capacity_steps=_pair([a for a, _ in steps], [b for _, b in steps]), **differences)


def _pair(a: Sequence[float], b: Sequence[float], looks: int = 1) -> Difference:
    if not a:
        return Difference(mean=None)
    difference = paired_difference(a, b)
    # Bonferroni: the best of several loads differs by chance more often than one load does.
    strict = paired_difference(a, b, confidence=1 - 0.05 / looks)
    return Difference(
        mean=difference.mean,
        half=difference.half_width,
        excludes_zero=difference.excludes_zero,
        excludes_zero_all_loads=strict.excludes_zero,
    )
