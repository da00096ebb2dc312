"""Latencies as counts in fixed logarithmic buckets, which routers send and which add up over routers and windows.

Bucket ``i`` counts the latencies in ``(g^(i-1), g^i]`` seconds with ``g = 1.02``, so that every latency in it is within
1% of the middle of the bucket, ``2 g^i / (g + 1)`` (Masson, Rim and Lee, "DDSketch", VLDB 2019). The layout does not
depend on the data: the sketch of two windows together is the sum of their counts, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc  # scipy.stats has the binomial too and costs two seconds to import

from planner.analysis.checks import refuse

__all__ = ["FORMAT", "GROWTH", "LARGEST_S", "SMALLEST_S", "LatencySketch", "QuantileInterval", "at_most", "merge"]

FORMAT = "cacheroute.sketch/1"
GROWTH = 1.02
RELATIVE_ERROR = (GROWTH - 1) / (GROWTH + 1)  # 0.0099
# Range of the buckets: shorter latencies count as "zero", longer ones (11 days) are refused.
SMALLEST_S, LARGEST_S = 1e-6, 1e6
_LOG = math.log(GROWTH)
FIRST = math.floor(math.log(SMALLEST_S) / _LOG) + 1  # -697: the bucket that holds the smallest
LAST = math.ceil(math.log(LARGEST_S) / _LOG)  # 698
# Highest count of a bucket of one sketch: sums of thousands of sketches stay exact.
MAX_COUNT = 10**12
_UPPER = GROWTH ** np.arange(FIRST, LAST + 1, dtype=np.float64)


@dataclass(frozen=True)
class QuantileInterval:
    """A quantile with an interval that holds for every distribution.

    Attributes
    ----------
    value : float
        Seconds; the middle of the bucket of the order statistic ``ceil(q n)``, NaN without a value.
    low : float
        Lower end in seconds, 0 where even the smallest value is no lower bound.
    high : float
        Upper end in seconds, infinite where the largest value is no upper bound: for a p99 at 95% with fewer than
        368 values.
    n : int
        Number of values.
    q, confidence : float
        Quantile and confidence level, in (0, 1).
    """

    value: float
    low: float
    high: float
    n: int
    q: float
    confidence: float

    def as_dict(self) -> dict[str, float | int | None]:
        """Return the figures as JSON values; a missing figure is None."""
        found = {"value": self.value, "low": self.low, "high": self.high}
        return {k: v if math.isfinite(v) else None for k, v in found.items()} | {"n": self.n}


@dataclass(frozen=True, eq=False)
class LatencySketch:
    """Counts of latencies.

    Attributes
    ----------
    zero : int
        Latencies from 0 to ``SMALLEST_S``.
    counts : int64[LAST - FIRST + 1]
        Counts of the buckets ``FIRST`` to ``LAST``; read-only.
    """

    zero: int
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        counts = np.ascontiguousarray(self.counts, dtype=np.int64).view()
        if counts.shape != (LAST - FIRST + 1,):
            raise ValueError(f"counts: expected {LAST - FIRST + 1} buckets, got shape {counts.shape}")
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)

    @classmethod
    def empty(cls) -> LatencySketch:
        """Return a sketch without values."""
        return cls(0, np.zeros(LAST - FIRST + 1, dtype=np.int64))

    @classmethod
    def from_samples(cls, seconds: ArrayLike) -> LatencySketch:
        """Count latencies.

        Parameters
        ----------
        seconds : float64[n]
            Finite, from 0 to ``LARGEST_S``.

        Returns
        -------
        LatencySketch
            Their counts.

        Raises
        ------
        ValueError
            Naming the first bad index.
        """
        values = np.asarray(seconds, dtype=np.float64)
        if values.ndim != 1:
            raise ValueError(f"seconds: expected one dimension, got shape {values.shape}")
        refuse("seconds", values, ~np.isfinite(values) | (values < 0), "a finite time >= 0")
        refuse("seconds", values, values > LARGEST_S, f"at most {LARGEST_S:g}")
        positive = values[values > SMALLEST_S]
        # Compared with the edges: a rounded logarithm could put a latency at an edge into either bucket.
        at = np.searchsorted(_UPPER, positive, side="left")
        counts = np.bincount(np.minimum(at, len(_UPPER) - 1), minlength=len(_UPPER))
        return cls(int(len(values) - len(positive)), counts)

    @classmethod
    def from_payload(cls, payload: Any) -> LatencySketch:
        """Read the JSON of `as_payload` from an untrusted sender.

        Raises
        ------
        ValueError
            For another format, an unknown name, a bucket outside ``FIRST`` to ``LAST``, or a count that is not a whole
            number from 0 to ``MAX_COUNT``.
        """
        if not isinstance(payload, dict):
            raise ValueError(f"expected a sketch as an object, got {type(payload).__name__}")
        if unknown := set(payload) - {"format", "zero", "buckets"}:
            raise ValueError(
                f"{min(map(str, unknown))[:40]!r} is not a field of a sketch; expected format, zero and buckets"
            )
        if payload.get("format") != FORMAT:
            raise ValueError(f"format: expected {FORMAT!r}")
        buckets = payload.get("buckets", {})
        if not isinstance(buckets, dict):
            raise ValueError(f"buckets: expected an object, got {type(buckets).__name__}")
        counts = np.zeros(LAST - FIRST + 1, dtype=np.int64)
        for name, count in buckets.items():
            counts[_bucket(name) - FIRST] = _count(f"buckets[{name}]", count)
        return cls(_count("zero", payload.get("zero", 0)), counts)

    def as_payload(self) -> dict[str, Any]:
        """Return the sketch as JSON: ``{"format", "zero", "buckets": {"123": 4}}``, buckets ascending."""
        there = np.flatnonzero(self.counts)
        buckets = {
            str(FIRST + at): count for at, count in zip(there.tolist(), self.counts[there].tolist(), strict=True)
        }
        return {"format": FORMAT, "zero": self.zero, "buckets": buckets}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LatencySketch):
            return NotImplemented
        return self.zero == other.zero and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def n(self) -> int:
        """Latencies counted."""
        return self.zero + int(self.counts.sum())

    def quantile(self, q: float) -> float:
        """Return the order statistic ``ceil(q n)`` in seconds, within 1%; NaN without a value.

        Parameters
        ----------
        q : float
            In ``(0, 1]``.
        """
        n = self.n
        return math.nan if n == 0 else self._middle(max(1, math.ceil(_share("q", q, closed=True) * n)))

    def quantile_interval(self, q: float, confidence: float = 0.95) -> QuantileInterval:
        """Return a quantile with its two-sided interval by binomial order statistics.

        Of ``n`` independent values the number at or below the true quantile is binomial ``(n, q)``, whatever the
        distribution (David and Nagaraja, *Order Statistics*, 7.1). The ends are the outer edges of the buckets that
        hold the two order statistics, so that the sketch's own error widens the interval and never narrows it.

        Requests that wait in one queue are not independent: the true coverage is lower than ``confidence`` says.

        Parameters
        ----------
        q, confidence : float
            In ``(0, 1)``.
        """
        _share("q", q)
        each_side = (1 - _share("confidence", confidence)) / 2
        n = self.n
        # The highest rank whose value is above the quantile with a chance of at most `each_side` ...
        below = _largest(n, lambda rank: at_most(rank - 1, n, q) <= each_side)
        # ... and the lowest rank whose value is below it with no higher chance.
        above = 1 + _largest(n, lambda rank: at_most(rank - 1, n, q) < 1 - each_side)
        low = self._edges(below)[0] if below >= 1 else 0.0
        high = self._edges(above)[1] if above <= n else math.inf
        return QuantileInterval(self.quantile(q), low, high, n, q, confidence)

    def _at(self, rank: int) -> int:
        """Return the index into ``counts`` of the value of a rank, counted from 1; -1 for "zero"."""
        if rank <= self.zero:
            return -1
        return int(np.searchsorted(np.cumsum(self.counts), rank - self.zero, side="left"))

    def _middle(self, rank: int) -> float:
        at = self._at(rank)
        return 0.0 if at < 0 else float(_UPPER[at] * 2 / (1 + GROWTH))

    def _edges(self, rank: int) -> tuple[float, float]:
        at = self._at(rank)
        return (0.0, SMALLEST_S) if at < 0 else (float(_UPPER[at] / GROWTH), float(_UPPER[at]))


def merge(sketches: Iterable[LatencySketch]) -> LatencySketch:
    """Return the sketch of all values together; an empty one without sketches."""
    zero, counts = 0, np.zeros(LAST - FIRST + 1, dtype=np.int64)
    for sketch in sketches:
        zero += sketch.zero
        counts += sketch.counts
    return LatencySketch(zero, counts)


def at_most(k: int, n: int, p: float) -> float:
    """Return the chance that a binomial ``(n, p)`` count is at most ``k``.

    Parameters
    ----------
    k, n : int
        Count, and number of trials.
    p : float
        Chance of success of a trial, in [0, 1].

    Returns
    -------
    float
        In [0, 1].
    """
    if k < 0:
        return 0.0
    return 1.0 if k >= n else float(betainc(n - k, k + 1, 1 - p))


def _largest(n: int, holds: Any) -> int:
    """Return the highest rank from 1 to n for which a monotone statement holds; 0 when it holds for none."""
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _share(name: str, value: float, *, closed: bool = False) -> float:
    if not (0 < value < 1 or (closed and value == 1)):
        raise ValueError(f"{name} = {value}: expected a share in (0, 1{']' if closed else ')'}")
    return value


def _bucket(name: Any) -> int:
    text = str(name)
    digits = text.removeprefix("-")
    # One spelling for each bucket: "7" and "07" would be the same bucket.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4 and str(int(text)) == text):
        raise ValueError(f"buckets: {text[:40]!r} is not a whole number")
    if not FIRST <= int(text) <= LAST:
        raise ValueError(f"buckets: {text} is outside {FIRST} to {LAST}")
    return int(text)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"{name}: expected a whole number from 0 to {MAX_COUNT:,}")
    return value
