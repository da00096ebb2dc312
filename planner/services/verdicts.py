"""What the cells of a replay say together: means with intervals, paired differences, capacity with censoring."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from planner.analysis import paired_difference, t_interval
from planner.models import BASELINE, Replay
from planner.simulation import capacity

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
}
PAIRED = ("hit_rate", "p99_s")


def verdict_of(replay: Replay) -> dict[str, Any]:
    """Judge a replay whose cells have all succeeded.

    Returns
    -------
    dict with ``policies`` (per policy: per load mean and 95% t half-width over seeds, and capacity),
    ``against_flat`` (per policy: paired differences to Flat-LB over seeds, per load, and of capacity in
    steps of the ladder), and ``capacity`` (per policy, as it is to be printed: never a bare number when
    censored).
    """
    cells: dict[tuple[str, float], dict[int, dict[str, Any]]] = defaultdict(dict)
    for cell in replay.cells.filter(state="succeeded"):
        cells[cell.policy, cell.load_rps][cell.seed] = cell.figures
    loads, seeds = list(replay.loads_rps), list(replay.seeds)
    policies = {p: _policy(cells, p, loads, seeds, replay.slo_p99_s) for p in replay.policies}
    return {
        "slo_p99_s": replay.slo_p99_s,
        "loads_rps": loads,
        "seeds": seeds,
        "policies": policies,
        "against_flat": {p: _against(cells, p, loads, seeds, policies) for p in replay.policies if p != BASELINE},
        "capacity": {p: policies[p]["capacity"]["text"] for p in replay.policies},
    }


def _policy(cells: Any, policy: str, loads: list[float], seeds: list[int], slo_s: float) -> dict[str, Any]:
    rows = []
    for load in loads:
        of_seed = [cells[policy, load][seed] for seed in seeds]
        row: dict[str, Any] = {"load_rps": load}
        for name in FIGURES:
            row[name] = _mean([figures[name] for figures in of_seed])
        row["requests_per_destination"] = [
            sum(column) / len(of_seed) for column in zip(*(f["requests_per_destination"] for f in of_seed), strict=True)
        ]
        row["requests"] = min(f["requests"] for f in of_seed)
        row["preemptions"] = sum(f["preemptions"] for f in of_seed)
        row["refused"] = sum(f["refused"] for f in of_seed)
        rows.append(row)
    found = [capacity(loads, [cells[policy, load][seed]["p99_s"] for load in loads], slo_s) for seed in seeds]
    # Steps of the ladder passed: 0 means left-censored, all of them right-censored.
    steps = [0 if c.censored == "left" else 1 + loads.index(c.value) for c in found]  # type: ignore[arg-type]
    return {"loads": rows, "capacity": _capacity(found, steps, loads)}


def _capacity(found: list[Any], steps: list[int], loads: list[float]) -> dict[str, Any]:
    per_seed = [str(c) for c in found]
    censored = sorted({c.censored for c in found if c.censored})
    if len(set(per_seed)) == 1:
        text = per_seed[0]
    elif censored:
        text = f"{min(found, key=_order)} to {max(found, key=_order)}"
    else:
        mean = _mean([c.value for c in found])
        text = f"{mean['mean']:.3g} ± {mean['half']:.2g}"
    return {"text": text, "per_seed": per_seed, "steps": steps, "of": len(loads), "censored": censored}


def _order(c: Any) -> float:
    return float("-inf") if c.censored == "left" else float(c.value)


def _against(cells: Any, policy: str, loads: list[float], seeds: list[int], policies: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in PAIRED:
        result[name] = [
            {
                "load_rps": load,
                **_pair(
                    [cells[policy, load][s][name] for s in seeds],
                    [cells[BASELINE, load][s][name] for s in seeds],
                    looks=len(loads),
                ),
            }
            for load in loads
        ]
    result["capacity_steps"] = _pair(policies[policy]["capacity"]["steps"], policies[BASELINE]["capacity"]["steps"])
    return result


def _mean(values: list[float]) -> dict[str, float | None]:
    found = t_interval(values)
    return {"mean": found.mean, "half": found.half_width}


def _pair(a: list[float], b: list[float], looks: int = 1) -> dict[str, Any]:
    difference = paired_difference(a, b)
    # Bonferroni: whoever looks at several loads and takes the best finds a difference by chance more often.
    strict = paired_difference(a, b, confidence=1 - 0.05 / looks)
    return {
        "mean": difference.mean,
        "half": difference.half_width,
        "excludes_zero": difference.excludes_zero,
        "excludes_zero_all_loads": strict.excludes_zero,
    }
