"""Result of a replay: one row for each request, and figures over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ReplayResult"]


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """Outcome of one replay of ``n`` requests on ``R`` destinations.

    The properties cover all requests that were served; :meth:`summary` leaves the warm-up part out.

    Attributes
    ----------
    policy : str
        Name of the policy.
    destinations : int
        R.
    seed : int
        Seed of the random draws of the policy.
    profile_fingerprint : str
        Fingerprint of the engine profile.
    warmup_requests : int
        Requests at the head of the trace that ``summary`` does not count.
    arrival_s, latency_s, ttft_s : float64[n]
        Arrival; seconds from arrival to the last and to the first token, NaN for a refused request.
    destination : int32[n]
        Destination of each request, -1 for a refused request.
    key : int64[n]
        Key index of each request.
    prompt_tokens, cached_tokens : int64[n]
        Length of the prompt, and its tokens in the cache when the request joined the batch.
    busy_s : float64[R]
        Seconds with an iteration in progress, after the warm-up.
    queue_peak, preemptions : int64[R]
        Longest queue, and sequences preempted, after the warm-up.
    peak_blocks : int64[R]
        Maximum of cache blocks in use at once, over the whole run.
    capacity_blocks : int
        Cache blocks of each destination.
    refused : int
        Requests larger than the cache of a replica.
    redispatched : int
        Requests sent again because their destination died; each time counts.
    iterations : int
        Iterations and leaps simulated, over all destinations.
    """

    policy: str
    destinations: int
    seed: int
    profile_fingerprint: str
    warmup_requests: int
    arrival_s: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    destination: NDArray[np.int32]
    key: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    busy_s: NDArray[np.float64]
    queue_peak: NDArray[np.int64]
    preemptions: NDArray[np.int64]
    peak_blocks: NDArray[np.int64]
    capacity_blocks: int
    refused: int
    redispatched: int = 0
    iterations: int = 0

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens / prompt tokens of the served requests."""
        return self._hit_rate(self.served)

    @property
    def request_hit_rate(self) -> float:
        """Share of the served requests that found at least one block."""
        return self._request_hit_rate(self.served)

    @property
    def served(self) -> NDArray[np.bool_]:
        """Whether each request was served, not refused; bool[n]."""
        return self.destination >= 0

    @property
    def requests_per_destination(self) -> NDArray[np.int64]:
        """Requests that each destination served; int64[R]."""
        return self._counts(self.served)

    @property
    def imbalance(self) -> float:
        """Max/mean of requests over destinations; 1.0 without served requests."""
        return _max_over_mean(self.requests_per_destination)

    @property
    def busy_imbalance(self) -> float:
        """Max/mean of busy time over destinations, after the warm-up."""
        return _max_over_mean(self.busy_s)

    def p(self, q: float) -> float:
        """Return a percentile of end-to-end latency in seconds; NaN without served requests.

        Parameters
        ----------
        q : float
            Percent in ``(1, 100]``, or the same as a fraction in ``[0, 1]``: ``p(99)`` is ``p(0.99)``.
        """
        return _percentile(self.latency_s[self.served], q)

    def measured(self) -> NDArray[np.bool_]:
        """Return whether each request counts in the figures: served and after the warm-up; bool[n]."""
        part = self.served.copy()
        part[: self.warmup_requests] = False
        return part

    def summary(self) -> dict[str, Any]:
        """Return the figures after the warm-up as JSON values; a missing figure is None."""
        part = self.measured()
        latency, ttft = self.latency_s[part], self.ttft_s[part]
        counts = self._counts(part)
        offered = self.arrival_s[self.warmup_requests :]  # refused requests included
        span = float(np.ptp(offered)) if len(offered) else 0.0
        figures: dict[str, Any] = {
            "policy": self.policy,
            "seed": self.seed,
            "requests": int(part.sum()),
            "warmup_requests": self.warmup_requests,
            "refused": self.refused,
            "redispatched": self.redispatched,
            "offered_rps": (len(offered) - 1) / span if span > 0 else None,
            "hit_rate": self._hit_rate(part),
            "request_hit_rate": self._request_hit_rate(part),
            "imbalance": _max_over_mean(counts),
            "busy_imbalance": self.busy_imbalance,
            "requests_per_destination": counts.tolist(),
            "busy_s": self.busy_s.tolist(),
            "queue_peak": int(self.queue_peak.max()),
            "preemptions": int(self.preemptions.sum()),
            "latency_mean_s": float(latency.mean()) if latency.size else None,
            "profile_fingerprint": self.profile_fingerprint,
        }
        for q in (50, 95, 99):
            figures[f"p{q}_s"] = _percentile(latency, q)
            figures[f"ttft_p{q}_s"] = _percentile(ttft, q)
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in figures.items()}

    def _counts(self, part: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self.destination[part], minlength=self.destinations)

    def _hit_rate(self, part: NDArray[np.bool_]) -> float:
        tokens = int(self.prompt_tokens[part].sum())
        return int(self.cached_tokens[part].sum()) / tokens if tokens else float("nan")

    def _request_hit_rate(self, part: NDArray[np.bool_]) -> float:
        return float((self.cached_tokens[part] > 0).mean()) if part.any() else float("nan")


def _percentile(values: NDArray[np.float64], q: float) -> float:
    if not 0 <= q <= 100:
        raise ValueError(f"q = {q}: expected a percent up to 100 or a fraction")
    return float(np.percentile(values, q if q > 1 else 100 * q)) if values.size else float("nan")


def _max_over_mean(values: NDArray[np.int64] | NDArray[np.float64]) -> float:
    mean = float(values.mean())
    return float(values.max()) / mean if mean > 0 else 1.0
