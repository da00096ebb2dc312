"""Calibration of one destination on the simulator: q_cap from a load sweep, W from a cache under a cold tail."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.routing.hashing import key_hashes
from planner.routing.validation import positive, whole
from planner.simulation.arrivals import retime
from planner.simulation.knee import find_knee
from planner.simulation.profile import EngineProfile
from planner.simulation.replay import replay
from planner.simulation.result import ReplayResult
from planner.simulation.trace import Blocks, Trace

__all__ = ["MAX_TRIALS", "CalibrationPoint", "CalibrationResult", "WarmPoint", "calibrate"]

DEFAULT_LOADS = 11
# The bisection of W ends within 1% of what fits, so its trials are bounded however large the cache is.
RESOLUTION = 100
MAX_TRIALS = 2 + math.ceil(math.log2(RESOLUTION))


@dataclass(frozen=True)
class CalibrationPoint:
    """One load of the sweep: requests/s, latency percentiles in seconds, hit rate, busy share of time."""

    load_rps: float
    requests: int
    p50_s: float
    p95_s: float
    p99_s: float
    ttft_p99_s: float
    hit_rate: float
    busy_share: float


@dataclass(frozen=True)
class WarmPoint:
    """One trial of W: number of equally requested warm prefixes, and the share of their tokens still cached."""

    prefixes: int
    kept_share: float


@dataclass(frozen=True)
class CalibrationResult:
    """Result of a calibration for plans, with the raw points.

    Attributes
    ----------
    q_cap : float
        Requests/s: the highest load of the sweep before the p99 tail takes off.
    censored : {"left", "right", None}
        Censoring of the knee, see `find_knee`.
    knee_method : str
        Method of the knee, with the value of its bound.
    warm_slots : int
        W: warm prefixes of ``prefix_tokens`` that one destination keeps, times ``margin``, rounded down.
    warm_kept : int
        The same before the margin.
    warm_censored : {"right", None}
        "right" when the largest trial was kept: the size of the cache, or the number of keys if it is unlimited.
    prefix_tokens : int
        Tokens of a warm prefix.
    cold_share : float
        Share of cold requests in the trials of W.
    keep_share : float
        Share of the warm tokens from which a trial counts as kept.
    source : str
        "simulated".
    """

    points: tuple[CalibrationPoint, ...]
    q_cap: float
    censored: str | None
    knee_method: str
    warm_slots: int
    warm_kept: int
    warm_censored: str | None
    warm_points: tuple[WarmPoint, ...]
    margin: float
    prefix_tokens: int
    cold_share: float
    keep_share: float
    seed: int
    profile_fingerprint: str
    source: str = "simulated"

    def as_dict(self) -> dict[str, Any]:
        """Return every field as plain JSON-able values."""
        return asdict(self)


def calibrate(
    profile: EngineProfile,
    trace: Trace,
    *,
    destinations: int = 1,
    loads: Sequence[float] | None = None,
    knee: str = "factor",
    knee_factor: float = 2.0,
    slo_s: float | None = None,
    margin: float = 0.8,
    keep_share: float = 0.95,
    prefix_tokens: int | None = None,
    cold_share: float | None = None,
    max_requests: int = 10_000,
    seed: int = 0,
    progress: Callable[[str, int], None] | None = None,
    checkpoint: Callable[[int], None] | None = None,
) -> CalibrationResult:
    """Sweep the load of one replica for q_cap, then find W, the warm prefixes that it keeps under cold traffic.

    q_cap: one replica replays the part of the trace that one of ``destinations`` would get (keys by hash), with
    Poisson arrivals at each load, and `find_knee` reads the knee from the points.

    W: w equally requested prefixes and a cold share of new prompts arrive at 0.8 q_cap; bisection finds the largest w
    with ``keep_share`` of the warm prefix tokens still cached.

    Parameters
    ----------
    profile : EngineProfile
        Constants of the replica.
    trace : Trace
        Real or synthetic requests of the workload.
    destinations : int
        Fleet size; 1 sweeps the whole trace on one replica.
    loads : sequence of float, optional
        Distinct loads in requests/s, in any order; by default 10% to 110% of the replica's saturated throughput
        in steps of 10%.
    knee, knee_factor, slo_s
        The method of `find_knee`, and its bounds.
    margin, keep_share : float
        Safety margin on W, and share of the warm tokens from which a trial counts as kept; both in (0, 1].
    prefix_tokens : int, optional
        Tokens of a warm prefix; by default the mean tokens that an unlimited cache finds, over requests that find any.
    cold_share : float, optional
        Share of cold requests, in [0, 1); by default that of requests whose key occurs once, at most 0.9.
    max_requests : int
        Requests of the sweep, from the start of its part of the trace; at least 100.
    seed : int
        Seed of the arrivals and of the trials, >= 0.
    progress : callable, optional
        Called with ``("loads", n)`` after n loads and ``("W", n)`` after n trials of W, at most `MAX_TRIALS`, and
        with n = 0 before each. An exception that it raises ends the calibration.
    checkpoint : callable, optional
        Called within each replay, see `replay`; an exception that it raises ends the calibration.

    Returns
    -------
    CalibrationResult
        q_cap, W and the raw points.

    Raises
    ------
    ValueError
        For an argument out of range, or a part of the trace with fewer than 100 requests, too few for a p99.
    """
    find_knee([1.0], [1.0], method=knee, factor=knee_factor, slo_s=slo_s)  # refuse bad arguments before the work
    report = progress or (lambda _phase, _done: None)
    for name, value in (("margin", margin), ("keep_share", keep_share)):
        if positive(name, value) > 1:
            raise ValueError(f"{name} = {value}: expected at most 1")
    part = part_of(trace, whole("destinations", destinations, 1), whole("max_requests", max_requests, 100))
    if len(part) < 100:
        raise ValueError(f"trace: {len(part)} requests fall to one of {destinations} destinations; 100 are needed")

    report("loads", 0)
    sweep = (
        _default_loads(part, profile, checkpoint)
        if loads is None
        else sorted(positive("loads", load) for load in loads)
    )
    if not sweep:
        raise ValueError("loads: expected at least one load")
    for at in range(1, len(sweep)):
        if sweep[at] == sweep[at - 1]:
            raise ValueError(f"loads[{at}] = {sweep[at]}: given twice")
    points = []
    for load in sweep:
        points.append(sweep_point(part, load, profile, seed, checkpoint))
        report("loads", len(points))
    found_knee = find_knee(sweep, [point.p99_s for point in points], method=knee, factor=knee_factor, slo_s=slo_s)

    report("W", 0)
    shared = replace(profile, cache_tokens=None, cache_shape="paged")  # the upper bound of every cache
    unlimited = _run(_all_at_once(part), shared, seed, checkpoint)
    if prefix_tokens is None:
        found = unlimited.cached_tokens[unlimited.cached_tokens > 0]
        prefix_tokens = int(found.mean()) if len(found) else part.block_tokens
    if cold_share is None:
        _, counts = np.unique(part.key, return_counts=True)
        cold_share = min(0.9, float((counts == 1).sum()) / len(part))
    elif not 0 <= cold_share < 1:
        raise ValueError(f"cold_share = {cold_share}: expected a share in [0, 1)")
    warm = _WarmTrial(
        profile, part, whole("prefix_tokens", prefix_tokens, 1), cold_share, 0.8 * found_knee.q_cap, seed, checkpoint
    )
    kept, warm_points, warm_censored = _largest_kept(warm, keep_share, report)
    return CalibrationResult(
        points=tuple(points),
        q_cap=found_knee.q_cap,
        censored=found_knee.censored,
        knee_method=found_knee.method,
        warm_slots=int(margin * kept),
        warm_kept=kept,
        warm_censored=warm_censored,
        warm_points=warm_points,
        margin=margin,
        prefix_tokens=prefix_tokens,
        cold_share=cold_share,
        keep_share=keep_share,
        seed=seed,
        profile_fingerprint=profile.fingerprint(),
    )


Checkpoint = Callable[[int], None] | None


def _run(trace: Trace, profile: EngineProfile, seed: int, checkpoint: Checkpoint = None) -> ReplayResult:
    return replay(trace, policy="round-robin", destinations=1, profile=profile, seed=seed, checkpoint=checkpoint)


def part_of(trace: Trace, destinations: int, most: int) -> Trace:
    """Return the first ``most`` requests of the part that one of ``destinations`` gets, keys by hash.

    Parameters
    ----------
    trace : Trace
        The requests of the fleet.
    destinations, most : int
        R, and the maximum number of requests.

    Returns
    -------
    Trace
        Requests of one destination.
    """
    distinct, inverse = np.unique(trace.key, return_inverse=True)
    mine = key_hashes(distinct, trace.key_names) % np.uint64(destinations) == 0
    return _take(trace, np.flatnonzero(mine[inverse])[:most])


def _take(trace: Trace, rows: NDArray[np.int64]) -> Trace:
    offsets, ids = trace.blocks
    lengths = np.diff(offsets)[rows]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    pick = np.repeat(offsets[rows] - starts[:-1], lengths) + np.arange(starts[-1])
    return replace(
        trace,
        arrival_s=trace.arrival_s[rows],
        key=trace.key[rows],
        blocks=Blocks(starts.astype(np.int64), ids[pick]),
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
    )


def _all_at_once(trace: Trace) -> Trace:
    return replace(trace, arrival_s=np.zeros(len(trace)))


def _default_loads(part: Trace, profile: EngineProfile, checkpoint: Checkpoint) -> list[float]:
    flood = _run(_all_at_once(part), profile, 0, checkpoint)
    finished = np.sort(flood.latency_s[flood.served])
    if not len(finished):
        raise ValueError(f"trace: every request is larger than the cache of {profile.name}")
    middle = finished[
        len(finished) // 10 : len(finished) - len(finished) // 10
    ]  # leave out ramp and drain, which are not saturated
    saturated = (len(middle) - 1) / (middle[-1] - middle[0])
    return [saturated * tenth / 10 for tenth in range(1, DEFAULT_LOADS + 1)]


def sweep_point(
    part: Trace, load: float, profile: EngineProfile, seed: int, checkpoint: Checkpoint = None
) -> CalibrationPoint:
    """Replay the part on one replica with Poisson arrivals.

    Parameters
    ----------
    part : Trace
        Requests of one destination.
    load : float
        Requests/s.
    profile : EngineProfile
        Constants of the replica.
    seed : int
        Seed of the arrivals.
    checkpoint : callable, optional
        Called within the replay, see `replay`.

    Returns
    -------
    CalibrationPoint
        Figures at this load.

    Raises
    ------
    ValueError
        When every request is larger than the cache.
    """
    result = _run(retime(part, load, arrivals="poisson", seed=seed), profile, seed, checkpoint)
    figures = result.summary()
    measured = result.measured()
    if not measured.any():
        raise ValueError(f"trace: every request is larger than the cache of {profile.name}")
    first = result.arrival_s[result.warmup_requests]
    span = float(np.max(result.arrival_s[measured] + result.latency_s[measured]) - first)
    return CalibrationPoint(
        load_rps=load,
        requests=figures["requests"],
        p50_s=figures["p50_s"],
        p95_s=figures["p95_s"],
        p99_s=figures["p99_s"],
        ttft_p99_s=figures["ttft_p99_s"],
        hit_rate=figures["hit_rate"],
        busy_share=min(1.0, float(result.busy_s[0]) / span),
    )


class _WarmTrial:
    """Trials of W; a call with a number of prefixes returns the share of their tokens that stayed cached."""

    def __init__(
        self,
        profile: EngineProfile,
        part: Trace,
        prefix: int,
        cold_share: float,
        load: float,
        seed: int,
        checkpoint: Checkpoint,
    ) -> None:
        self.profile, self.cold_share, self.load, self.seed = profile, cold_share, load, seed
        self.checkpoint = checkpoint
        self.block_tokens = part.block_tokens
        self.prefix_blocks = max(1, prefix // self.block_tokens)
        self.prompt_blocks = max(self.prefix_blocks + 1, int(np.mean(np.diff(part.blocks.offsets))))
        self.output = max(1, int(part.output_tokens.mean()))
        cache = profile.cache_tokens
        fits = len(np.unique(part.key)) if cache is None else cache // (self.block_tokens * self.prefix_blocks)
        if profile.cache_shape == "slots":
            fits = min(fits, profile.max_sequences)  # one sequence in each
        self.most = max(1, int(fits))

    def __call__(self, prefixes: int) -> float:
        n = max(400, int(8 * prefixes / (1 - self.cold_share)))  # about eight visits a prefix
        rng = np.random.default_rng([self.seed, prefixes])
        is_cold = rng.random(n) < self.cold_share
        key = np.where(is_cold, prefixes + np.arange(n), rng.integers(0, prefixes, n))
        width = self.prompt_blocks
        ids = prefixes * width + np.arange(n * width).reshape(n, width)  # all different ...
        head = slice(0, self.prefix_blocks)
        warm_ids = key[:, None] * width + np.arange(self.prefix_blocks)
        ids[~is_cold, head] = warm_ids[~is_cold]  # ... but for the warm prefixes
        trace = Trace(
            np.zeros(n),
            key,
            Blocks(np.arange(n + 1) * width, ids.ravel()),
            np.full(n, width * self.block_tokens),
            np.full(n, self.output),
            self.block_tokens,
        )
        timed = retime(trace, self.load, arrivals="poisson", seed=self.seed)
        result = _run(timed, self.profile, self.seed, self.checkpoint)
        warm = result.measured() & ~is_cold
        _, first_visits = np.unique(key, return_index=True)
        warm[first_visits] = False  # the first visit of a prefix cannot hit
        wanted = int(warm.sum()) * self.prefix_blocks * self.block_tokens
        return float(result.cached_tokens[warm].sum() / wanted) if wanted else 0.0


def _largest_kept(
    trial: _WarmTrial, keep_share: float, report: Callable[[str, int], None]
) -> tuple[int, tuple[WarmPoint, ...], str | None]:
    tried: dict[int, float] = {}

    def keeps(prefixes: int) -> bool:
        tried[prefixes] = trial(prefixes)
        report("W", len(tried))
        return tried[prefixes] >= keep_share

    low, high = 0, trial.most
    if keeps(high):
        low = high
    while high - low > max(1, trial.most // RESOLUTION):
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    points = tuple(WarmPoint(w, share) for w, share in sorted(tried.items()))
    return low, points, "right" if low == trial.most else None
