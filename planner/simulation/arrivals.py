"""Arrivals of the same requests at another offered load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.routing.validation import positive, whole
from planner.simulation.trace import Trace

__all__ = ["ARRIVALS", "retime"]

ARRIVALS = ("scaled", "poisson", "gamma", "bootstrap")


def retime(
    trace: Trace,
    load_rps: float,
    *,
    arrivals: str = "scaled",
    cv: float | None = None,
    seed: int = 0,
    run_length: int | None = None,
) -> Trace:
    """Return the trace with arrivals at ``load_rps``; requests keep their order and content.

    Equal ``(load_rps, arrivals, cv, seed)`` give equal arrivals, so policies can be compared pair by pair.

    Parameters
    ----------
    trace : Trace
        The requests.
    load_rps : float
        Offered requests/s; exact for "scaled", in expectation for the others.
    arrivals : {"scaled", "poisson", "gamma", "bootstrap"}
        The gaps of the trace, scaled; exponential gaps; gamma gaps; the gaps of the trace resampled in runs
        (moving-block bootstrap, Kuensch 1989), which keeps short-range burstiness.
    cv : float
        Coefficient of variation of gamma gaps, above 0; needed for "gamma" and refused otherwise.
    seed : int
        Of the random gaps, >= 0; not used by "scaled".
    run_length : int, optional
        Gaps in one run of the bootstrap; by default the cube root of their number, at least 2.

    Returns
    -------
    Trace
        The same requests with new ``arrival_s``, from 0.

    Raises
    ------
    ValueError
        Unknown kind, argument out of range, or a trace whose requests all arrive at one instant.
    """
    rate = positive("load_rps", load_rps)
    whole("seed", seed, 0)
    if arrivals not in ARRIVALS:
        raise ValueError(f"arrivals = {arrivals!r}: expected one of {', '.join(ARRIVALS)}")
    if (cv is not None) != (arrivals == "gamma"):
        raise ValueError(f"cv = {cv}: arrivals = {arrivals!r}; only 'gamma' takes it, and requires it")
    if run_length is not None and arrivals != "bootstrap":
        raise ValueError(f"run_length = {run_length}: only arrivals = 'bootstrap' takes it")
    n = len(trace)
    if n < 2:
        return replace(trace, arrival_s=np.zeros(n))
    rng = np.random.default_rng(seed)
    if arrivals == "poisson":
        gaps = rng.exponential(size=n - 1)
    elif arrivals == "gamma":
        shape = positive("cv", cv or 0.0) ** -2
        gaps = rng.gamma(shape, 1 / shape, size=n - 1)
    else:
        gaps = np.diff(trace.arrival_s)
        mean = gaps.mean()
        if mean == 0:
            raise ValueError(f"trace: all {n} requests arrive at one instant, so its gaps cannot be scaled")
        gaps = gaps / mean
        if arrivals == "bootstrap":
            length = max(2, round(len(gaps) ** (1 / 3))) if run_length is None else run_length
            gaps = _moving_blocks(gaps, whole("run_length", length, 1), rng)
    return replace(trace, arrival_s=np.concatenate(([0.0], np.cumsum(gaps / rate))))


def _moving_blocks(gaps: NDArray[np.float64], length: int, rng: np.random.Generator) -> NDArray[np.float64]:
    length = min(length, len(gaps))
    runs = -(-len(gaps) // length)
    starts = rng.integers(0, len(gaps) - length + 1, size=runs)
    return gaps[(starts[:, None] + np.arange(length)).ravel()[: len(gaps)]]
