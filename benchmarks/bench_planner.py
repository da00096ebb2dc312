"""Time to plan 128,824 keys on 30 destinations, one JSON object a line; ratio = value / baseline.

The baseline is Algorithm 1 in plain Python with ``heapq``, timed in the same run; it must give the same table.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from planner.routing import build_table, replan
from planner.simulation.synthetic import source_rate_shape

DESTINATIONS = 30
Q_CAP = 0.1  # 100 requests/s in all, so the largest keys need up to 3 destinations
PUBLISHED_MS = 345.0  # arXiv 2608.19677, same keys and destinations


def emit(name: str, value: float | None, unit: str, baseline: float | None, note: str = "") -> None:
    """Print one figure."""
    ratio = round(value / baseline, 4) if value is not None and baseline else None
    line = {"name": name, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio}
    print(json.dumps(line | ({"note": note} if note else {})), flush=True)


def best_of(repeats: int, call: Callable[[], object]) -> float:
    """Return the shortest of some runs in seconds, after one that warms up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def plain_build(rates: list[float], destinations: int, q_cap: float, slots: int) -> list[list[int]]:
    """Algorithm 1 in plain Python; the members of each admitted key in descending rate."""
    sizes = []
    for rate in rates:
        k = max(1, int(-(-rate // q_cap)))
        k -= k > 1 and (k - 1) * q_cap >= rate
        k += k * q_cap < rate
        sizes.append(min(k, destinations))
    used, cold, admitted = 0, 0.0, []
    for b in sorted(range(len(rates)), key=lambda b: (-rates[b], b)):
        if used + sizes[b] <= slots:
            used += sizes[b]
            admitted.append(b)
        else:
            cold += rates[b]
    heap = [(cold / destinations, r) for r in range(destinations)]
    members = []
    for b in admitted:
        taken = [heapq.heappop(heap) for _ in range(sizes[b])]
        for load, r in taken:
            heapq.heappush(heap, (load + rates[b] / sizes[b], r))
        members.append(sorted(r for _, r in taken))
    return members


def main() -> None:
    """Print every figure."""
    rates: NDArray[np.float64] = np.random.default_rng(1).permutation(source_rate_shape())
    listed = rates.tolist()
    for label, slots in (("C3840", 3840), ("all", 10**9)):
        plain_seconds = best_of(1, lambda s=slots: plain_build(listed, DESTINATIONS, Q_CAP, s))
        seconds = best_of(7, lambda s=slots: build_table(rates, destinations=DESTINATIONS, q_cap=Q_CAP, slots=s))
        table = build_table(rates, destinations=DESTINATIONS, q_cap=Q_CAP, slots=slots)
        # The sum of the cold rates differs in its last bit between the two, and ties with it: compare the sizes.
        plain = plain_build(listed, DESTINATIONS, Q_CAP, slots)
        if [len(m) for m in plain] != table.replicas.tolist():
            raise RuntimeError("the two builds disagree")
        emit(f"planner.build_128824.{label}", round(1e3 * seconds, 2), "ms", round(1e3 * plain_seconds, 2))
        emit(f"planner.imbalance_128824.{label}", round(table.imbalance, 6), "max/mean", 1.0)
        drifted = walked(rates, seed=1)
        fresh_seconds = best_of(5, lambda s=slots, d=drifted: build_table(d, destinations=30, q_cap=Q_CAP, slots=s))
        replan_seconds = best_of(5, lambda s=slots, d=drifted, t=table: replan(t, d, q_cap=Q_CAP, slots=s))
        after = replan(table, drifted, q_cap=Q_CAP, slots=slots)
        emit(f"planner.replan_128824.{label}", round(1e3 * replan_seconds, 2), "ms", round(1e3 * fresh_seconds, 2))
        emit(f"planner.replan_moved_128824.{label}", after.moved_rate / after.admitted_rate, "share of rate", 0.01)
    emit("planner.build_128824.published", round(1e3 * seconds, 2), "ms", PUBLISHED_MS)
    churn(rates)


def walked(rates: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """One control interval of the source's drift: a lognormal step of sigma 0.3, renormalised (section 5.4)."""
    moved = rates * np.exp(0.3 * np.random.default_rng(seed).standard_normal(len(rates)))
    return moved * rates.sum() / moved.sum()


def churn(rates: NDArray[np.float64]) -> None:
    """The flagship's active set, 128 keys on 30 destinations: what a fresh plan and a replan re-assign."""
    top = np.sort(rates)[::-1][:128]
    fresh_keys, moved, worst = [], [], 0.0
    for seed in range(20):
        now = walked(top, seed)
        before = build_table(top, destinations=DESTINATIONS, q_cap=Q_CAP * 100, slots=128)
        fresh = build_table(now, destinations=DESTINATIONS, q_cap=Q_CAP * 100, slots=128)
        after = replan(before, now, q_cap=Q_CAP * 100, slots=128)
        fresh_keys.append(np.mean([before.members_of(k)[0] != fresh.members_of(k)[0] for k in range(128)]))
        moved.append(after.moved_rate / after.admitted_rate)
        worst = max(worst, after.imbalance / fresh.imbalance)
    emit("planner.churn_128.fresh_keys", round(float(np.mean(fresh_keys)), 4), "share of keys", 0.945)
    emit("planner.churn_128.replan_rate", round(float(np.mean(moved)), 4), "share of rate", None)
    emit("planner.churn_128.replan_imbalance_worst", round(worst, 4), "x fresh", 1.02)


if __name__ == "__main__":
    main()
