"""The requests of a workload, for replays and calibrations."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner import artifacts
from planner.models import Workload
from planner.simulation import Blocks, Trace
from planner.simulation.synthetic import Lengths, synthetic_trace

# A workload of rates alone gets requests from them. Stated wherever their results are shown.
SYNTHETIC_REQUESTS = 20_000
SYNTHETIC_ACTIVE_KEYS = 512
SYNTHETIC_SEED = 1
# Chat-like lengths: answers of about 50 tokens leave room under a p99 SLO of a few seconds at 10 ms a token.
SYNTHETIC_LENGTHS: dict[str, Any] = {
    "prefix_tokens": Lengths(3_000, 0.4, 512, 16_384),
    "suffix_tokens": Lengths(250, 0.6, 16, 2_048),
    "output_tokens": Lengths(48, 0.5, 1, 400),
}


def trace_of(workload: Workload, *, requests: int | None = None) -> tuple[Trace, bool]:
    """The first `requests` requests of the workload's trace, and whether they had to be synthesised from rates.

    Raises
    ------
    ValueError
        When there is neither a trace nor any key with a rate above 0.
    """
    if workload.trace is not None:
        return first(artifacts.load_trace(workload.trace), requests), False
    _, rates = artifacts.load_rates(workload.rates)
    positive = int(np.count_nonzero(rates))
    if not positive:
        raise ValueError("no key of this workload has a rate above 0, so there are no requests to replay")
    trace = synthetic_trace(
        rates,
        requests=requests or SYNTHETIC_REQUESTS,
        active_keys=min(SYNTHETIC_ACTIVE_KEYS, positive),
        load_rps=float(rates.sum()),
        seed=SYNTHETIC_SEED,
        **SYNTHETIC_LENGTHS,
    )
    return trace, True


def first(trace: Trace, n: int | None) -> Trace:
    """The first n requests of a trace; all of them when n is None or more than there are."""
    if n is None or n >= len(trace):
        return trace
    offsets, ids = trace.blocks
    return Trace(
        arrival_s=trace.arrival_s[:n],
        key=trace.key[:n],
        blocks=Blocks(offsets[: n + 1], ids[: int(offsets[n])]),
        prompt_tokens=trace.prompt_tokens[:n],
        output_tokens=trace.output_tokens[:n],
        block_tokens=trace.block_tokens,
        key_names=trace.key_names,
    )
