"""Synthetic workloads with the rate shape of the paper: for samples, tests and benchmarks.

All values are drawn from a seed and are reproducible bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfinv, ndtri

from planner.simulation.trace import Blocks, Trace

__all__ = [
    "Lengths",
    "blocks_from_lengths",
    "source_rate_shape",
    "synthetic_key_names",
    "synthetic_tenants",
    "synthetic_trace",
]


class Lengths(NamedTuple):
    """Token counts drawn from a lognormal (median, sigma of the logarithm), clipped to [low, high]."""

    median: float
    sigma: float
    low: int
    high: int


PREFIX = Lengths(median=6_000, sigma=0.5, low=512, high=32_768)
SUFFIX = Lengths(median=300, sigma=0.7, low=8, high=4_096)
OUTPUT = Lengths(median=150, sigma=0.7, low=1, high=2_048)


def source_rate_shape(keys: int = 128_824, total_rps: float = 100.0, gini: float = 0.756) -> NDArray[np.float64]:
    """Return key rates with the shape of the main workload of the paper.

    A lognormal has Gini coefficient ``erf(sigma / 2)``, so ``sigma = 2 erfinv(gini)``. The rates are its quantiles
    i / (keys + 1), without sampling noise. At the defaults: Gini 0.756,
    the top 4% of keys 46% of the rate, the largest key 0.25% (arXiv 2608.19677 reports 0.756, 47% and
    below 0.3%).

    Parameters
    ----------
    keys : int
        Number of keys, >= 1.
    total_rps : float
        Sum of the rates, requests/s, finite, > 0.
    gini : float
        In [0, 1).

    Returns
    -------
    float64[keys]
        Requests/s, descending.

    Raises
    ------
    ValueError
        Naming the argument and its value.
    """
    _at_least_one("keys", keys)
    _positive("total_rps", total_rps)
    if not 0 <= gini < 1:
        raise ValueError(f"gini: {gini} is not in [0, 1)")
    sigma = 2.0 * float(erfinv(gini))
    weights = np.exp(sigma * ndtri(np.arange(keys, 0, -1, dtype=np.float64) / (keys + 1)))
    rates: NDArray[np.float64] = weights * (total_rps / weights.sum())
    return rates


def synthetic_trace(
    rates: ArrayLike,
    *,
    requests: int,
    active_keys: int,
    load_rps: float,
    prefix_tokens: Lengths | float = PREFIX,
    suffix_tokens: Lengths | float = SUFFIX,
    output_tokens: Lengths | float = OUTPUT,
    block_tokens: int = 512,
    seed: int,
) -> Trace:
    """Draw a trace whose requests share only the prefix of their key.

    Keys are drawn by rate among the ``active_keys`` of highest rate (ties: lower index); arrivals are Poisson. The
    prefix of a key has one length in the whole trace. The requests of the key share its full blocks. The block with
    the end of the prefix and all later blocks belong to one request, as in an engine that caches whole blocks.

    Keys, arrivals, prefixes, suffixes and outputs come from separate streams of the seed: two traces that differ only
    in ``load_rps`` have the same requests with scaled arrivals.

    Parameters
    ----------
    rates : float64[B]
        Requests/s of each key, finite, >= 0.
    requests, active_keys : int
        >= 1; ``active_keys`` at most B, and no more than the keys of positive rate.
    load_rps : float
        Mean arrivals per second, > 0.
    prefix_tokens, suffix_tokens, output_tokens : Lengths or float
        Distribution of each length; a number replaces the median of the default (and widens its bounds where it lies
        outside them).
    block_tokens : int
        Tokens in a block.
    seed : int
        Seed of all draws.

    Returns
    -------
    Trace
        ``key`` holds indices into ``rates``.

    Raises
    ------
    ValueError
        Naming the argument, and the first bad index of ``rates``.
    """
    _at_least_one("requests", requests)
    _at_least_one("block_tokens", block_tokens)
    _positive("load_rps", load_rps)
    active, chance = _active(np.asarray(rates, dtype=np.float64), active_keys)
    prefix_of = _lengths("prefix_tokens", prefix_tokens, PREFIX)
    suffix_of = _lengths("suffix_tokens", suffix_tokens, SUFFIX)
    output_of = _lengths("output_tokens", output_tokens, OUTPUT)
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(5)]

    drawn = np.searchsorted(chance, streams[0].random(requests), side="right")
    arrival_s = np.cumsum(streams[1].standard_exponential(requests)) / load_rps
    prefix = _draw(prefix_of, active_keys, streams[2])
    prompt = prefix[drawn] + _draw(suffix_of, requests, streams[3])
    return Trace(
        arrival_s=arrival_s,
        key=active[drawn],
        blocks=_blocks(drawn, prefix // block_tokens, -(-prompt // block_tokens)),
        prompt_tokens=prompt,
        output_tokens=_draw(output_of, requests, streams[4]),
        block_tokens=block_tokens,
    )


def blocks_from_lengths(
    key: ArrayLike, prompt_tokens: ArrayLike, prefix_tokens: ArrayLike, *, block_tokens: int = 512
) -> Blocks:
    """Make the blocks of requests that have none, from the prefix length of each key.

    As in `synthetic_trace`: requests of a key share only the full blocks of its prefix (a shorter prompt shares as many
    as it has). Label results from these blocks as synthetic.

    Parameters
    ----------
    key, prompt_tokens : int64[n]
        Key and prompt length of each request.
    prefix_tokens : int64[B]
        Tokens that all prompts of a key have in common, >= 0; known or assumed.
    block_tokens : int
        Tokens in a block.

    Returns
    -------
    Blocks
        Block ids of each request.

    Raises
    ------
    ValueError
        Naming the argument and the first bad index.
    """
    _at_least_one("block_tokens", block_tokens)
    prefix, drawn, prompt = (np.asarray(a, dtype=np.int64) for a in (prefix_tokens, key, prompt_tokens))
    if drawn.shape != prompt.shape or drawn.ndim != 1:
        raise ValueError(f"prompt_tokens: expected one for each of {drawn.size} keys, got shape {prompt.shape}")
    for name, values, bad, want in (
        ("prefix_tokens", prefix, prefix < 0, "at least 0"),
        ("prompt_tokens", prompt, prompt < 1, "at least 1"),
        ("key", drawn, (drawn < 0) | (drawn >= len(prefix)), f"an index below {len(prefix)}"),
    ):
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(f"{name}[{at}] = {values[at]}: expected {want}")
    return _blocks(drawn, prefix // block_tokens, -(-prompt // block_tokens))


def synthetic_key_names(n: int) -> list[str]:
    """Return n names, ``k000000`` first: the number is the key index."""
    width = max(6, len(str(max(n - 1, 0))))
    return [f"k{index:0{width}d}" for index in range(n)]


def synthetic_tenants(n: int, *, tenants: int = 12, seed: int) -> list[str]:
    """Return a tenant for each of n keys, ``tenant-00`` and on, drawn uniformly from the seed.

    Parameters
    ----------
    n, tenants : int
        Number of keys and of tenants.
    seed : int
        Seed of the draws.

    Returns
    -------
    list of str
        Tenant of each key.
    """
    _at_least_one("tenants", tenants)
    width = max(2, len(str(tenants - 1)))
    names = [f"tenant-{index:0{width}d}" for index in range(tenants)]
    return [names[index] for index in np.random.default_rng(seed).integers(tenants, size=n)]


def _active(rates: NDArray[np.float64], active_keys: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the indices of the highest rates, and their cumulative chances (the last is 1)."""
    if rates.ndim != 1:
        raise ValueError(f"rates: expected one dimension, got shape {rates.shape}")
    bad = ~np.isfinite(rates) | (rates < 0)
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"rates[{at}] = {rates[at]}: expected a finite rate >= 0")
    _at_least_one("active_keys", active_keys)
    positive = int((rates > 0).sum())
    if active_keys > positive:
        raise ValueError(f"active_keys: {active_keys} is more than the {positive} keys of positive rate")
    active = np.argsort(-rates, kind="stable")[:active_keys]
    chance = np.cumsum(rates[active])
    chance /= chance[-1]
    return active, chance


