"""Replay a trace under a dispatch policy on simulated replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing import POLICIES, Policy, RoutingTable
from planner.routing.hashing import hash_indices, key_hashes
from planner.routing.policies import Costs, KeySpace, quiet_signals
from planner.routing.problem import CAPACITY_RANGE
from planner.routing.validation import whole, within
from planner.simulation.faults import Fault, PlanSwitch, timeline
from planner.simulation.kernel import Progress, run
from planner.simulation.profile import EngineProfile
from planner.simulation.result import ReplayResult
from planner.simulation.state import UNLIMITED, Engine, World, allocate
from planner.simulation.trace import Trace, read_only

__all__ = ["replay"]

# Seconds of work between two calls of a checkpoint, and requests before the pace is known.
PAUSE_S = 0.05
FIRST_STRETCH = 200


def replay(
    trace: Trace,
    *,
    policy: str | Policy,
    destinations: int,
    profile: EngineProfile,
    table: RoutingTable | None = None,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    warmup: float = 0.2,
    cache_tokens: int | None = None,
    step: bool = False,
    speed: ArrayLike | None = None,
    switches: Sequence[PlanSwitch] = (),
    checkpoint: Callable[[int], None] | None = None,
) -> ReplayResult:
    """Simulate a trace under a dispatch policy.

    Parameters
    ----------
    trace : Trace
        Requests; prompts are cached in its full blocks of ``block_tokens``.
    policy : str or Policy
        A name in ``planner.routing.POLICIES``, or a policy with its own parameters.
    destinations : int
        Replicas R.
    profile : EngineProfile
        Constants of each replica.
    table : RoutingTable, optional
        Required by some policies.
    seed : int
        Seed of the random draws of the policy, >= 0. Equal arguments give equal results to the last bit.
    faults : sequence of Fault
        Destinations that die, drain or slow down for a time.
    warmup : float
        Share of the requests, from the first, that is simulated but not counted in ``summary()``; in ``[0, 1)``.
    cache_tokens : int, optional
        Cache of each replica instead of the profile's (for an unlimited one: ``profile.with_cache(None)``).
    step : bool
        Simulate decode-only stretches one iteration at a time; slower, equal to 1e-9 s.
    speed : float64[R], optional
        Relative speed of each replica, from 1e-6 to 1e6: its iterations take the profile's time divided by it. The
        ``capacity`` of `build_table`; default 1. Caches do not differ.
    switches : sequence of PlanSwitch
        Tables that replace ``table``, in order of time.
    checkpoint : callable, optional
        Called with the number of requests dispatched so far, several times a second and after the last request; an
        exception that it raises ends the replay.

    Returns
    -------
    ReplayResult
        One row for each request, and figures of each destination.

    Raises
    ------
    ValueError
        For an unknown policy, a missing table, an argument out of range, or faults that leave requests without a
        destination at the end.
    """
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise ValueError(f"policy = {policy!r}: expected one of {', '.join(POLICIES)}")
        policy = POLICIES[policy]
    replicas = whole("destinations", destinations, 1)
    if whole("seed", seed, 0) >= 2**63:
        raise ValueError(f"seed = {seed}: expected below 2**63")
    if not 0 <= warmup < 1:
        raise ValueError(f"warmup = {warmup}: expected a share in [0, 1)")
    speeds = np.ones(replicas) if speed is None else within("speed", speed, replicas, CAPACITY_RANGE)
    if cache_tokens is not None:
        profile = profile.with_cache(whole("cache_tokens", cache_tokens, 1))
    if switches and not policy.needs_table:
        raise ValueError(f"switches: policy {policy.name!r} uses no table, so none can be switched")
    if table is not None and not isinstance(table, RoutingTable):
        raise ValueError(f"table: expected a RoutingTable, got {type(table).__name__}")
    # Times count from the first arrival: in seconds since 1970 a float64 cannot resolve a nanosecond.
    start_s = float(trace.arrival_s[0]) if len(trace) else 0.0
    events = timeline(faults, switches, replicas, start_s)
    engine = _engine(profile, trace.block_tokens, step)

    n = len(trace)
    distinct, key = trace.dense_keys
    tables = policy.prepare(
        KeySpace(distinct, key_hashes(distinct, trace.key_names)),
        replicas,
        [] if table is None else [table, *(switch.table for switch in switches)],
        _costs(engine, trace),
    )
    skipped = int(warmup * n)
    arrival_s = trace.arrival_s if start_s == 0 else read_only(trace.arrival_s - start_s)
    world = allocate(
        *(arrival_s, key, trace.prompt_tokens, trace.output_tokens),
        *(trace.chains, engine, speeds, tables.window_s > 0),
    )
    progress = Progress.at_the_start(replicas, tables.look_back)
    rng = hash_indices(np.array([seed], dtype=np.int64), salt=7)
    measure_from = float(arrival_s[skipped]) if n else 0.0
    signals = quiet_signals(replicas)._replace(outstanding=world.outstanding, pending=world.pending)
    state = (world, engine, tables, signals, events, progress, rng, measure_from)
    if checkpoint is None:
        run(*state, 0, n, np.inf)
        run(*state, n, n, np.inf)
    else:
        _by_stretches(lambda first, last, until: run(*state, first, last, until), arrival_s, world, checkpoint)
    if progress.parked[0] >= 0:
        raise ValueError("faults: requests remain, but no destination is up or returns")
    return ReplayResult(
        policy=policy.name,
        destinations=replicas,
        seed=seed,
        profile_fingerprint=profile.fingerprint(),
        warmup_requests=skipped,
        arrival_s=trace.arrival_s,
        latency_s=world.latency,
        ttft_s=world.ttft,
        destination=world.destination,
        key=trace.key,
        prompt_tokens=trace.prompt_tokens,
        cached_tokens=np.maximum(world.cached, 0, out=world.cached),
        busy_s=world.replicas["measured_busy"].copy(),
        queue_peak=world.replicas["queue_peak"].copy(),
        preemptions=world.replicas["preemptions"].copy(),
        peak_blocks=world.replicas["peak"].copy(),
        capacity_blocks=engine.capacity,
        refused=int(progress.refused[0]),
        redispatched=int(progress.redispatched[0]),
        iterations=int(world.replicas["iterations"].sum()),
    )


def _by_stretches(
    play: Callable[[int, int, float], None],
    arrival_s: NDArray[np.float64],
    world: World,
    checkpoint: Callable[[int], None],
) -> None:
    """Run in parts of about ``PAUSE_S`` each; the parts do not change the result."""
    n = len(arrival_s)
    done, stretch = 0, float(FIRST_STRETCH)
    while done < n:
        last = min(n, done + max(1, int(stretch)))
        stretch *= _pace(play, done, last, np.inf)
        done = last
        checkpoint(done)
    # Requests in flight after the last arrival: in an overloaded fleet nearly all of the work.
    until = float(arrival_s[-1]) if n else 0.0
    slice_s = max(until / max(n, 1) * FIRST_STRETCH, 1e-3)
    while world.outstanding.any():
        until += slice_s
        slice_s *= _pace(play, n, n, until)
        checkpoint(n)
    play(n, n, np.inf)


def _pace(play: Callable[[int, int, float], None], first: int, last: int, until: float) -> float:
    """Run a part, and return the factor by which the next part may be longer, at most 2."""
    started = time.perf_counter()
    play(first, last, until)
    return float(np.clip(PAUSE_S / max(time.perf_counter() - started, 1e-9), 0.1, 2.0))


def _costs(engine: Engine, trace: Trace) -> Costs:
    return Costs(
        engine.prefill_token_s,
        engine.iteration_s,
        engine.sequence_s,
        engine.context_token_s,
        float(trace.prompt_tokens.mean()) if len(trace) else 0.0,
        float(trace.output_tokens.mean()) if len(trace) else 0.0,
    )


def _engine(profile: EngineProfile, block_tokens: int, step: bool) -> Engine:
    capacity = UNLIMITED if profile.cache_tokens is None else profile.cache_tokens // block_tokens
    tokens = UNLIMITED if profile.cache_tokens is None else profile.cache_tokens // profile.max_sequences
    return Engine(
        iteration_s=float(profile.iteration_s),
        prefill_token_s=1.0 / float(profile.prefill_tokens_per_s),
        sequence_s=float(profile.sequence_s),
        context_token_s=float(profile.context_token_s),
        max_batched_tokens=int(profile.max_batched_tokens),
        max_sequences=int(profile.max_sequences),
        capacity=min(int(capacity), UNLIMITED),
        block_tokens=int(block_tokens),
        block_shift=int(block_tokens).bit_length() - 1 if int(block_tokens).bit_count() == 1 else -1,
        slots=profile.cache_shape == "slots",
        slot_tokens=min(int(tokens), UNLIMITED),
        slot_similarity=float(profile.slot_similarity),
        step=bool(step),
    )
