"""Confidence intervals over seeds: Student's t for a mean, and for paired differences."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit  # scipy.stats has the same function and costs two seconds to import

__all__ = ["Interval", "paired_difference", "t_interval"]


@dataclass(frozen=True)
class Interval:
    """A mean with its two-sided interval.

    Attributes
    ----------
    mean : float
    half_width : float or None
        None with a single value, which has no spread.
    n : int
        Number of values.
    confidence : float
        Confidence level, in (0, 1).
    """

    mean: float
    half_width: float | None
    n: int
    confidence: float

    @property
    def low(self) -> float | None:
        """Lower end; None with a single value."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end; None with a single value."""
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside the interval; False with a single value."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def as_dict(self) -> dict[str, float | int | bool | None]:
        """Return every figure as JSON values."""
        return asdict(self) | {"low": self.low, "high": self.high, "excludes_zero": self.excludes_zero}


def t_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean of independent values with its t interval.

    Parameters
    ----------
    values : float64[n]
        One value a seed, finite, n >= 1.
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval
        Mean and half width.

    Raises
    ------
    ValueError
        Naming the first bad index.
    """
    return _interval(_values("values", values), confidence)


def paired_difference(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean of ``a - b``, pair by pair, with its t interval.

    Pairing removes the variance that both runs of a seed share (their arrivals), so the interval is narrower than
    those of two separate means.

    Parameters
    ----------
    a, b : float64[n]
        Values of the same seeds in the same order, finite, n >= 1.
    confidence : float
        In (0, 1).

    Returns
    -------
    Interval
        Mean and half width of the differences.

    Raises
    ------
    ValueError
        Naming the argument and the first bad index, or both lengths.
    """
    left, right = _values("a", a), _values("b", b)
    if len(left) != len(right):
        raise ValueError(f"a and b: {len(left)} and {len(right)} values cannot be paired")
    return _interval(left - right, confidence)


def _interval(values: NDArray[np.float64], confidence: float) -> Interval:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence}: expected a share in (0, 1)")
    n = len(values)
    half = None
    if n > 1:
        half = float(stdtrit(n - 1, 0.5 + confidence / 2) * values.std(ddof=1) / np.sqrt(n))
    return Interval(float(values.mean()), half, n, confidence)


def _values(name: str, given: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"{name}: expected at least one value in one dimension, got shape {values.shape}")
    bad = ~np.isfinite(values)
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"{name}[{at}] = {values[at]}: expected a finite number")
    return values
