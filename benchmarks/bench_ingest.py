"""Import and sample-workload figures, one JSON object a line.

The Mooncake figures need the public trace, in `$CACHEROUTE_DATA` or in the data folder that the tests use. Where it is
absent the value is null and a note says so.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from planner.ingest import ImportedWorkload, read_workload
from planner.simulation.synthetic import source_rate_shape, synthetic_key_names, synthetic_trace

ROOT = Path(__file__).resolve().parents[1]
TRACE = "mooncake/conversation_trace.jsonl.gz"
REPEATS = 3
T = TypeVar("T")


def emit(name: str, value: float | None, unit: str, baseline: float, note: str = "") -> None:
    """Print one figure beside the figure it is held against."""
    ratio = None if value is None else round(value / baseline, 4)
    line: dict[str, Any] = {"name": name, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio}
    print(json.dumps(line | ({"note": note} if note else {})))


def best_of(call: Callable[[], T]) -> tuple[float, T]:
    """Return the shortest wall time of a few runs, and the last result."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - started)
    return round(min(times), 4), result


def mooncake() -> None:
    """Baselines: the 3 s allowed for the import, and the keys known to be in the trace."""
    file = Path(os.environ.get("CACHEROUTE_DATA", ROOT.parent / "shared" / "data")) / TRACE
    figures = [("keys_depth_1", 1, 1), ("keys_depth_2", 2, 7_373)]
    if not file.exists():
        note = f"{TRACE} not found; set CACHEROUTE_DATA"
        emit("ingest.mooncake.import", None, "s", 3.0, note)
        for name, _, known in figures:
            emit(f"ingest.mooncake.{name}", None, "keys", known, note)
        return
    seconds, _ = best_of(lambda: read_workload(file))
    emit("ingest.mooncake.import", seconds, "s", 3.0)
    for name, depth, known in figures:
        emit(f"ingest.mooncake.{name}", len(read_workload(file, key_depth=depth).key_names), "keys", known)


def rates_csv() -> None:
    """Baseline: one second for a table of the source's size."""
    rates = source_rate_shape()
    rows = zip(synthetic_key_names(len(rates)), rates.tolist(), strict=True)
    content = ("key,rate\n" + "".join(f"{name},{rate!r}\n" for name, rate in rows)).encode()
    result: tuple[float, ImportedWorkload] = best_of(lambda: read_workload(io.BytesIO(content), name="rates.csv"))
    if not np.array_equal(result[1].rates, rates):
        raise RuntimeError("the rates that came back are not the rates written")
    emit("ingest.rates_csv.import_128824", result[0], "s", 1.0)


def sample_shape() -> None:
    """Baselines: the figures that arXiv 2608.19677 reports for its main workload."""
    rates = source_rate_shape()
    n, share = len(rates), rates / rates.sum()
    gini = 2 * float(np.arange(1, n + 1) @ share[::-1]) - (n + 1)
    emit("sample.rates.gini", round(gini / n, 5), "1", 0.756)
    emit("sample.rates.top_4_percent", round(float(share[: int(0.04 * n)].sum()), 5), "share", 0.47)
    emit("sample.rates.largest", round(float(share[0]), 6), "share", 0.003)
    seconds, _ = best_of(lambda: synthetic_trace(rates, requests=30_000, active_keys=128, load_rps=100.0, seed=1))
    emit("sample.trace.30000_requests", seconds, "s", 0.5)


def main() -> None:
    """Print every figure."""
    mooncake()
    rates_csv()
    sample_shape()


if __name__ == "__main__":
    main()
