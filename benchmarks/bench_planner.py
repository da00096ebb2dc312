"""Time to plan up to 10,000,000 keys, and the share of the rate that a replan moves.

Prints one JSON object a line; ratio = value / baseline. The baseline of a build is Algorithm 1 in plain Python with
``heapq``, timed in the same run; both must give the same placement. The planner also chooses backups and computes the
imbalance after each single loss. The baseline of the exact admission is HiGHS, in CPU time of the same run; both must
reach the same value.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.highs_knapsack import highs_value
from benchmarks.plain_planner import plain_build
from planner.routing import RoutingTable, build_table, replan, replicas_needed
from planner.routing.admission import admit
from planner.routing.knapsack import Knapsack, best_by_search, best_by_slots
from planner.routing.sensitivity import sensitivity
from planner.simulation.synthetic import source_rate_shape

DESTINATIONS = 30
Q_CAP = 0.1  # 100 requests/s in all, so the largest keys need up to 3 destinations
PUBLISHED_MS = 345.0  # arXiv 2608.19677, same keys and destinations


def emit(name: str, value: float | None, unit: str, baseline: float | None, note: str = "") -> None:
    """Print one figure."""
    ratio = round(value / baseline, 4) if value is not None and baseline else None
    line = {"name": name, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio}
    print(json.dumps(line | ({"note": note} if note else {})), flush=True)


def best_of_each(repeats: int, *calls: Callable[[], object]) -> list[float]:
    """Return `best_of` of several calls that run in turn, so that all of them see the same noise."""
    for call in calls:
        call()
    times = [math.inf] * len(calls)
    for _ in range(repeats):
        for at, call in enumerate(calls):
            start = time.perf_counter()
            call()
            times[at] = min(times[at], time.perf_counter() - start)
    return times


def best_of(repeats: int, call: Callable[[], object]) -> float:
    """Return the shortest time of several runs in seconds; one run before them warms up and does not count."""
    return best_of_each(repeats, call)[0]


def main() -> None:
    """Print every figure."""
    ten_million()  # first: later, memory that was freed before would hide its use
    rates: NDArray[np.float64] = np.random.default_rng(1).permutation(source_rate_shape())
    for label, slots in (("C3840", 3840), ("all", 10**9)):
        table = against_plain(f"build_128824.{label}", rates, repeats=30, destinations=30, q_cap=Q_CAP, slots=slots)
        emit(f"planner.imbalance_128824.{label}", round(table.imbalance, 6), "max/mean", 1.0)
        emit(f"planner.worst_loss_128824.{label}", round(table.worst_loss, 6), "max/mean after one loss", 1.05)
        emit(f"planner.shuffles_128824.{label}", same_tables(rates, table), "identical tables of 32", 32)
        drifted = walked(rates, seed=1)
        args = {"q_cap": Q_CAP, "slots": slots}
        fresh_seconds, replan_seconds = best_of_each(
            20,
            lambda d=drifted, a=args: build_table(d, destinations=30, **a),
            lambda t=table, d=drifted, a=args: replan(t, d, **a),
        )
        after = replan(table, drifted, **args)
        emit(f"planner.replan_128824.{label}", round(1e3 * replan_seconds, 2), "ms", round(1e3 * fresh_seconds, 2))
        emit(f"planner.replan_moved_128824.{label}", after.moved_rate / after.admitted_rate, "share of rate", 0.01)
    seconds = best_of(20, lambda: build_table(rates, destinations=30, q_cap=Q_CAP, slots=10**9))
    emit("planner.build_128824.published", round(1e3 * seconds, 2), "ms", PUBLISHED_MS)
    churn(rates)
    million = np.random.default_rng(1).permutation(source_rate_shape(1_000_000))
    against_plain("build_1000000.all", million, repeats=10, destinations=300, q_cap=Q_CAP, slots=10**9)
    skewed(rates)
    for keys, slots in ((1_000, 250), (10_000, 2_500)):
        exact(keys, slots)
    exact(128_824, 3_840, against_highs=False)


def exact(keys: int, slots: int, *, against_highs: bool = True) -> None:
    """Time the exact admission by slots and by slots and tokens; CPU time, for the machine may be shared.

    HiGHS does not finish 128,824 keys within minutes, so that size has no baseline.
    """
    rng = np.random.default_rng(1)
    rates = rng.permutation(source_rate_shape(keys))
    tokens = np.clip(np.rint(6_000 * np.exp(0.5 * rng.standard_normal(keys))), 512, 32_768)
    sizes = replicas_needed(rates, 2 * 100.0 / keys if against_highs else Q_CAP, DESTINATIONS)
    values = rates * tokens / (rates * tokens).max()
    by_slots = Knapsack(values, sizes, slots, np.zeros(keys, dtype=np.int64), np.array([slots]), np.zeros(0))
    compare_exact(f"exact_{keys}.slots", by_slots, lambda: values[best_by_slots(by_slots)].sum(), against_highs)
    if not against_highs:
        return
    cost = sizes * tokens
    budget = 0.6 * float(cost[best_by_slots(by_slots)].sum())
    by_tokens = replace(by_slots, cost=cost, token_budget=budget)
    limits = {"slots": slots, "slot_tokens": tokens, "token_budget": budget}
    greedy = values[admit("density", rates=rates, sizes=sizes, values=values, **limits).admitted].sum()

    def search() -> float:
        found = best_by_search(by_tokens, float(greedy))
        return float(greedy if found is None else values[found].sum())

    compare_exact(f"exact_{keys}.tokens", by_tokens, search, against_highs)


def compare_exact(name: str, problem: Knapsack, solve: Callable[[], float], against_highs: bool) -> None:
    """Print the CPU time of a solver beside that of HiGHS; both must reach the same value."""
    solve()  # compiles
    seconds, value = min(cpu_time(solve) for _ in range(3))
    baseline = None
    if against_highs:
        baseline, best = cpu_time(lambda: highs_value(problem))
        if not math.isclose(value, best, rel_tol=1e-9):
            raise RuntimeError(f"{name}: {value} is not the value {best} of HiGHS")
    emit(f"planner.{name}", round(1e3 * seconds, 3), "ms CPU", baseline and round(1e3 * baseline, 1))


def cpu_time(call: Callable[[], float]) -> tuple[float, float]:
    """Return the CPU seconds of a call over all threads of this process, and its result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def against_plain(name: str, rates: NDArray[np.float64], *, repeats: int, **args: Any) -> RoutingTable:
    """Time a build and the plain build; both must give the same placement."""
    listed = rates.tolist()
    plain_seconds, plain = math.inf, None
    for _ in range(3 if len(rates) < 10**7 else 1):
        start = time.perf_counter()
        plain = plain_build(listed, args["destinations"], args["q_cap"], args["slots"])
        plain_seconds = min(plain_seconds, time.perf_counter() - start)
    seconds = best_of(repeats, lambda: build_table(rates, **args))
    table = build_table(rates, **args)
    if plain is None or [m for members in plain for m in members] != table.members.tolist():
        raise RuntimeError("the two builds disagree")
    emit(f"planner.{name}", round(1e3 * seconds, 2), "ms", round(1e3 * plain_seconds, 2))
    return table


