"""The effect of a switch from one routing table to another: keys, rate, and cold requests at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.analysis.checks import refuse, whole

__all__ = ["Homes", "Switch", "cold_rate_at", "cooling_time", "switch"]


class Homes(NamedTuple):
    """Destinations where a table keeps its keys warm.

    Attributes
    ----------
    keys : int64[A]
        Distinct indices into the rates; -1 for a key without a rate.
    offsets : int64[A + 1]
        ``members[offsets[i]:offsets[i + 1]]`` are the destinations of ``keys[i]``, each once.
    members : int64[sum k]
        Destinations, with the same indices in both tables, >= 0.
    """

    keys: ArrayLike
    offsets: ArrayLike
    members: ArrayLike


@dataclass(frozen=True, eq=False)
class Switch:
    """A switch of all keys at once.

    Attributes
    ----------
    gained, lost, moved : int64[]
        Indices of keys that only the new table keeps warm, that only the old table keeps warm, and that both keep
        warm on different destinations; ascending.
    gone : int
        Keys of the old table without a rate; they count as no loss.
    cold_keys : int64[P]
        The key of each (key, destination) pair that the new table has and the old table lacks.
    cold_rates : float64[P]
        Requests/s that reach that pair: the rate of the key over its destinations, equally.
    rewarm_tokens : int or None
        Prefix tokens that these pairs have to prefill once; None without ``prefix_tokens``.
    """

    gained: NDArray[np.int64]
    lost: NDArray[np.int64]
    moved: NDArray[np.int64]
    gone: int
    cold_keys: NDArray[np.int64]
    cold_rates: NDArray[np.float64]
    rewarm_tokens: int | None


def switch(new: Homes, old: Homes, rates: ArrayLike, *, prefix_tokens: ArrayLike | None = None) -> Switch:
    """Compare two tables key by key.

    Prefixes that Flat-LB cached by chance do not count as warm: a key that the new table gains starts cold.

    Parameters
    ----------
    new, old : Homes
        Warm keys of both tables; empty for Flat-LB.
    rates : float64[B]
        Requests/s, finite, >= 0.
    prefix_tokens : int64[B], optional
        Prompt tokens that the requests of a key share.

    Returns
    -------
    Switch
        Keys, cold rates and tokens.

    Raises
    ------
    ValueError
        Naming the argument and the first bad index.
    """
    rate = np.asarray(rates, dtype=np.float64)
    refuse("rates", rate, ~(np.isfinite(rate) & (rate >= 0)), "a finite number of requests/s >= 0")
    new_key, new_dest, new_first, _ = _pairs("new", new, len(rate))
    old_key, old_dest, old_first, gone = _pairs("old", old, len(rate))
    width = int(max(new_dest.max(initial=0), old_dest.max(initial=0))) + 1
    before, after = old_key * width + old_dest, new_key * width + new_dest
    cold, dropped = ~np.isin(after, before), ~np.isin(before, after)
    both = np.intersect1d(new_first, old_first)
    changed = np.union1d(new_key[cold], old_key[dropped])
    count = np.bincount(new_key, minlength=len(rate)) if len(rate) else np.zeros(0, dtype=np.int64)
    cold_keys = new_key[cold]
    tokens = None
    if prefix_tokens is not None:
        prefix = whole("prefix_tokens", prefix_tokens)
        if len(prefix) != len(rate):
            raise ValueError(f"prefix_tokens: expected shape ({len(rate)},), got ({len(prefix)},)")
        tokens = int(prefix[cold_keys].sum())
    return Switch(
        gained=np.setdiff1d(new_first, old_first),
        lost=np.setdiff1d(old_first, new_first),
        moved=np.intersect1d(both, changed),
        gone=gone,
        cold_keys=cold_keys,
        cold_rates=rate[cold_keys] / count[cold_keys],
        rewarm_tokens=tokens,
    )


def _pairs(name: str, homes: Homes, keys: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """Return key and destination of each pair of a known key, the known keys, and the number of unknown keys."""
    key, offsets = whole(f"{name}.keys", homes.keys, -1), whole(f"{name}.offsets", homes.offsets)
    members = whole(f"{name}.members", homes.members)
    refuse(f"{name}.keys", key, key >= keys, f"below {keys}")
    if len(offsets) != len(key) + 1 or offsets[0] != 0 or offsets[-1] != len(members):
        raise ValueError(f"{name}.offsets: expected {len(key) + 1} from 0 to {len(members)}")
    size = np.diff(offsets)
    refuse(f"{name}.offsets", offsets[1:], size < 0, "no less than the one before")
    pair, first = np.repeat(key, size), key[size > 0]
    known = first >= 0
    return pair[pair >= 0], members[pair >= 0], first[known], int(np.count_nonzero(~known))


def cold_rate_at(cold_rates: ArrayLike, after_s: float) -> float:
    """Return the expected requests/s that still find a cold destination ``after_s`` seconds after the switch.

    First order: a pair is warm from its first request on, requests of a pair arrive at random (Poisson), without
    eviction. A pair of rate r is then still cold with probability ``exp(-r t)``, and the sum is that of
    ``r exp(-r t)``.
    """
    rate = np.asarray(cold_rates, dtype=np.float64)
    return float((rate * np.exp(-rate * after_s)).sum())


def cooling_time(cold_rates: ArrayLike, left: float) -> float:
    """Return the seconds until `cold_rate_at` falls to the share ``left`` of its start; 0.0 without cold pairs.

    Raises
    ------
    ValueError
        Unless 0 < left < 1.
    """
    if not 0 < left < 1:
        raise ValueError(f"left = {left}: expected a share above 0 and below 1")
    rate = np.asarray(cold_rates, dtype=np.float64)
    wanted = left * float(rate.sum())
    if wanted <= 0:
        return 0.0
    # The sum falls monotonically, and no slower than the slowest pair alone.
    low, high = 0.0, -float(np.log(left)) / float(rate[rate > 0].min())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cold_rate_at(rate, middle) > wanted else (low, middle)
    return high
