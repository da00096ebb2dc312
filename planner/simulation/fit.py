"""Fit of engine constants to measurements: timed iterations, or the latencies of a load sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

from planner.routing.validation import positive, whole
from planner.simulation.calibration import part_of, sweep_point
from planner.simulation.profile import EngineProfile
from planner.simulation.trace import Trace

__all__ = ["Fit", "IterationPoint", "SweepPoint", "fit", "fit_iterations", "fit_sweep"]

# Constant of the profile -> the term of the iteration-time equation whose coefficient (or its inverse) it is.
TERMS = {
    "iteration_s": "iterations",
    "prefill_tokens_per_s": "prefill_tokens",
    "sequence_s": "decodes",
    "context_token_s": "context_tokens",
}
# Points that differ by less than this, relative to their size, do not determine a constant.
RANK_TOLERANCE = 1e-7
# The scales of a sweep are searched within this factor of the base profile; beyond it another base is better.
WIDEST_SCALE = 8.0
# A scale within this share of either end is no optimum: the search stopped at the bound.
NEAR_END = 0.01
# Root mean square of the errors (relative, or log ratios) above which a fit is refused: at 0.5 the typical latency is
# 1.5 times the measured one, while fits to real engines reach 0.1.
LARGEST_RMS = 0.5
MAX_EVALUATIONS = 120


@dataclass(frozen=True)
class IterationPoint:
    """One timed iteration (or the mean of many equal ones): its work in tokens and sequences, and its seconds."""

    prefill_tokens: float
    decodes: float
    context_tokens: float
    seconds: float


@dataclass(frozen=True)
class SweepPoint:
    """One measured load of a sweep; ``p50_s`` is None where it was not measured."""

    load_rps: float
    p99_s: float
    p50_s: float | None = None


@dataclass(frozen=True)
class Fit:
    """A fitted profile with its residuals.

    Attributes
    ----------
    profile : EngineProfile
        Provenance of the fitted constants: "fitted: ...".
    method : {"iterations", "sweep"}
        Kind of the points.
    rms_error : float
        Root mean square of the relative errors, of log ratios for "sweep".
    residuals : tuple of dict
        For each point, in the order given: the measured value, the value of the profile, and the relative error.
    scales : dict
        "sweep": ``iteration`` and ``prefill``, the factors on the base profile's times.
    """

    profile: EngineProfile
    method: str
    rms_error: float
    residuals: tuple[dict[str, float], ...]
    scales: dict[str, float] = field(default_factory=dict)


def fit(
    points: Sequence[Any], *, base: EngineProfile, name: str | None = None, trace: Trace | None = None, **options: Any
) -> EngineProfile:
    """Fit the constants of an engine's iteration time to measured points.

    `fit_iterations` fits `IterationPoint` (or rows of 4 numbers: prefill tokens, decodes, context tokens, seconds);
    `fit_sweep` fits points of a sweep (`SweepPoint`, `CalibrationPoint`) with the ``trace`` that was sent. Both return
    the residuals too.

    Parameters
    ----------
    points : sequence
        Measured points of one kind.
    base : EngineProfile
        Source of the constants that points do not determine: cache size, limits of a batch, serving facts.
    name : str, optional
        Name of the fitted profile; by default the name of ``base`` with "-fitted".
    trace : Trace, optional
        For a sweep: the requests that were sent.
    **options
        Further arguments of `fit_iterations` or `fit_sweep`.

    Returns
    -------
    EngineProfile
        The fitted profile.

    Raises
    ------
    ValueError
        Naming the constant that the points do not determine, or the point and value that cannot be used.
    """
    points = list(points)
    if points and hasattr(points[0], "load_rps"):
        if trace is None:
            raise ValueError("trace: required to fit the points of a sweep; it holds the requests that were sent")
        return fit_sweep(points, base=base, trace=trace, name=name, **options).profile
    if trace is not None:
        raise ValueError("trace: only for the points of a sweep, which have load_rps")
    return fit_iterations(points, base=base, name=name, **options).profile


def fit_iterations(points: Iterable[Any], *, base: EngineProfile, name: str | None = None) -> Fit:
    """Fit the iteration-time equation (see `EngineProfile`) by non-negative least squares.

    Errors are relative to the time of their iteration: the noise of a timer grows with the time. A constant of 0 is
    accepted: its work has no measurable cost in these points.

    Parameters
    ----------
    points : iterable
        `IterationPoint`, or rows of 4 numbers: prefill tokens, decodes, context tokens, seconds.
    base : EngineProfile
        Source of all other constants.
    name : str, optional
        Name of the fitted profile; by default the name of ``base`` with "-fitted".

    Returns
    -------
    Fit
        The fitted profile and its residuals.

    Raises
    ------
    ValueError
        For a value that is negative or not finite, a time of 0, or fewer points than constants; for points that do
        not determine a constant, because its term is 0 everywhere or follows from the others; for points that the
        equation misses by more than `LARGEST_RMS`.
    """
    rows = _rows(points)
    work = np.column_stack((np.ones(len(rows)), rows[:, :3]))
    seconds = rows[:, 3]
    for column, (constant, term) in enumerate(TERMS.items()):
        if not work[:, column].any():
            raise ValueError(f"{constant}: not determined by these points; {term} is 0 in all of them")
    weighed = work / seconds[:, None]
    size = np.linalg.norm(weighed, axis=0)
    scaled = weighed / size
    _refuse_dependent(scaled)
    found, _ = nnls(scaled, np.ones(len(rows)))
    constants = found / size
    if constants[1] == 0:
        raise ValueError("prefill_tokens_per_s: not determined by these points; time does not grow with prefill_tokens")
    given = work @ constants
    errors = given / seconds - 1
    rms = float(np.sqrt(np.mean(errors**2)))
    if rms > LARGEST_RMS:
        raise ValueError(
            f"points: no constants fit them; the best fit has an error of {rms:.0%} (rms), at most {LARGEST_RMS:.0%} "
            f"is accepted. They take {_span(seconds)} s and the equation gives {_span(given)} s. Check the units."
        )
    spread = errors @ errors / max(1, len(rows) - len(TERMS))
    relative = np.sqrt(spread * np.diag(np.linalg.inv(scaled.T @ scaled))) / np.maximum(found, 1e-300)
    values = dict(zip(TERMS, constants.tolist(), strict=True))
    values["prefill_tokens_per_s"] = 1 / values["prefill_tokens_per_s"]
    provenance = dict(base.provenance)
    for constant, value, share in zip(TERMS, found, relative, strict=True):
        exact = f"standard error {share:.1%}" if value else "held at 0, its lowest value"
        if value and share > 0.5:  # two standard errors reach 0
            exact += ", not significantly above 0"
        provenance[constant] = f"fitted: {len(rows)} points, rms error {rms:.2%}; {exact}"
    residuals = tuple(
        {**_point_dict(row), "given_s": float(give), "error": float(error)}
        for row, give, error in zip(rows, given, errors, strict=True)
    )
    profile = replace(base, name=name or f"{base.name}-fitted", provenance=provenance, **values)
    return Fit(profile, "iterations", rms, residuals)


def fit_sweep(
    points: Sequence[Any],
    *,
    base: EngineProfile,
    trace: Trace,
    destinations: int = 1,
    name: str | None = None,
    max_requests: int = 2_000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: Callable[[int], None] | None = None,
) -> Fit:
    """Scale the times of the base profile so that its simulated sweep comes nearest to a measured one.

    Two factors are searched within `WIDEST_SCALE` of 1: one on ``iteration_s``, ``sequence_s`` and
    ``context_token_s``, one on the time of a prefill token. The search minimises the sum of squared log ratios of
    simulated and measured p50 and p99 over the loads: on a grid of powers of 2, then by Nelder-Mead from its best
    point. Arrivals are the same in every trial, so equal arguments give equal fits.

    Latencies beyond the knee grow with the length of a run: use points up to the knee, or as many requests as were
    measured.

    Parameters
    ----------
    points : sequence
        With ``load_rps``, ``p99_s`` and optionally ``p50_s``; at least two loads.
    base : EngineProfile
        The profile to scale.
    trace : Trace
        The requests that were sent.
    destinations, max_requests : int
        Part of the trace that one replica replays, see `calibrate`.
    name : str, optional
        Name of the fitted profile; by default the name of ``base`` with "-fitted".
    seed : int
        Seed of the arrivals, >= 0.
    progress : callable, optional
        Called with (trials done, maximum of trials); an exception that it raises ends the fit.
    checkpoint : callable, optional
        Called within each replay, see `replay`; an exception that it raises ends the fit.

    Returns
    -------
    Fit
        The scaled profile, its scales and its residuals.

    Raises
    ------
    ValueError
        Naming the point and its value; for fewer than two loads or fewer than 100 requests; for a constant that the
        points do not determine, because other values give the same latencies; when a scale ends at `WIDEST_SCALE`;
        when the simulated sweep misses the measured one by more than `LARGEST_RMS`.
    """
    measured = [_sweep_row(at, point) for at, point in enumerate(points)]
    if len({row["load_rps"] for row in measured}) < 2:
        raise ValueError(f"points: {len(measured)} given; at least two loads are needed for two factors")
    part = part_of(trace, whole("destinations", destinations, 1), whole("max_requests", max_requests, 100))
    if len(part) < 100:
        raise ValueError(f"trace: {len(part)} requests fall to one of {destinations} destinations; 100 are needed")
    tried: dict[tuple[float, float], list[dict[str, float]]] = {}

    def given(logs: NDArray[np.float64]) -> list[dict[str, float]]:
        scale = float(np.exp(logs[0])), float(np.exp(logs[1]))
        if scale not in tried:
            if progress is not None:
                progress(len(tried), MAX_EVALUATIONS + 2)  # two more at the end, in _refuse_flat
            profile = _scaled(base, *scale)
            tried[scale] = [
                _compare(row, sweep_point(part, row["load_rps"], profile, seed, checkpoint)) for row in measured
            ]
        return tried[scale]

    def loss(logs: NDArray[np.float64]) -> float:
        return sum(error**2 for row in given(logs) for key, error in row.items() if key.startswith("log_"))

    widest = np.log(WIDEST_SCALE)
    grid = np.log(2.0) * np.arange(-3, 4)
    start = min((np.array([a, b]) for a in grid for b in grid), key=loss)
    simplex = start + np.array([[0.0, 0.0], [0.3, 0.0], [0.0, 0.3]]) * np.where(start > 1.5, -1.0, 1.0)
    best = minimize(
        loss,
        start,
        method="Nelder-Mead",
        bounds=[(-widest, widest)] * 2,
        options={
            "maxfev": MAX_EVALUATIONS - len(tried), "xatol": 5e-4, "fatol": 1e-9, "initial_simplex": simplex,
        },
    ).x  # fmt: skip
    count = sum(key.startswith("log_") for row in given(best) for key in row)
    rms = float(np.sqrt(loss(best) / count))
    _refuse_flat(best, given)
    _refuse_far(best, rms, given(best))
    scales = {"iteration": float(np.exp(best[0])), "prefill": float(np.exp(best[1]))}
    said = f"fitted: {len(measured)} points of a sweep, rms error {rms:.2%}"
    provenance = dict(base.provenance)
    for constant in TERMS:
        which = "prefill" if constant == "prefill_tokens_per_s" else "iteration"
        provenance[constant] = f"{said}; time of {base.name} x {scales[which]:.4g}"
    profile = replace(_scaled(base, **scales), name=name or f"{base.name}-fitted", provenance=provenance)
    return Fit(profile, "sweep", rms, tuple(given(best)), scales)


def _scaled(base: EngineProfile, iteration: float, prefill: float) -> EngineProfile:
    return replace(
        base,
        iteration_s=base.iteration_s * iteration,
        sequence_s=base.sequence_s * iteration,
        context_token_s=base.context_token_s * iteration,
        prefill_tokens_per_s=base.prefill_tokens_per_s / prefill,
    )


def _compare(measured: dict[str, float], simulated: Any) -> dict[str, float]:
    """Return the measured and the simulated values of a point, with log ratios and relative errors."""
    row = dict(measured)
    for name in ("p50_s", "p99_s"):
        if name in measured:
            value = float(getattr(simulated, name))
            row[f"given_{name}"] = value
            row[f"error_{name}"] = value / measured[name] - 1
            row[f"log_{name}"] = float(np.log(value / measured[name]))
    return row


def _span(values: Any) -> str:
    return f"{np.min(values):.3g} to {np.max(values):.3g}"


def _refuse_far(best: NDArray[np.float64], rms: float, rows: list[dict[str, float]]) -> None:
    """Refuse latencies that no engine near the base gives: another engine, other requests or another unit."""
    seen = (
        f"measured p99 is {_span([row['p99_s'] for row in rows])} s at {_span([row['load_rps'] for row in rows])} "
        f"requests/s, and the nearest simulated {_span([row['given_p99_s'] for row in rows])} s"
    )
    for log, phase in zip(best, ("iterations", "prefill"), strict=True):
        if abs(log) >= (1 - NEAR_END) * np.log(WIDEST_SCALE):
            raise ValueError(
                f"points: the time of {phase} would be more than {WIDEST_SCALE:g} times "
                f"{'as long' if log > 0 else 'as short'} as the base profile's; {seen}. Check that these are the "
                "requests that were sent and that times are in seconds, or start from a profile nearer to the engine."
            )
    if rms > LARGEST_RMS:
        raise ValueError(
            f"points: no scales fit them; the best fit has an error of {rms:.0%} (rms of log ratios), "
            f"at most {LARGEST_RMS:.0%} is accepted; {seen}. Check the requests that were sent, and the engine."
        )


def _refuse_flat(best: NDArray[np.float64], given: Callable[[Any], list[dict[str, float]]]) -> None:
    """Refuse a factor when a change of it by 10% changes no latency."""
    here = [row["given_p99_s"] for row in given(best)] + [row.get("given_p50_s", 0.0) for row in given(best)]
    for axis, constants in enumerate(("iteration_s, sequence_s and context_token_s", "prefill_tokens_per_s")):
        moved = best.copy()
        moved[axis] += -0.1 if moved[axis] > 0 else 0.1
        there = [row["given_p99_s"] for row in given(moved)] + [row.get("given_p50_s", 0.0) for row in given(moved)]
        if np.allclose(here, there, rtol=1e-3):
            raise ValueError(f"{constants}: not determined by these points; a change by 10% changes no latency")


def _refuse_dependent(scaled: NDArray[np.float64]) -> None:
    """Refuse columns (of length 1) that depend on each other, and name them."""
    values = np.linalg.svd(scaled, compute_uv=False)
    if len(scaled) >= len(TERMS) and values[-1] > RANK_TOLERANCE * values[0]:
        return
    if len(scaled) < len(TERMS):
        raise ValueError(f"points: {len(scaled)} given; {', '.join(TERMS)} need at least {len(TERMS)}")
    weights = np.abs(np.linalg.svd(scaled)[2][-1])
    tied = [name for name, weight in zip(TERMS, weights, strict=True) if weight > 1e-3]
    raise ValueError(
        f"{' and '.join(tied)}: not determined separately by these points; "
        f"{', '.join(TERMS[name] for name in tied)} follow from each other in all of them"
    )


def _rows(points: Iterable[Any]) -> NDArray[np.float64]:
    """Check the points: float64[n, 4]."""
    names = ("prefill_tokens", "decodes", "context_tokens", "seconds")
    rows = [
        tuple(getattr(point, name) for name in names) if hasattr(point, "seconds") else tuple(point) for point in points
    ]
    for at, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(f"points[{at}]: {len(row)} values; expected {', '.join(names)}")
    found = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    bad = np.argwhere(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        at, column = bad[0]
        raise ValueError(f"points[{at}].{names[column]} = {found[at, column]}: expected a finite number >= 0")
    still = np.flatnonzero(found[:, 3] == 0)
    if len(still):
        raise ValueError(f"points[{still[0]}].seconds = 0: expected above 0")
    return found


def _point_dict(row: NDArray[np.float64]) -> dict[str, float]:
    names = ("prefill_tokens", "decodes", "context_tokens", "seconds")
    return dict(zip(names, row.tolist(), strict=True))


def _sweep_row(at: int, point: Any) -> dict[str, float]:
    row = {}
    for name in ("load_rps", "p50_s", "p99_s"):
        value = getattr(point, name, None)
        if value is not None:
            row[name] = positive(f"points[{at}].{name}", value)
    missing = {"load_rps", "p99_s"} - row.keys()
    if missing:
        raise ValueError(f"points[{at}].{min(missing)}: missing")
    return row
