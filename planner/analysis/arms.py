"""Judgement of a canary step: the canary arm against the incumbent arm, by intervals instead of point estimates.

**Looks.** A step is judged repeatedly while its telemetry arrives. An interval that is wrong once in twenty is wrong
sooner or later when it is computed every minute. So look ``k`` of a step uses ``6 / (pi k)^2`` of the 5% of the step.
These shares sum to one (Basel problem), and by the union bound each comparison is wrong at any look of a step with a
chance of at most 5%, half of it on each side. There are four comparisons, each with its own 5%; no correction is made
among them, because all must be within the limits for a pass.

**Limits of the method.** The intervals assume independent requests. Requests in one queue are not independent, so the
true chances of error are higher; the hold of a step, its minimum number of requests and the tolerances below allow for
that. The arms share destinations and have different keys: a canary waits behind the queues of the incumbent, and its
keys may have longer prompts. So a canary above a limit that the incumbent alone also breaks is inconclusive, not
failed: the cause may be the queues of the incumbent. It does not pass either; the monitor ends a rollout above its
limit. A canary that is worse than the incumbent counts only beyond a tolerance.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from planner.analysis.checks import refuse, whole
from planner.analysis.latency import LatencySketch, QuantileInterval, at_most

__all__ = [
    "Arm",
    "Check",
    "Imbalance",
    "Limits",
    "Share",
    "StepJudgement",
    "alpha_of_look",
    "error_share",
    "fleet_imbalance",
    "judge",
    "more_errors",
]

Outcome = Literal["pass", "fail", "inconclusive", "missing"]
ALPHA = 0.05
# Tolerated excess of the p99 and of the error rate of a canary over the incumbent, as shares.
P99_TOLERANCE = 0.2
ERROR_TOLERANCE = 0.5
# Share of the limit of errors below which a difference does not count, even if it is significant.
ERROR_MATTERS = 0.1


@dataclass(frozen=True, eq=False)
class Arm:
    """Requests that one arm served.

    Parameters
    ----------
    requests, errors : int
        Requests, and the failed requests among them.
    latency : LatencySketch
        End-to-end latency of the answered requests.
    prompt_tokens, cached_tokens : int
        Prompt tokens, and the cached tokens among them.
    per_destination : int64[R]
        Requests sent to each destination.

    Raises
    ------
    ValueError
        Naming the field and its value.
    """

    requests: int
    errors: int
    latency: LatencySketch
    prompt_tokens: int
    cached_tokens: int
    per_destination: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_destination", whole("per_destination", self.per_destination))
        if not 0 <= self.errors <= self.requests:
            raise ValueError(f"errors = {self.errors}: expected from 0 to {self.requests} requests")
        if not 0 <= self.cached_tokens <= self.prompt_tokens:
            raise ValueError(f"cached_tokens = {self.cached_tokens}: expected from 0 to {self.prompt_tokens}")

    @property
    def hit_rate(self) -> float | None:
        """Cached prompt tokens / prompt tokens; None without prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


@dataclass(frozen=True)
class Limits:
    """Limits of a canary.

    Parameters
    ----------
    p99_s : float
        Highest p99 latency, seconds.
    error_rate : float
        Highest share of failed requests. At 0, an arm without a failure passes.
    imbalance : float
        Highest max/mean of requests over destinations, of both arms together.
    min_requests : int
        Minimum requests of each arm before a step may pass.
    """

    p99_s: float
    error_rate: float
    imbalance: float
    min_requests: int


@dataclass(frozen=True)
class Share:
    """A share of requests with its exact two-sided interval (Clopper and Pearson 1934)."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float | None]:
        """Return the figures; without requests the value is None."""
        return {"value": None if math.isnan(self.value) else self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Imbalance:
    """Max/mean over destinations per unit of speed, with an interval that holds for all destinations at once."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Return the figures."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Check:
    """One comparison: its outcome, and a sentence with the figures."""

    name: str
    outcome: Outcome
    text: str


@dataclass(frozen=True)
class StepJudgement:
    """The verdict of a step with its checks; `numbers` holds JSON values."""

    outcome: Outcome
    explanation: str
    checks: tuple[Check, ...]
    numbers: dict[str, Any] = field(default_factory=dict)


def alpha_of_look(look: int, alpha: float = ALPHA) -> float:
    """Return the chance of error of look 1, 2, ... of a step; the sum over all looks is ``alpha``."""
    if look < 1:
        raise ValueError(f"look = {look}: expected 1 or more")
    return float(alpha * 6 / (math.pi * look) ** 2)


def error_share(errors: int, requests: int, alpha: float) -> Share:
    """Return the share of failed requests with its exact interval (Clopper and Pearson 1934).

    Parameters
    ----------
    errors, requests : int
        Failed requests, and all requests.
    alpha : float
        Chance of error of the interval, in (0, 1).

    Returns
    -------
    Share
        From 0 to 1 without requests.
    """
    if requests == 0:
        return Share(math.nan, 0.0, 1.0)
    low, high = _exact(np.array([errors]), requests, alpha)
    return Share(errors / requests, float(low[0]), float(high[0]))


