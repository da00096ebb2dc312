"""What the cells of a replay say together: means with intervals, paired differences, capacity with censoring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.analysis import paired_difference
from planner.formatting import give_or_take
from planner.models import BASELINE, CANDIDATE, Replay
from planner.services.replays.verdict_parts import Cells, events_of, mean_of, tenants_of
from planner.simulation import Capacity, capacity

# Figures of a cell that are averaged over seeds, with what they are called on pages.
FIGURES = {
    "hit_rate": "hit rate (token-weighted)",
    "request_hit_rate": "hit rate (request-weighted)",
    "p50_s": "p50 latency",
    "p95_s": "p95 latency",
    "p99_s": "p99 latency",
    "ttft_p99_s": "p99 time to first token",
    "imbalance": "max/mean requests",
    "busy_imbalance": "max/mean busy time",
    "throughput_rps": "requests/s finished",
    "available": "hit rate that one unlimited cache would have had",
    "planned": "the part of it that the table could keep",
    "delivered": "hit rate that was served",
    "delivered_planned": "the part of it on the table's keys",
    "jain_hit": "Jain's index of the tenants' hit rates",
    "jain_p99": "Jain's index of the tenants' p99",
    "worst_tenant_ratio": "worst tenant's p99 / median tenant's p99",
}
# Counts of a cell that are added up over seeds.
COUNTS = ("preemptions", "refused", "redispatched")
# Figures of which the difference to another policy on the same arrivals is judged.
PAIRED = ("hit_rate", "p99_s", "p50_s", "busy_imbalance", "throughput_rps")
# Other plans of the fleet that were replayed beside are labelled so, with their number.
OTHER_PLAN = f"{CANDIDATE}@"


def verdict_of(replay: Replay) -> dict[str, Any]:
    """Judge a replay by its succeeded cells; a (policy, load) that was not run is left out, not guessed.

    Returns
    -------
    dict with
        ``policies``: per policy, per load that it was run at, means with 95% t half-widths over seeds; and capacity;
        ``against_flat``: per policy, paired differences to Flat-LB over seeds, at the loads that both were run at, and
        of capacity in steps of those loads;
        ``against_candidate``: the same to the candidate, for other plans that were replayed beside it;
        ``capacity``: per policy, as it is to be printed: never a bare number when censored;
        ``tenants``, ``events``: per policy and load, where the cells have tenants, faults or a switch.
    """
    cells = Cells(replay.cells.filter(state="succeeded"))
    names = list(replay.policies)
    policies = {p: _policy(cells, p, replay.slo_p99_s) for p in names}
    verdict = {
        "slo_p99_s": replay.slo_p99_s,
        "loads_rps": sorted({load for p in names for load in cells.loads(p)}),
        "seeds": list(replay.seeds),
        "policies": policies,
        "against_flat": {p: _against(cells, p, BASELINE, replay.slo_p99_s) for p in names if p != BASELINE},
        "capacity": {p: policies[p]["capacity"]["text"] for p in names},
    }
    others = [p for p in names if p.startswith(OTHER_PLAN)]
    parts = {
        "against_candidate": {p: _against(cells, p, CANDIDATE, replay.slo_p99_s) for p in others},
        "tenants": tenants_of(cells, names),
        "events": events_of(cells, names),
    }
    return verdict | {name: part for name, part in parts.items() if part}


def _policy(cells: Cells, policy: str, slo_s: float) -> dict[str, Any]:
    rows = []
    loads = cells.loads(policy)
    for load in loads:
        of_seed = list(cells.at(policy, load).values())
        row: dict[str, Any] = {"load_rps": load, "seeds": len(of_seed)}
        for name in FIGURES:
            row[name] = mean_of(f.get(name) for f in of_seed)
        row["requests_per_destination"] = [
            sum(column) / len(of_seed) for column in zip(*(f["requests_per_destination"] for f in of_seed), strict=True)
        ]
        row["requests"] = min(f["requests"] for f in of_seed)
        row |= {name: sum(f.get(name) or 0 for f in of_seed) for name in COUNTS}
        rows.append(row)
    if not rows:
        return {"loads": [], "capacity": {"text": "not run", "per_seed": [], "steps": [], "of": 0, "censored": []}}
    found = [(seed, *_capacity_of(cells, policy, seed, loads, slo_s)) for seed in cells.seeds(policy)]
    return {"loads": rows, "capacity": _capacity([c for _, c, _ in found], [s for *_, s in found], len(loads))}


def _capacity_of(cells: Cells, policy: str, seed: int, loads: list[float], slo_s: float) -> tuple[Capacity, int]:
    """Capacity of one seed, and how many of `loads` lie within it: 0 when left-censored, all when right-censored."""
    run = [load for load in loads if seed in cells.at(policy, load)]
    found = capacity(run, [cells.at(policy, load)[seed]["p99_s"] for load in run], slo_s)
    return found, 0 if found.value is None else sum(load <= found.value for load in loads)


def _capacity(found: list[Capacity], steps: list[int], loads: int) -> dict[str, Any]:
    per_seed = [str(c) for c in found]
    censored = sorted({c.censored for c in found if c.censored})
    if len(set(per_seed)) == 1:
        text = per_seed[0]
    elif censored:
        text = f"{min(found, key=_order)} to {max(found, key=_order)}"
    else:
        mean = mean_of(c.value for c in found)
        assert mean is not None
        low, high = min(found, key=_order), max(found, key=_order)
        # Seeds stop at few different loads: an interval that leaves those that were tested says less than they do.
        within = mean["half"] is not None and low.lowest <= mean["mean"] - mean["half"] <= low.value
        text = give_or_take(mean["mean"], mean["half"]) if within else f"{low} to {high}"
    return {"text": text, "per_seed": per_seed, "steps": steps, "of": loads, "censored": censored}


def _order(c: Capacity) -> tuple[float, bool]:
    return (float("-inf") if c.value is None else c.value, c.censored == "right")


def _against(cells: Cells, policy: str, base: str, slo_s: float) -> dict[str, Any]:
    """Paired differences, policy - base, over the seeds that both have at the loads that both were run at."""
    loads = [load for load in cells.loads(policy) if cells.shared(policy, base, load)]
    result: dict[str, Any] = {}
    for name in PAIRED:
        result[name] = []
        for load in loads:
            pairs = [
                (mine[name], other[name])
                for mine, other in cells.shared(policy, base, load)
                if mine.get(name) is not None and other.get(name) is not None
            ]
            if pairs:
                a, b = map(list, zip(*pairs, strict=True))
                result[name].append({"load_rps": load, **_pair(a, b, looks=len(loads))})
    steps: list[tuple[int, int]] = []
    for seed in cells.seeds(policy):
        both = [load for load in loads if seed in cells.at(policy, load) and seed in cells.at(base, load)]
        if both:
            mine, other = (_capacity_of(cells, p, seed, both, slo_s)[1] for p in (policy, base))
            steps.append((mine, other))
    result["capacity_steps"] = _pair([a for a, _ in steps], [b for _, b in steps])
    return result


def _pair(a: Sequence[float], b: Sequence[float], looks: int = 1) -> dict[str, Any]:
    if not a:
        return {"mean": None, "half": None, "excludes_zero": False, "excludes_zero_all_loads": False}
    difference = paired_difference(a, b)
    # Bonferroni: whoever looks at several loads and takes the best finds a difference by chance more often.
    strict = paired_difference(a, b, confidence=1 - 0.05 / looks)
    return {
        "mean": difference.mean,
        "half": difference.half_width,
        "excludes_zero": difference.excludes_zero,
        "excludes_zero_all_loads": strict.excludes_zero,
    }
