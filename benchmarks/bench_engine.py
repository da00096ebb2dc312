"""Hit rates that the replay says and that real llama.cpp engines report; one JSON object a line.

The baseline is what three engines reported; ratio = simulated / reported.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.bench_planner import emit
from benchmarks.engine_runs import compare


def main() -> None:
    """Print every figure."""
    simulated, reported = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for found in compare(Path(folder)):
            name, rate = f"engine.{found.policy}.hit_rate", found.engines.hit_rate
            simulated[found.policy], reported[found.policy] = found.simulated, rate
            note = f"{found.load_rps:.1f} requests/s; baseline: what the engines report"
            emit(name, round(found.simulated, 4), "share", round(rate, 4), note)
            note = "each engine replayed alone, with the requests sent to it; baseline: what the engines report"
            emit(f"{name}.as_sent", round(found.as_sent, 4), "share", round(rate, 4), note)
    gain = {"simulated": simulated, "engines": reported}
    for where, rates in gain.items():
        emit(f"engine.plan_over_flat_lb.{where}", round(rates["cacheroute"], 4), "share", round(rates["flat-lb"], 4))


if __name__ == "__main__":
    main()
