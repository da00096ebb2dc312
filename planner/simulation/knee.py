"""Where the tail of a load sweep takes off: methods by name, each saying when the sweep did not bracket the knee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.routing.validation import positive

__all__ = ["KNEES", "Knee", "find_knee"]

# Name of each method -> its definition of the knee.
KNEES = {
    "factor": "highest load whose p99 is within a factor of the p99 at the lowest load",
    "chord": "load farthest below the chord of normalised load and p99 (Kneedle)",
    "slo": "highest load whose p99 is within a bound in seconds",
}
# A curve that is nowhere this far below its chord, in units of its own height, has no bend.
LEAST_BEND = 0.05


@dataclass(frozen=True)
class Knee:
    """The knee of a sweep.

    Attributes
    ----------
    q_cap : float
        Requests/s: a load of the sweep.
    censored : {"left", "right", None}
        "left": p99 took off before the lowest loads, so the knee may lie below ``q_cap``; "right": p99 did not take
        off within the sweep, so the knee lies at ``q_cap`` or above.
    method : str
        Method, with the value of its bound.
    """

    q_cap: float
    censored: str | None
    method: str


def find_knee(
    load_rps: Sequence[float],
    p99_s: Sequence[float],
    *,
    method: str = "factor",
    factor: float = 2.0,
    slo_s: float | None = None,
) -> Knee:
    """Read the knee from the points of a sweep.

    A load counts only if every lower one does too: each method reads the highest p99 seen up to a load.

    ``factor`` : the highest load whose p99 is at most ``factor`` times that of the lowest load. Left-censored when
    that is the lowest load, where p99 may have risen already.
    ``slo`` : the highest load whose p99 is at most ``slo_s``. Left-censored when the lowest load exceeds it.
    ``chord`` : with load and p99 each scaled to [0, 1], the load farthest below the straight line between first
    and last point (Satopaa et al. 2011, "Finding a Kneedle in a Haystack", for increasing convex curves). A curve
    that never exceeds ``factor`` times its first p99 has not taken off: right-censored. A curve that exceeds it
    without a bend took off before its second load: left-censored.

    Parameters
    ----------
    load_rps, p99_s : float64[n]
        Loads in requests/s, rising; p99 latencies in seconds, above 0.
    method : {"factor", "chord", "slo"}
        Definition of the knee.
    factor : float
        Above 1; used by "factor" and "chord".
    slo_s : float, optional
        Seconds; required by "slo" and refused otherwise.

    Returns
    -------
    Knee
        A load of the sweep, with its censoring.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    if method not in KNEES:
        raise ValueError(f"knee = {method!r}: expected one of {', '.join(KNEES)}")
    if positive("knee_factor", factor) <= 1:
        raise ValueError(f"knee_factor = {factor}: expected above 1")
    if (slo_s is not None) != (method == "slo"):
        raise ValueError(f"slo_s = {slo_s}: knee = {method!r}; only 'slo' takes it, and requires it")
    load = np.asarray(load_rps, dtype=np.float64)
    p99 = np.asarray(p99_s, dtype=np.float64)
    if not len(load) or load.shape != p99.shape or load.ndim != 1:
        raise ValueError(
            f"p99_s: {p99.shape} values for {load.shape} loads; expected one for each load, and at least one load"
        )
    for name, values in (("load_rps", load), ("p99_s", p99)):
        bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if len(bad):
            raise ValueError(f"{name}[{bad[0]}] = {values[bad[0]]}: expected a finite number above 0")
    steps = np.flatnonzero(np.diff(load) <= 0)
    if len(steps):
        raise ValueError(f"load_rps[{steps[0] + 1}] = {load[steps[0] + 1]}: expected above the load before it")

    worst = np.maximum.accumulate(p99)
    if method == "slo":
        bound = positive("slo_s", slo_s or 0.0)
        within = int(np.searchsorted(worst, bound, side="right"))
        censored = "right" if within == len(load) else "left" if within == 0 else None
        return Knee(float(load[max(within - 1, 0)]), censored, f"p99 within {bound:g} s")
    within = int(np.searchsorted(worst, factor * p99[0], side="right"))
    took_off = within < len(load)
    if method == "factor":
        censored = "right" if not took_off else "left" if within == 1 else None
        return Knee(float(load[within - 1]), censored, f"p99 within {factor:g} x p99 at the lowest load")
    name = f"farthest below the chord of load and p99 (Kneedle; p99 rose above {factor:g} x)"
    if not took_off:
        return Knee(float(load[-1]), "right", name.replace("rose", "did not rise"))
    below = (load - load[0]) / (load[-1] - load[0]) - (worst - worst[0]) / (worst[-1] - worst[0])
    at = int(np.argmax(below))
    if below[at] < LEAST_BEND:
        return Knee(float(load[0]), "left", name)
    return Knee(float(load[at]), None, name)
