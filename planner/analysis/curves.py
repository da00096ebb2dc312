"""Hit rate over time, and the depth and duration of its dip after a fault or a switch of plans."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.analysis.checks import refuse

__all__ = ["Dip", "HitCurve", "dip", "hit_curve"]

# Number of consecutive bins that must be back at the level: a single bin may be chance.
HOLD = 2
# Within this distance of the level before, a bin counts as back, whatever the noise.
LEAST_WITHIN = 0.02


@dataclass(frozen=True, eq=False)
class HitCurve:
    """Requests by time of arrival in ``b`` bins of equal width.

    Attributes
    ----------
    start_s, width_s : float
        Bin ``i`` covers ``[start_s + i * width_s, start_s + (i + 1) * width_s)``.
    requests, prompt_tokens, cached_tokens : int64[b]
        Sums of each bin.
    """

    start_s: float
    width_s: float
    requests: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]

    @property
    def edges_s(self) -> NDArray[np.float64]:
        """Edges of the bins, float64[b + 1]."""
        return self.start_s + self.width_s * np.arange(len(self.requests) + 1, dtype=np.float64)

    @property
    def hit_rate(self) -> NDArray[np.float64]:
        """Cached / prompt tokens of each bin, float64[b]; NaN in a bin without requests."""
        with np.errstate(invalid="ignore"):
            return self.cached_tokens / self.prompt_tokens


@dataclass(frozen=True)
class Dip:
    """Effect of an event on the hit rate; an unknown figure is None.

    Attributes
    ----------
    at_s : float
        Time of the event, seconds.
    before : float or None
        Hit rate of the window before, token-weighted; None when no request arrived in it.
    within : float or None
        Distance from ``before`` within which a bin counts as back.
    lowest : float or None
        Lowest bin from the event until the curve is back.
    depth_points : float or None
        ``100 * (before - lowest)``, at least 0.
    duration_s : float or None
        Seconds from the event to the start of the first bin from which on the curve is back. 0 without a dip; None
        when the curve did not return.
    censored : bool
        Whether the curve did not return before the end; the duration is then longer than ``seen_s``.
    seen_s : float
        Seconds from the event to the end of the curve.
    """

    at_s: float
    before: float | None
    within: float | None
    lowest: float | None
    depth_points: float | None
    duration_s: float | None
    censored: bool
    seen_s: float

    def as_dict(self) -> dict[str, float | bool | None]:
        """Return every field as plain JSON-able values."""
        return asdict(self)


def hit_curve(arrival_s: ArrayLike, prompt_tokens: ArrayLike, cached_tokens: ArrayLike, *, bins: int = 60) -> HitCurve:
    """Return the hit rate over time in at most ``bins`` bins from second 0 on.

    The width is a power of two of seconds: the curves of several seeds at one load then have the same bins, or get
    them by adding neighbours.

    Parameters
    ----------
    arrival_s : float64[n]
        Finite seconds >= 0, in any order.
    prompt_tokens, cached_tokens : int64[n]
        Prompt tokens of each request, and the cached tokens among them.
    bins : int
        At least 1; the curve has between half of this number and all.

    Returns
    -------
    HitCurve
        Sums of each bin.

    Raises
    ------
    ValueError
        Naming the argument and the first bad index.
    """
    arrival = np.asarray(arrival_s, dtype=np.float64)
    prompt, cached = np.asarray(prompt_tokens), np.asarray(cached_tokens)
    if bins < 1:
        raise ValueError(f"bins = {bins}: expected at least 1")
    for name, array in (("arrival_s", arrival), ("prompt_tokens", prompt), ("cached_tokens", cached)):
        if array.ndim != 1 or len(array) != len(arrival):
            raise ValueError(f"{name}: expected shape ({arrival.size},), got {array.shape}")
    refuse("arrival_s", arrival, ~(np.isfinite(arrival) & (arrival >= 0)), "a finite time >= 0")
    last = float(arrival.max(initial=0.0))
    width = 2.0 ** ceil(log2(last / bins)) if last > 0 else 1.0
    if int(last // width) >= bins:  # the last arrival is on the edge
        width *= 2
    of = (arrival // width).astype(np.int64)
    count = int(last // width) + 1 if len(arrival) else 0
    sums = (np.bincount(of, weights=w, minlength=count).astype(np.int64) for w in (prompt, cached))
    return HitCurve(0.0, width, np.bincount(of, minlength=count), *sums)


def dip(
    curve: HitCurve,
    at_s: float,
    *,
    from_s: float = 0.0,
    until_s: float | None = None,
    within: float | None = None,
) -> Dip:
    """Measure the effect of an event on the hit rate.

    The level before is that of the whole bins in ``[from_s, at_s)``. The curve is back at the first bin from which on
    `HOLD` consecutive bins are at least the level before minus ``within``. Bins without requests do not count.

    Parameters
    ----------
    curve : HitCurve
        Hit rate over time.
    at_s : float
        Time of the event, seconds; its bin counts as after.
    from_s : float
        Start of the window before, seconds; the end of the warm-up.
    until_s : float, optional
        End of the window after (the next event), seconds; by default the end of the curve.
    within : float, optional
        Distance within which a bin counts as back, as a share. By default twice the standard deviation of the bins
        before, at least .02, so that normal variation is no dip.

    Returns
    -------
    Dip
        Depth and duration.

    Raises
    ------
    ValueError
        When ``at_s`` is not a finite number or ``within`` is below 0.
    """
    if not np.isfinite(at_s):
        raise ValueError(f"at_s = {at_s}: expected a finite time")
    if within is not None and not within >= 0:
        raise ValueError(f"within = {within}: expected a share >= 0")
    edges, rate = curve.edges_s, curve.hit_rate
    known = curve.prompt_tokens > 0
    end = float(edges[-1]) if until_s is None else min(until_s, float(edges[-1]))
    earlier = known & (edges[:-1] >= from_s) & (edges[1:] <= at_s)
    later = np.flatnonzero(known & (edges[1:] > at_s) & (edges[:-1] < end))
    seen = max(0.0, end - at_s)
    if not earlier.any():
        return Dip(at_s, None, None, None, None, None, False, seen)
    before = int(curve.cached_tokens[earlier].sum()) / int(curve.prompt_tokens[earlier].sum())
    near = max(LEAST_WITHIN, 2 * float(rate[earlier].std())) if within is None else within
    if not len(later):
        return Dip(at_s, before, near, None, None, None, True, seen)
    low = rate[later] < before - near
    back = _back(low)
    lowest = float(rate[later[: back if back else len(later)]].min())
    duration = None if back is None else 0.0 if back == 0 else float(edges[later[back]]) - at_s
    return Dip(at_s, before, near, lowest, max(0.0, 100 * (before - lowest)), duration, back is None, seen)


def _back(low: NDArray[np.bool_]) -> int | None:
    """Return the index of the bin at which the curve is back; 0 without a dip, None when it does not return."""
    if not low.any():
        return 0
    for at in range(int(np.argmax(low)) + 1, len(low) - HOLD + 1):
        if not low[at : at + HOLD].any():
            return at
    return None
