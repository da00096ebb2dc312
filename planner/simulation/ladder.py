"""Capacity at a latency objective from a ladder of tested loads, with its censoring; and the next load to test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.validation import positive

__all__ = ["Capacity", "capacity", "next_load"]

# Four digits: the figures of loads that are closer differ less than those of two seeds.
DIGITS = 4
# Factor between the end of the ladder and the next load beyond it.
STEP = 2.0
LOWEST, HIGHEST = 1e-6, 1e8


@dataclass(frozen=True)
class Capacity:
    """Highest tested load that meets the objective; ``str()`` shows it with its censoring.

    Attributes
    ----------
    value : float or None
        Requests/s; None when not even the lowest tested load passes.
    censored : {"left", "right", None}
        "left": it lies below ``lowest``; "right": it is at least ``value``, the top of the ladder.
    lowest : float
        Lowest tested load.
    slo_s : float
        The objective.
    """

    value: float | None
    censored: str | None
    lowest: float
    slo_s: float

    def __str__(self) -> str:
        if self.value is None:
            return f"<{self.lowest:g}"
        return f">={self.value:g}" if self.censored == "right" else f"{self.value:g}"


def capacity(loads: ArrayLike, p99: ArrayLike, slo_s: float) -> Capacity:
    """Return the highest tested load where p99 meets the objective and every lower tested load does too.

    Parameters
    ----------
    loads : float64[m]
        Tested loads in requests/s, m >= 1, finite, above 0, distinct, in any order.
    p99 : float64[m]
        99th percentile of latency in seconds at each load; NaN or infinite counts as not met.
    slo_s : float
        Objective in seconds; ``p99 <= slo_s`` meets it.

    Returns
    -------
    Capacity
        The load and its censoring.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    tested, passed, limit = _passed(loads, p99, slo_s)
    value = float(tested[passed - 1]) if passed else None
    censored = "left" if passed == 0 else "right" if passed == len(tested) else None
    return Capacity(value, censored, float(tested[0]), limit)


def next_load(loads: ArrayLike, p99: ArrayLike, slo_s: float, *, extend: bool = False) -> float | None:
    """Return the load that halves the bracket of the capacity: the middle of the highest passing and the next load.

    The result depends only on the arguments and is rounded to four significant digits, so that every refinement of a
    ladder tests the same loads in the same order.

    Parameters
    ----------
    loads, p99, slo_s
        As for `capacity`.
    extend : bool
        Extend a censored ladder: by half the lowest load (left-censored), or twice the highest (right-censored). By
        default there is no next load for such ladders.

    Returns
    -------
    float or None
        Requests/s, not among ``loads``; None when the ladder is censored and ``extend`` is False, when the bracket is
        too narrow for another load of four digits, or when the extension reaches 1e-6 or 1e8 requests/s.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    tested, passed, _ = _passed(loads, p99, slo_s)
    if passed == 0:
        wanted = float(tested[0]) / STEP if extend else None
    elif passed == len(tested):
        wanted = float(tested[-1]) * STEP if extend else None
    else:
        wanted = (float(tested[passed - 1]) + float(tested[passed])) / 2
    if wanted is None:
        return None
    wanted = float(f"{wanted:.{DIGITS}g}")
    inside = passed in (0, len(tested)) or tested[passed - 1] < wanted < tested[passed]
    return wanted if inside and LOWEST <= wanted <= HIGHEST and wanted not in tested else None


def _passed(loads: ArrayLike, p99: ArrayLike, slo_s: float) -> tuple[NDArray[np.float64], int, float]:
    """Return the tested loads, ascending, the number that pass from the lowest on without a gap, and the objective."""
    limit = positive("slo_s", slo_s)
    tested = np.asarray(loads, dtype=np.float64)
    tail = np.asarray(p99, dtype=np.float64)
    if tested.ndim != 1 or not len(tested):
        raise ValueError(f"loads: expected at least one load, got shape {tested.shape}")
    if tail.shape != tested.shape:
        raise ValueError(f"p99: expected shape {tested.shape}, got {tail.shape}")
    bad = ~(np.isfinite(tested) & (tested > 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"loads[{at}] = {tested[at]}: expected a finite number above 0")
    order = np.argsort(tested, kind="stable")
    tested, tail = tested[order], tail[order]
    if (np.diff(tested) == 0).any():
        raise ValueError(f"loads: {tested[int(np.argmax(np.diff(tested) == 0))]} is given twice")
    fails = np.flatnonzero(~(tail <= limit))
    passed = int(fails[0]) if len(fails) else len(tested)
    return tested, passed, limit
