"""Read or generate the requests of a workload, for replays and calibrations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner import artifacts
from planner.models import Artifact, Workload
from planner.services.base.memo import Memo
from planner.simulation import Blocks, Trace, retime, synthetic
from planner.simulation.options import SyntheticRequests
from planner.simulation.synthetic import Lengths

# Requests that a process caches, and seconds after their last use for which it does. 5,000,000 synthetic requests
# take 0.6 GB.
MAX_BYTES = 768 * 2**20
IDLE_S = 30.0
# Synthetic requests generated between two calls of the checkpoint: about a quarter of a second.
PART = 500_000

# Workloads that have only rates are replayed on synthetic requests: every page says so, and they are not evidence for
# a fleet that requires measured requests.
SYNTHETIC_REQUESTS = 20_000
SYNTHETIC_ACTIVE_KEYS = 512
SYNTHETIC_SEED = 1
# Lengths typical of chat: answers of about 50 tokens at 10 ms a token stay within a p99 SLO of a few seconds.
SYNTHETIC_LENGTHS: dict[str, Lengths] = {
    "prefix_tokens": Lengths(3_000, 0.4, 512, 16_384),
    "suffix_tokens": Lengths(250, 0.6, 16, 2_048),
    "output_tokens": Lengths(48, 0.5, 1, 400),
}


def synthetic_settings(workload: Workload, requests: int | None = None) -> SyntheticRequests | None:
    """How the requests of a workload without a trace are generated; None when it has a trace.

    Raises
    ------
    ValueError
        If the workload has neither a trace nor a key with a rate above 0.
    """
    if workload.trace_id is not None:
        return None
    stored = artifacts.load(workload.rates, ["rate", "prefix_tokens"])
    rates, prefix_tokens = stored.column("rate").to_numpy(), artifacts.prefix_tokens_of(stored)
    positive = int(np.count_nonzero(rates))
    if not positive:
        raise ValueError("no key of this workload has a rate above 0, so there are no requests to replay")
    lengths = dict(SYNTHETIC_LENGTHS)
    if prefix_tokens is not None and (prefix_tokens > 0).any():
        median = min(float(np.average(prefix_tokens, weights=rates)), 1_000_000.0)
        sigma, low = lengths["prefix_tokens"].sigma, min(512, max(1, int(median)))
        lengths["prefix_tokens"] = Lengths(max(1.0, median), sigma, low, max(16_384, int(8 * median)))
    return SyntheticRequests(
        requests=requests or SYNTHETIC_REQUESTS,
        active_keys=min(SYNTHETIC_ACTIVE_KEYS, positive),
        load_rps=float(rates.sum()),
        seed=SYNTHETIC_SEED,
        prefix_tokens=_lengths_option(lengths["prefix_tokens"]),
        suffix_tokens=_lengths_option(lengths["suffix_tokens"]),
        output_tokens=_lengths_option(lengths["output_tokens"]),
    )


def _lengths_option(lengths: Lengths) -> tuple[float, float, int, int]:
    return lengths.median, lengths.sigma, lengths.low, lengths.high


def trace_of(
    workload: Workload,
    settings: SyntheticRequests | None,
    *,
    requests: int | None = None,
    checkpoint: Callable[[], None] = lambda: None,
) -> Trace:
    """Return the first requests of the trace of the workload, or the requests that `synthetic_settings` describe.

    Cached in the process for 30 seconds after their last use.

    Parameters
    ----------
    workload
        The workload.
    settings
        As `synthetic_settings` returns them; None for a workload with a trace.
    requests
        Number of requests of a trace; None, or more than it has, for all of them. Synthetic requests have the number in
        their settings.
    checkpoint
        Called between steps of less than a second each at 5,000,000 requests; an exception that it raises ends the
        work.

    Returns
    -------
    Trace
        The requests; shared with other callers, so never changed.

    Raises
    ------
    ArtifactLost
        When the trace or the rates cannot be read from storage.
    """
    return _requests_of(_key(workload, settings, requests), checkpoint)


def retimed(
    workload: Workload,
    settings: SyntheticRequests | None,
    load_rps: float,
    *,
    requests: int | None = None,
    checkpoint: Callable[[], None] = lambda: None,
    **arrivals: Any,
) -> Trace:
    """Return `trace_of` at another load, with the arguments of `simulation.retime`, ready to be replayed.

    Cached in the process: all policies of a load and seed use the same arrivals, one after the other.

    Parameters
    ----------
    workload, settings, requests, checkpoint
        As in `trace_of`.
    load_rps
        Requests/s; exact for "scaled" arrivals, in expectation for the others.
    **arrivals
        ``arrivals``, ``cv``, ``seed`` and ``run_length`` of `simulation.retime`.

    Returns
    -------
    Trace
        The same requests with new arrivals; only the newest such trace is cached.

    Raises
    ------
    ValueError
        When `simulation.retime` refuses an argument.
    ArtifactLost
        When the trace or the rates cannot be read from storage.
    """
    source = _key(workload, settings, requests)

    def make() -> Trace:
        trace = _requests_of(source, checkpoint)
        checkpoint()
        trace = retime(trace, load_rps, **arrivals)
        checkpoint()
        _ = trace.chains  # Computed here, because the checkpoint is called before and after.
        checkpoint()
        return trace

    return _retimed.get((source, load_rps, tuple(sorted(arrivals.items()))), make, checkpoint)


def release() -> None:
    """Clear the caches, when the cell that used them is done."""
    _retimed.drop()
    _sources.drop()


def has_gaps(workload: Workload, requests: int) -> bool:
    """Whether the first so many requests arrive at more than one instant. Of a trace only the arrivals are read.

    Synthetic requests have exponential gaps, so two of them are enough.
    """
    if workload.trace is None:
        return requests > 1
    arrival = artifacts.load(workload.trace, ["arrival_s"]).column("arrival_s").slice(0, requests).to_numpy()
    return len(arrival) > 1 and float(arrival[-1]) > float(arrival[0])


class _Source(NamedTuple):
    """The source of requests: a trace and how many of it, or rates and the settings of synthetic requests."""

    digest: str
    made: SyntheticRequests | None
    requests: int | None


def _key(workload: Workload, settings: SyntheticRequests | None, requests: int | None) -> _Source:
    """Equal for equal requests: settings of synthetic requests include their number, and a trace is never exceeded."""
    if workload.trace is not None:
        whole = requests is None or requests >= workload.request_count
        return _Source(workload.trace.digest, None, None if whole else requests)
    assert settings is not None  # synthetic_settings returned them.
    return _Source(workload.rates.digest, settings, None)


def _bytes_of(trace: Trace) -> int:
    """Bytes of its arrays, including the arrays that a replay derives from its blocks."""
    own = (trace.arrival_s, trace.key, trace.prompt_tokens, trace.output_tokens, *trace.blocks)
    return sum(array.nbytes for array in own) + 24 * len(trace)


_sources: Memo[Trace] = Memo(MAX_BYTES, _bytes_of, IDLE_S)
# Only the newest: it shares everything but its arrivals with its source.
_retimed: Memo[Trace] = Memo(0, _bytes_of, IDLE_S)


def _requests_of(source: _Source, checkpoint: Callable[[], None]) -> Trace:
    def make() -> Trace:
        artifact = Artifact.objects.get(digest=source.digest)
        if source.made is None:
            return first(artifacts.load_trace(artifact, checkpoint), source.requests)
        rates = artifacts.load_rate_vector(artifact)
        checkpoint()
        made = source.made
        return made_of(
            rates,
            requests=made.requests,
            active_keys=made.active_keys,
            load_rps=made.load_rps,
            seed=made.seed,
            prefix_tokens=Lengths(*made.prefix_tokens),
            suffix_tokens=Lengths(*made.suffix_tokens),
            output_tokens=Lengths(*made.output_tokens),
            checkpoint=checkpoint,
        )

    return _sources.get(source, make, checkpoint)


def made_of(
    rates: NDArray[np.float64],
    *,
    requests: int,
    active_keys: int,
    load_rps: float,
    prefix_tokens: Lengths,
    suffix_tokens: Lengths,
    output_tokens: Lengths,
    seed: int,
    block_tokens: int = 512,
    checkpoint: Callable[[], None] = lambda: None,
) -> Trace:
    """Return the same result as `synthetic_trace`, bit for bit, in parts so that the checkpoint is called between them.

    Parameters
    ----------
    rates
        float64[B], requests/s of each key.
    requests, active_keys
        Number of requests, and of the keys of highest rate that get them.
    load_rps
        Mean arrivals per second, above 0.
    prefix_tokens, suffix_tokens, output_tokens
        Distribution of each length.
    seed
        Seed of all draws.
    block_tokens
        Tokens in a block.
    checkpoint
        Called after each part of at most 500,000 requests; an exception that it raises ends the work.

    Returns
    -------
    Trace
        ``key`` holds indices into ``rates``.
    """
    active, chance = synthetic._active(rates, active_keys)
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(5)]
    parts = [slice(at, min(at + PART, requests)) for at in range(0, requests, PART)]
    arrival_s = np.empty(requests)
    drawn, prompt, output = (np.empty(requests, dtype=np.int64) for _ in range(3))
    prefix = synthetic._draw(prefix_tokens, active_keys, streams[2])
    for part in parts:
        n = part.stop - part.start
        drawn[part] = np.searchsorted(chance, streams[0].random(n), side="right")
        arrival_s[part] = streams[1].standard_exponential(n)
        prompt[part] = prefix[drawn[part]] + synthetic._draw(suffix_tokens, n, streams[3])
        output[part] = synthetic._draw(output_tokens, n, streams[4])
        checkpoint()
    np.cumsum(arrival_s, out=arrival_s)
    arrival_s /= load_rps
    checkpoint()
    shared = prefix // block_tokens
    offsets = np.concatenate(([0], np.cumsum(-(-prompt // block_tokens))))
    # The blocks of all keys, then the first block of its own for each request.
    numbers = np.concatenate(([0], np.cumsum(shared)))
    ids = np.empty(offsets[-1], dtype=np.int64)
    for part in parts:
        rows = offsets[part.start : part.stop + 1]
        synthetic._fill(ids, rows, drawn[part], shared, numbers)
        own = np.maximum(np.diff(rows) - shared[drawn[part]], 0)
        numbers[-1] += own.sum()
        checkpoint()
    key = active[drawn]
    checkpoint()
    return Trace(
        arrival_s=arrival_s,
        key=key,
        blocks=Blocks(offsets, ids),
        prompt_tokens=prompt,
        output_tokens=output,
        block_tokens=block_tokens,
    )


def first(trace: Trace, n: int | None) -> Trace:
    """The first n requests of a trace, not cached; the trace itself when n is None or not less than its length."""
    if n is None or n >= len(trace):
        return trace
    offsets, ids = trace.blocks
    return Trace(
        arrival_s=trace.arrival_s[:n].copy(),
        key=trace.key[:n].copy(),
        blocks=Blocks(offsets[: n + 1].copy(), ids[: int(offsets[n])].copy()),
        prompt_tokens=trace.prompt_tokens[:n].copy(),
        output_tokens=trace.output_tokens[:n].copy(),
        block_tokens=trace.block_tokens,
        key_names=trace.key_names,
    )