def more_errors(errors: int, requests: int, others: int, other_requests: int, ratio: float = 1.0) -> float:
    """Return the p-value of the hypothesis "fails at most ``ratio`` times as often as the other".

    Given the failures of both, those of the first are binomial (Przyborowski and Wilenski 1940). The value is exact
    where failures are rare, and conservative (too large) where they are not.

    Parameters
    ----------
    errors, requests : int
        Failed requests, and all requests, of the first.
    others, other_requests : int
        The same of the other.
    ratio : float
        Tolerated ratio of the error rates.

    Returns
    -------
    float
        In [0, 1]; 1 without failures or without requests.
    """
    both = errors + others
    if both == 0 or requests == 0 or other_requests == 0:
        return 1.0
    mine = ratio * requests / (ratio * requests + other_requests)
    return 1.0 - at_most(errors - 1, both, mine)


def fleet_imbalance(per_destination: ArrayLike, alpha: float, capacity: ArrayLike | None = None) -> Imbalance:
    """Return max/mean of requests over destinations, per unit of speed.

    The interval is the maximum over destinations of exact intervals of their shares, each at ``alpha / R``. So it holds
    for the busiest destination, whichever that is. A few hundred requests on thirty destinations are never even.

    Parameters
    ----------
    per_destination : int64[R]
        Requests of each destination.
    alpha : float
        Chance of error of the interval, in (0, 1).
    capacity : float64[R], optional
        Relative speeds above 0; default 1.

    Returns
    -------
    Imbalance
        From 1 to infinity without requests.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    counts = whole("per_destination", per_destination)
    speeds = np.ones(len(counts)) if capacity is None else np.asarray(capacity, dtype=np.float64)
    if speeds.shape != counts.shape:
        raise ValueError(f"capacity: expected shape {counts.shape}, got {speeds.shape}")
    refuse("capacity", speeds, ~np.isfinite(speeds) | (speeds <= 0), "a finite number above 0")
    total = int(counts.sum())
    if total == 0:
        return Imbalance(1.0, 1.0, math.inf)
    fair = speeds / speeds.sum()
    low, high = _exact(counts, total, alpha / len(counts))
    return Imbalance(
        float((counts / total / fair).max()), max(1.0, float((low / fair).max())), float((high / fair).max())
    )


def judge(
    canary: Arm, incumbent: Arm, limits: Limits, *, look: int = 1, capacity: ArrayLike | None = None
) -> StepJudgement:
    """Judge a step of a canary.

    1. ``fail`` where a comparison shows the canary outside: the lower end of an interval is above its limit, or the
    canary
       is worse than the incumbent beyond the tolerance. The intervals hold for any number of requests, so a canary that
       fails every request does not have to reach ``min_requests``.
    2. ``missing`` where either arm has fewer than ``min_requests``. 3. ``pass`` where the upper end of every comparison
    is within its limit. The p99 also passes where its interval contains
       the limit, the incumbent is not shown to meet the limit either, and the upper end is within the tolerance of the
       lower end of the incumbent.
    4. ``inconclusive`` otherwise. The hit rate is shown and does not count.

    Parameters
    ----------
    canary, incumbent : Arm
        Requests of the same time on the same R destinations.
    limits : Limits
        Limits of the canary.
    look : int
        Number of this judgement of the step, from 1.
    capacity : float64[R], optional
        Relative speed of each destination.

    Returns
    -------
    StepJudgement
        The outcome, its explanation, the checks and their numbers.
    """
    alpha = alpha_of_look(look)
    p99 = [arm.latency.quantile_interval(0.99, 1 - alpha) for arm in (canary, incumbent)]
    errors = [error_share(arm.errors, arm.requests, alpha) for arm in (canary, incumbent)]
    together = fleet_imbalance(canary.per_destination + incumbent.per_destination, alpha, capacity)
    without = fleet_imbalance(incumbent.per_destination, alpha, capacity)
    p_value = more_errors(canary.errors, canary.requests, incumbent.errors, incumbent.requests, 1 + ERROR_TOLERANCE)
    checks = (
        _p99(p99[0], p99[1], limits.p99_s),
        _errors(errors[0], errors[1], canary.errors, p_value < alpha / 2, limits.error_rate),
        _balance(together, without, limits.imbalance),
    )
    numbers: dict[str, Any] = {
        name: {
            "requests": arm.requests,
            "errors": arm.errors,
            "error_rate": share.as_dict(),
            "p99_s": quantile.as_dict(),
            "hit_rate": arm.hit_rate,
            "requests_per_destination": arm.per_destination.tolist(),
        }
        for name, arm, share, quantile in zip(("canary", "incumbent"), (canary, incumbent), errors, p99, strict=True)
    }
    numbers |= {
        "imbalance": {k: v if math.isfinite(v) else None for k, v in together.as_dict().items()},
        "more_errors_p": p_value,
        "limits": asdict(limits),
        "look": look,
        "alpha": alpha,
        "checks": [{"name": c.name, "verdict": c.outcome, "text": c.text} for c in checks],
    }
    outcome, why = _together(checks, canary, incumbent, limits)
    return StepJudgement(outcome, why, checks, numbers)


def _together(checks: tuple[Check, ...], canary: Arm, incumbent: Arm, limits: Limits) -> tuple[Outcome, str]:
    failed = [c.text for c in checks if c.outcome == "fail"]
    if failed:
        return "fail", " ".join(failed)
    few = [
        f"{arm.requests:,} of the {name}"
        for name, arm in (("canary", canary), ("incumbent", incumbent))
        if arm.requests < limits.min_requests
    ]
    if few:
        return "missing", f"Too few requests yet: {' and '.join(few)}; {limits.min_requests:,} of each are required."
    open_ones = [c.text for c in checks if c.outcome != "pass"]
    if open_ones:
        return "inconclusive", " ".join(open_ones)
    return "pass", " ".join(c.text for c in checks)


def _p99(canary: QuantileInterval, incumbent: QuantileInterval, limit: float) -> Check:
    mine, other = _seconds(canary), _seconds(incumbent)
    if canary.low > (1 + P99_TOLERANCE) * incumbent.high:
        text = f"p99 {mine} is more than {P99_TOLERANCE:.0%} above the incumbent's {other}."
        return Check("p99", "fail", text)
    if canary.high <= limit:
        return Check("p99", "pass", f"p99 {mine} is within {limit:g} s (incumbent {other}).")
    if canary.low > limit and incumbent.low > limit:
        words = f"so is the incumbent, {other}, on the same destinations"
        return Check("p99", "inconclusive", f"p99 {mine} is above the limit of {limit:g} s; {words}.")
    if canary.low > limit:
        return Check("p99", "fail", f"p99 {mine} is above the limit of {limit:g} s (incumbent {other}).")
    # Where the incumbent is shown to meet the limit, the canary must meet it too.
    if incumbent.high > limit and canary.high <= (1 + P99_TOLERANCE) * incumbent.low:
        words = f"not shown to be within {limit:g} s nor above it, and no worse than the incumbent's {other}"
        return Check("p99", "pass", f"p99 {mine} is {words}.")
    return Check("p99", "inconclusive", f"p99 {mine} is not shown to be within {limit:g} s yet (incumbent {other}).")


def _errors(canary: Share, incumbent: Share, failed: int, worse: bool, limit: float) -> Check:
    mine, other = _percent(canary), _percent(incumbent)
    if worse and canary.value > ERROR_MATTERS * limit:
        return Check("errors", "fail", f"{mine} of its requests failed, significantly more than {other}.")
    if incumbent.low > limit and canary.low > limit:
        text = f"{mine} of its requests failed, and {other} of the incumbent's: both above {limit:.2%}."
        return Check("errors", "inconclusive", text)
    if canary.low > limit:
        return Check("errors", "fail", f"{mine} of its requests failed, above the limit of {limit:.2%}.")
    if canary.high <= limit or (limit == 0 and failed == 0):
        return Check("errors", "pass", f"{mine} of its requests failed, within {limit:.2%}.")
    return Check("errors", "inconclusive", f"{mine} failed: not shown to be within {limit:.2%} yet.")


def _balance(together: Imbalance, incumbent: Imbalance, limit: float) -> Check:
    words = f"max/mean of requests {together.value:.3f} ({together.low:.3f} to {together.high:.3f})"
    if together.high <= limit:
        return Check("imbalance", "pass", f"{words[0].upper()}{words[1:]} is within {limit:g}.")
    if together.low > limit and incumbent.low <= limit:
        return Check("imbalance", "fail", f"{words[0].upper()}{words[1:]} is above {limit:g}.")
    if together.low > limit:
        return Check("imbalance", "inconclusive", f"{words} is above {limit:g}, and so is the incumbent's alone.")
    return Check("imbalance", "inconclusive", f"{words} is not shown to be within {limit:g} yet.")


def _exact(counts: NDArray[np.int64], total: int, alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Clopper-Pearson interval of each count out of a total."""
    k = counts.astype(np.float64)
    with np.errstate(invalid="ignore"):
        low = np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), total - k + 1, alpha / 2))
        high = np.where(k == total, 1.0, betaincinv(k + 1, np.maximum(total - k, 1), 1 - alpha / 2))
    return low, high


def _seconds(found: QuantileInterval) -> str:
    if math.isnan(found.value):
        return "unknown"
    high = f"{found.high:.3g}" if math.isfinite(found.high) else "no bound"
    return f"{found.value:.3g} s ({found.low:.3g} to {high})"


def _percent(found: Share) -> str:
    return "none" if math.isnan(found.value) else f"{found.value:.2%} ({found.low:.2%} to {found.high:.2%})"
