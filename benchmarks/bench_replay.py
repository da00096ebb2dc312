"""Replays: figures known for the Mooncake traces, and speed. One JSON object a line; ratio = value / baseline.

The traces are looked for in `$CACHEROUTE_DATA` or in the data folder that the tests use; where they are absent the
value is null and a note says so.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from benchmarks.bench_planner import best_of, emit
from planner.ingest import read_workload
from planner.routing import build_table
from planner.simulation import PROFILES, Trace, replay
from planner.simulation.synthetic import source_rate_shape, synthetic_trace

FLAGSHIP = PROFILES["llama-3.3-70b-fp8-tp2-h100"]
# trace, key depth, policy, known hit rate, known max/mean of requests
KNOWN = [
    ("conversation", 2, "round-robin", 0.139, 1.0),
    ("conversation", 2, "hash", 0.3736, 1.095),
    ("conversation", 1, "hash", 0.3736, 8.0),
    ("synthetic", 1, "round-robin", 0.231, 1.0),
    ("synthetic", 1, "hash", 0.6512, 1.12),
]


def mooncake() -> None:
    """Unlimited caches on 8 destinations against figures from outside."""
    root = Path(os.environ.get("CACHEROUTE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    for name, depth, policy, hit_rate, imbalance in KNOWN:
        label = f"replay.mooncake.{name}.depth_{depth}.{policy}"
        file = root / "mooncake" / f"{name}_trace.jsonl.gz"
        if not file.exists():
            emit(f"{label}.hit_rate", None, "share", hit_rate, f"{file.name} not found; set CACHEROUTE_DATA")
            continue
        trace = read_workload(file, key_depth=depth).trace
        if trace is None:
            raise RuntimeError(f"{file} holds no request trace")
        start = time.perf_counter()
        result = replay(trace, policy=policy, destinations=8, profile=FLAGSHIP.with_cache(None))
        seconds = time.perf_counter() - start
        emit(f"{label}.hit_rate", round(result.hit_rate, 5), "share", hit_rate)
        emit(f"{label}.imbalance", round(result.imbalance, 4), "max/mean", imbalance)
        emit(f"{label}.speed", round(len(trace) / seconds), "requests/s", None)


def sample() -> Trace:
    """100,000 requests of 8 to 16 blocks and 256 output tokens."""
    return synthetic_trace(
        source_rate_shape(),
        requests=100_000,
        active_keys=128,
        load_rps=60.0,
        prefix_tokens=5_000.0,
        suffix_tokens=900.0,
        output_tokens=256.0,
        seed=1,
    )


def speed() -> None:
    """Requests/s on 30 destinations (baseline: the 100,000 aimed at), and what leaping gains over stepping."""
    trace = sample()
    rates = np.bincount(trace.key) / trace.arrival_s[-1]
    table = build_table(rates, destinations=30, q_cap=4.0, slots=30 * 40)
    seconds = {}
    for policy in ("flat-lb", "sticky", "cacheroute"):
        run = {"policy": policy, "destinations": 30, "profile": FLAGSHIP, "table": table}
        seconds[policy] = best_of(3, lambda run=run: replay(trace, **run))
        emit(f"replay.speed.{policy}", round(len(trace) / seconds[policy]), "requests/s", 100_000)
    stepped = best_of(1, lambda: replay(trace, **run, step=True))
    emit("replay.leap_time", round(seconds["cacheroute"], 3), "s", round(stepped, 3), "baseline: stepping")


def main() -> None:
    """Print every figure."""
    mooncake()
    speed()


if __name__ == "__main__":
    main()
