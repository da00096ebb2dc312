"""Capacity at a latency objective, read from a ladder of tested loads, with its censoring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.routing.validation import positive

__all__ = ["Capacity", "capacity"]


@dataclass(frozen=True)
class Capacity:
    """Highest tested load that meets the objective; ``str()`` shows what is known and no more.

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

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
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
        raise ValueError(f"loads: {tested[int(np.argmax(np.diff(tested) == 0))]} is there twice")
    fails = np.flatnonzero(~(tail <= limit))
    passed = int(fails[0]) if len(fails) else len(tested)
    value = float(tested[passed - 1]) if passed else None
    censored = "left" if passed == 0 else "right" if passed == len(tested) else None
    return Capacity(value, censored, float(tested[0]), limit)