def ten_million() -> None:
    """Time the build of 10,000,000 keys on 1,000 destinations, 100,000 of them admitted, and measure its memory."""
    before = resident()
    rates = np.random.default_rng(1).permutation(source_rate_shape(10_000_000, total_rps=10_000.0))
    args = {"destinations": 1_000, "q_cap": 1.0, "slots": 100_000}
    build_table(rates, **args)  # compiles
    forget_peak()
    build_table(rates, **args)
    arrays = (resident("VmHWM") - before) / rates.nbytes
    emit("planner.memory_10000000.C100000", round(arrays, 2), "float64 arrays of all keys, the rates included", 6.0)
    against_plain("build_10000000.C100000", rates, repeats=5, **args)


def skewed(rates: NDArray[np.float64]) -> None:
    """Time the sensitivity study of 125 plans; print its churn at 0.75 q_cap where the busiest key holds 45%."""
    args = {"destinations": DESTINATIONS, "q_cap": 6.0, "slots": 3840}
    start = time.perf_counter()
    settings = sensitivity(rates, **args)
    emit("planner.sensitivity_128824", round(time.perf_counter() - start, 2), "s, 125 plans", None)
    by_factor = {s.q_cap_factor: s for s in settings if s.head_share == 0.45 and s.w_factor == 1.0}
    low, base = by_factor[0.75], by_factor[1.0]
    emit("planner.sensitivity_head45.largest_k", low.largest_k, "destinations", base.largest_k)
    emit("planner.sensitivity_head45.churn", round(low.churn_rate, 4), "share of rate", None)


def resident(field: str = "VmRSS") -> int:
    """Return the resident memory of this process in bytes, or its peak (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Reset VmHWM to the resident memory of now (see proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def same_tables(rates: NDArray[np.float64], table: RoutingTable) -> int:
    """Count the builds, out of 32 with shuffled rates, that give the same table."""
    same, rng = 0, np.random.default_rng(7)
    for _ in range(32):
        order = rng.permutation(len(rates))
        other = build_table(rates[order], destinations=table.destinations, q_cap=table.q_cap, slots=table.slots)
        same += np.array_equal(order[other.admitted], table.admitted) and all(
            np.array_equal(getattr(other, name), getattr(table, name))
            for name in ("offsets", "members", "backup", "load", "after_loss")
        )
    return same


def walked(rates: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return the rates after one control interval of drift: a lognormal step of sigma 0.3, renormalised (5.4)."""
    moved = rates * np.exp(0.3 * np.random.default_rng(seed).standard_normal(len(rates)))
    return moved * rates.sum() / moved.sum()


def churn(rates: NDArray[np.float64]) -> None:
    """Measure how many keys a fresh plan and a replan re-assign: 128 keys on 30 destinations, as in the paper."""
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