def _blocks(drawn: NDArray[np.int64], shared_of: NDArray[np.int64], count: NDArray[np.int64]) -> Blocks:
    """Assign ids to the blocks: first the shared blocks, key by key, then the own blocks of each request."""
    offsets = np.concatenate(([0], np.cumsum(count)))
    first_shared = np.concatenate(([0], np.cumsum(shared_of)))
    ids = np.empty(offsets[-1], dtype=np.int64)
    _fill(ids, offsets, drawn, shared_of, first_shared)
    return Blocks(offsets, ids)


@njit(cache=True, nogil=True)
def _fill(
    ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    drawn: NDArray[np.int64],
    shared_of: NDArray[np.int64],
    first_shared: NDArray[np.int64],
) -> None:
    own = first_shared[-1]
    for q in range(len(drawn)):
        shared = shared_of[drawn[q]]
        for at in range(offsets[q], offsets[q + 1]):
            position = at - offsets[q]
            if position < shared:
                ids[at] = first_shared[drawn[q]] + position
            else:
                ids[at] = own
                own += 1


def _draw(lengths: Lengths, n: int, stream: np.random.Generator) -> NDArray[np.int64]:
    tokens = np.rint(lengths.median * np.exp(lengths.sigma * stream.standard_normal(n)))
    return np.clip(tokens, lengths.low, lengths.high).astype(np.int64)


def _lengths(name: str, given: Lengths | float, default: Lengths) -> Lengths:
    if not isinstance(given, Lengths):
        _positive(name, given)
        low, high = min(default.low, int(given)), max(default.high, int(8 * given))
        given = default._replace(median=float(given), low=max(1, low), high=high)
    if not (1 <= given.low <= given.median <= given.high < 2**31 and 0 <= given.sigma < np.inf):
        raise ValueError(f"{name}: {given} needs 1 <= low <= median <= high < 2**31 and a finite sigma >= 0")
    return given


def _at_least_one(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}: {value!r} is not a positive whole number")


def _positive(name: str, value: float) -> None:
    if not 0 < value < np.inf:
        raise ValueError(f"{name}: {value} is not a finite number > 0")
