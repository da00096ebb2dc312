"""The requests of a workload, for replays and calibrations."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from planner import artifacts
from planner.models import Artifact, Workload
from planner.simulation import Blocks, Trace, retime
from planner.simulation.synthetic import Lengths, synthetic_trace

# A workload of rates alone gets requests made from them: stated wherever their results are shown, and no
# evidence for a fleet that wants measured ones.
SYNTHETIC_REQUESTS = 20_000
SYNTHETIC_ACTIVE_KEYS = 512
SYNTHETIC_SEED = 1
# Chat-like lengths: answers of about 50 tokens leave room under a p99 SLO of a few seconds at 10 ms a token.
SYNTHETIC_LENGTHS: dict[str, Any] = {
    "prefix_tokens": Lengths(3_000, 0.4, 512, 16_384),
    "suffix_tokens": Lengths(250, 0.6, 16, 2_048),
    "output_tokens": Lengths(48, 0.5, 1, 400),
}


def synthetic_settings(workload: Workload, requests: int | None = None) -> dict[str, Any] | None:
    """How the requests of a workload without a trace are made; None when it has one. JSON-able.

    Raises
    ------
    ValueError
        When there is neither a trace nor any key with a rate above 0.
    """
    if workload.trace_id is not None:
        return None
    stored = artifacts.load(workload.rates)
    rates, prefix_tokens = stored.column("rate").to_numpy(), artifacts.prefix_tokens_of(stored)
    positive = int(np.count_nonzero(rates))
    if not positive:
        raise ValueError("no key of this workload has a rate above 0, so there are no requests to replay")
    lengths = dict(SYNTHETIC_LENGTHS)
    if prefix_tokens is not None and (prefix_tokens > 0).any():
        median = min(float(np.average(prefix_tokens, weights=rates)), 1_000_000.0)
        sigma, low = lengths["prefix_tokens"].sigma, min(512, max(1, int(median)))
        lengths["prefix_tokens"] = Lengths(max(1.0, median), sigma, low, max(16_384, int(8 * median)))
    return {
        "requests": requests or SYNTHETIC_REQUESTS,
        "active_keys": min(SYNTHETIC_ACTIVE_KEYS, positive),
        "load_rps": float(rates.sum()),
        "seed": SYNTHETIC_SEED,
        **{name: list(value) for name, value in lengths.items()},
    }


def trace_of(workload: Workload, settings: dict[str, Any] | None, *, requests: int | None = None) -> Trace:
    """The first `requests` requests of the workload's trace, or those that `synthetic_settings` describe."""
    return _requests_of(*_source(workload, settings), requests)


def retimed(
    workload: Workload,
    settings: dict[str, Any] | None,
    load_rps: float,
    *,
    requests: int | None = None,
    **arrivals: Any,
) -> Trace:
    """`trace_of` at another load, with the arguments of `simulation.retime`.

    Kept in the process: all policies of a load and seed see the same arrivals, one after the other.
    """
    return _retimed(*_source(workload, settings), requests, load_rps, tuple(sorted(arrivals.items())))


def span_s(workload: Workload, settings: dict[str, Any] | None, requests: int) -> float:
    """Seconds from the first to the last arrival of those requests, of which only the arrivals are read."""
    if workload.trace is None:
        trace = trace_of(workload, settings)
        return float(trace.arrival_s[-1] - trace.arrival_s[0])
    arrival = artifacts.load(workload.trace).column("arrival_s").slice(0, requests).to_numpy()
    return float(arrival[-1] - arrival[0])


def _source(workload: Workload, settings: dict[str, Any] | None) -> tuple[str, tuple[tuple[str, Any], ...] | None]:
    """The digest that the requests come from, and how they are made of it when it holds only rates. Hashable."""
    if workload.trace is not None:
        return workload.trace.digest, None
    assert settings is not None  # synthetic_settings gave them
    made = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(settings.items()))
    return workload.rates.digest, made


@lru_cache(maxsize=2)
def _requests_of(digest: str, made: tuple[tuple[str, Any], ...] | None, requests: int | None) -> Trace:
    if made is not None:
        return _synthetic(digest, made)
    return first(artifacts.load_trace(Artifact.objects.get(digest=digest)), requests)


@lru_cache(maxsize=1)
def _retimed(
    digest: str,
    made: tuple[tuple[str, Any], ...] | None,
    requests: int | None,
    load_rps: float,
    arrivals: tuple[tuple[str, Any], ...],
) -> Trace:
    return retime(_requests_of(digest, made, requests), load_rps, **dict(arrivals))


@lru_cache(maxsize=2)
def _synthetic(rates_digest: str, settings: tuple[tuple[str, Any], ...]) -> Trace:
    rates = artifacts.load_rate_vector(Artifact.objects.get(digest=rates_digest))
    options: dict[str, Any] = {k: Lengths(*v) if isinstance(v, tuple) else v for k, v in settings}
    return synthetic_trace(rates, **options)


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
