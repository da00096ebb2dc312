"""Replays: figures known for the Mooncake traces, and speed. One JSON object a line; ratio = value / baseline.

The traces are looked for in `$CACHEROUTE_DATA` or in the data folder that the tests use; where they are absent the
value is null and a note says so.
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_planner import best_of, emit
from planner.ingest import read_workload
from planner.routing import RoutingTable, build_table
from planner.simulation import PROFILES, Blocks, EngineProfile, Fault, ReplayResult, Trace, replay, retime
from planner.simulation.synthetic import Lengths, source_rate_shape, synthetic_trace

FLAGSHIP = PROFILES["llama-3.3-70b-fp8-tp2-h100"]
DATA = Path(os.environ.get("CACHEROUTE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
KEYS = 2_000
OTHERS = ("sticky", "chwbl", "dualmap", "preble")
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
    for name, depth, policy, hit_rate, imbalance in KNOWN:
        label = f"replay.mooncake.{name}.depth_{depth}.{policy}"
        file = DATA / "mooncake" / f"{name}_trace.jsonl.gz"
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


def case(requests: int, block_tokens: int, destinations: int = 30) -> tuple[Trace, RoutingTable]:
    """Requests of 2,000 keys with 4k-token prefixes and 256 output tokens, 40 a second for 30 destinations."""
    trace = synthetic_trace(
        source_rate_shape(KEYS),
        requests=requests,
        active_keys=KEYS,
        load_rps=40.0 * destinations / 30,
        prefix_tokens=Lengths(4096, 0.0, 4096, 4096),
        suffix_tokens=Lengths(300, 0.7, 8, 4096),
        output_tokens=Lengths(256, 0.0, 256, 256),
        block_tokens=block_tokens,
        seed=1,
    )
    rates = np.bincount(trace.key, minlength=KEYS) / trace.arrival_s[-1]
    return trace, build_table(rates, destinations=destinations, q_cap=4.0, slots=destinations * 80)


def play(
    trace: Trace, table: RoutingTable, policy: str, profile: EngineProfile = FLAGSHIP, **options: Any
) -> ReplayResult:
    """One replay as a caller meets it: the chains of the prompts are found anew each time."""
    fresh = replace(trace, blocks=Blocks(*trace.blocks))
    return replay(fresh, policy=policy, destinations=table.destinations, profile=profile, table=table, **options)


def speed() -> None:
    """Requests/s of wall time: 1,000,000 requests on 30 destinations, in coarse and in fine blocks."""
    for block_tokens, policies in (
        (512, {"cacheroute": 1_000_000, "flat-lb": 500_000, **dict.fromkeys(OTHERS)}),
        (16, {"cacheroute": 150_000, "flat-lb": 150_000}),
    ):
        trace, table = case(1_000_000, block_tokens)
        play(trace, table, "cacheroute")
        for policy, goal in policies.items():
            seconds = best_of(3, partial(play, trace, table, policy))
            emit(f"replay.speed.{block_tokens}_token_blocks.{policy}", round(len(trace) / seconds), "requests/s", goal)


def memory() -> None:
    """Bytes a request: of the trace's arrays, and what a replay takes beside them at its peak."""
    trace, table = case(1_000_000, 512)
    arrays = (trace.arrival_s, trace.key, *trace.blocks, trace.prompt_tokens, trace.output_tokens)
    held = sum(array.nbytes for array in arrays) / len(trace)
    play(*case(1_000, 512), "cacheroute")  # compiled before it is measured
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    play(trace, table, "cacheroute")
    taken = (_status("VmHWM") - before) / len(trace)
    emit("replay.memory.replay", round(taken, 1), "bytes/request", None, "growth of the process while it replays")
    emit("replay.memory.trace_and_replay", round(held + taken, 1), "bytes/request", 200)


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def leaps() -> None:
    """What leaping over decode-only stretches gains over playing every iteration, and how far apart they end."""
    for load in (20.0, 40.0):
        trace, table = case(100_000, 512)
        trace = retime(trace, load, arrivals="poisson", seed=1)
        leaping, stepping = (play(trace, table, "cacheroute", step=step) for step in (False, True))
        seconds = [best_of(3, partial(play, trace, table, "cacheroute", step=step)) for step in (False, True)]
        label = f"replay.leap.{load:g}_rps"
        fewer = stepping.iterations / leaping.iterations
        emit(f"{label}.fewer_iterations", round(fewer, 1), "times", 20)
        emit(f"{label}.time", round(seconds[0], 3), "s", round(seconds[1], 3), "baseline: stepping")
        apart = float(np.abs(leaping.latency_s - stepping.latency_s).max())
        emit(f"{label}.largest_difference", apart, "s", 1e-9)


def many_destinations() -> None:
    """Preble looks at every destination: time of a request on ten times as many."""
    seconds = {}
    for destinations in (30, 300):
        trace, table = case(100_000, 512, destinations)
        seconds[destinations] = best_of(3, partial(play, trace, table, "preble")) / len(trace)
        emit(f"replay.preble.{destinations}_destinations", round(seconds[destinations] * 1e6, 3), "us/request", None)
    emit("replay.preble.growth_for_10x", round(seconds[300] / seconds[30], 2), "times", 10)


def edges() -> None:
    """Requests/s away from the fair case: overload, faults, slots; and what a fleet of thousands takes."""
    trace, table = case(200_000, 512)
    flood = retime(trace, 1e5, arrivals="poisson", seed=1)
    end = float(trace.arrival_s[-1])
    faults = [Fault("down", 0, end / 4, end / 2), Fault("drain", 1, end / 4), Fault("slow", 2, end / 4)]
    slots = replace(FLAGSHIP, cache_shape="slots", max_sequences=48)
    for name, run in {
        "overload.flat-lb": partial(play, flood, table, "flat-lb"),
        "overload.dualmap": partial(play, flood, table, "dualmap"),
        "faults.cacheroute": partial(play, trace, table, "cacheroute", faults=faults),
        "slots.cacheroute": partial(play, trace, table, "cacheroute", profile=slots),
    }.items():
        emit(f"replay.speed.{name}", round(len(trace) / best_of(3, run)), "requests/s", None)
    trace, table = case(20_000, 16, 2_000)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    seconds = best_of(1, partial(play, trace, table, "flat-lb"))
    emit("replay.2000_destinations.time", round(seconds, 3), "s", None, "20,000 requests, 16-token blocks")
    emit("replay.2000_destinations.memory", round((_status("VmHWM") - before) / 2**20, 1), "MiB", None)


def round_robin() -> None:
    """Mooncake's conversation trace over 30 replicas of 1,024 blocks; two other simulators give .0586 to .0588."""
    file = DATA / "mooncake" / "conversation_trace.jsonl.gz"
    if not file.exists():
        emit("replay.mooncake.round_robin_30", None, "share", 0.0588, f"{file.name} not found; set CACHEROUTE_DATA")
        return
    trace = read_workload(file, key_depth=2).trace
    assert trace is not None
    result = replay(trace, policy="round-robin", destinations=30, profile=FLAGSHIP.with_cache(1024 * 512))
    emit("replay.mooncake.round_robin_30", round(result.hit_rate, 5), "share", 0.0588)


def main() -> None:
    """Print every figure."""
    memory()  # first, while the process is small
    mooncake()
    round_robin()
    speed()
    leaps()
    many_destinations()
    edges()


if __name__ == "__main__":
    main()
