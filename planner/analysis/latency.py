"""Latencies as counts in fixed logarithmic buckets: what routers send, and what is added up over routers and windows.

Bucket ``i`` counts the latencies in ``(g^(i-1), g^i]`` seconds with ``g = 1.02``, so that every latency in it is within
1% of the bucket's middle ``2 g^i / (g + 1)`` (Masson, Rim and Lee, "DDSketch", VLDB 2019). The layout never adapts to
the data: the sketch of two windows together is the sum of their counts, in whatever order they come.
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
# What is counted: shorter latencies are "zero", longer ones (11 days) are no latencies.
SMALLEST_S, LARGEST_S = 1e-6, 1e6
_LOG = math.log(GROWTH)
FIRST = math.floor(math.log(SMALLEST_S) / _LOG) + 1  # -697: the bucket that holds the smallest
LAST = math.ceil(math.log(LARGEST_S) / _LOG)  # 698
# Of a bucket of one sketch: sums of thousands of sketches stay exact.
MOST_COUNT = 10**12
_UPPER = GROWTH ** np.arange(FIRST, LAST + 1, dtype=np.float64)


@dataclass(frozen=True)
class QuantileInterval:
    """A quantile with an interval that holds whatever the distribution is.

    Attributes
    ----------
    value : float
        Seconds; the middle of the bucket of the order statistic ``ceil(q n)``, NaN without a value.
    low : float
        Lower end in seconds, 0 where even the smallest value says nothing.
    high : float
        Upper end in seconds, infinite where the largest value is no upper bound: of a p99 at 95% with fewer than
        368 values.
    n : int
        Values.
    q, confidence : float
    """

    value: float
    low: float
    high: float
    n: int
    q: float
    confidence: float

    def as_dict(self) -> dict[str, float | int | None]:
        """Return the figures as JSON has them: what does not exist is None."""
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
        Of the buckets ``FIRST`` to ``LAST``; read-only.
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
        """Nothing counted."""
        return cls(0, np.zeros(LAST - FIRST + 1, dtype=np.int64))

    @classmethod
    def from_samples(cls, seconds: ArrayLike) -> LatencySketch:
        """Count latencies.

        Parameters
        ----------
        seconds : float64[n]
            Finite, from 0 to ``LARGEST_S``.

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
        # By the edges themselves: a logarithm that is rounded would put a latency at an edge to either side.
        at = np.searchsorted(_UPPER, positive, side="left")
        counts = np.bincount(np.minimum(at, len(_UPPER) - 1), minlength=len(_UPPER))
        return cls(int(len(values) - len(positive)), counts)

    @classmethod
    def from_payload(cls, payload: Any) -> LatencySketch:
        """Read what `as_payload` writes, from whoever sent it.

        Raises
        ------
        ValueError
            Saying what is wrong: another format, a name that is not known, a bucket outside ``FIRST`` to ``LAST``, a
            count that is not a whole number from 0 to ``MOST_COUNT``.
        """
        if not isinstance(payload, dict):
            raise ValueError(f"expected a sketch as an object, got {type(payload).__name__}")
        if unknown := set(payload) - {"format", "zero", "buckets"}:
            raise ValueError(f"{min(map(str, unknown))[:40]!r} is no part of a sketch: format, zero and buckets are")
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
        # The largest rank whose value is above the quantile with a chance of at most `each_side` ...
        below = _largest(n, lambda rank: at_most(rank - 1, n, q) <= each_side)
        # ... and the smallest whose value is below it with no higher chance.
        above = 1 + _largest(n, lambda rank: at_most(rank - 1, n, q) < 1 - each_side)
        low = self._edges(below)[0] if below >= 1 else 0.0
        high = self._edges(above)[1] if above <= n else math.inf
        return QuantileInterval(self.quantile(q), low, high, n, q, confidence)

    def _at(self, rank: int) -> int:
        """Index into ``counts`` of the value of that rank, counted from 1; -1 for "zero"."""
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
    """Return the sketch of all values together; of none, an empty one."""
    zero, counts = 0, np.zeros(LAST - FIRST + 1, dtype=np.int64)
    for sketch in sketches:
        zero += sketch.zero
        counts += sketch.counts
    return LatencySketch(zero, counts)


def at_most(k: int, n: int, p: float) -> float:
    """Return the chance that a binomial ``(n, p)`` count is at most ``k``."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else float(betainc(n - k, k + 1, 1 - p))


def _largest(n: int, holds: Any) -> int:
    """The largest rank from 1 to n for which a statement holds that holds up to some rank; 0 when for none."""
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
    # One spelling for each: "7" and "07" would be two buckets of one place.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4 and str(int(text)) == text):
        raise ValueError(f"buckets: {text[:40]!r} is no whole number")
    if not FIRST <= int(text) <= LAST:
        raise ValueError(f"buckets: {text} is outside {FIRST} to {LAST}")
    return int(text)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_COUNT:
        raise ValueError(f"{name}: expected a whole number from 0 to {MOST_COUNT:,}")
    return value
