"""Replay a trace under a dispatch policy on simulated replicas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing import POLICIES, Policy, RoutingTable
from planner.routing.hashing import hash_indices, key_hashes
from planner.routing.policies import KeySpace
from planner.routing.problem import CAPACITY_RANGE
from planner.routing.validation import whole, within
from planner.simulation.kernel import run
from planner.simulation.profile import EngineProfile
from planner.simulation.result import ReplayResult
from planner.simulation.state import Engine, allocate
from planner.simulation.trace import Trace

__all__ = ["replay"]


def replay(
    trace: Trace,
    *,
    policy: str | Policy,
    destinations: int,
    profile: EngineProfile,
    table: RoutingTable | None = None,
    seed: int = 0,
    faults: Sequence[object] = (),
    warmup: float = 0.2,
    cache_tokens: int | None = None,
    step: bool = False,
    speed: ArrayLike | None = None,
) -> ReplayResult:
    """Answer what a policy would have given on a trace.

    Parameters
    ----------
    trace : Trace
        Requests; prompts are cached in its blocks of ``block_tokens``, a part-filled last block included.
    policy : str or Policy
        A name in ``planner.routing.POLICIES``, or a policy with parameters of its own.
    destinations : int
        Replicas R.
    profile : EngineProfile
        Constants of each replica.
    table : RoutingTable, optional
        For policies that need one.
    seed : int
        Of the policy's random draws, >= 0. Equal arguments give equal results to the last bit.
    faults : sequence
        Must be empty: faults are not simulated yet.
    warmup : float
        Share of the requests, from the first, that is simulated and left out of ``summary()``; in ``[0, 1)``.
    cache_tokens : int, optional
        Cache of each replica instead of the profile's (for an unlimited one: ``profile.with_cache(None)``).
    step : bool
        Play decode-only stretches one iteration at a time; slower, the same to 1e-9 s.
    speed : float64[R], optional
        Relative speed of each replica, from 1e-6 to 1e6: its iterations take the profile's time divided by it. The
        ``capacity`` of `build_table`; default 1. Caches do not differ.

    Raises
    ------
    ValueError
        Unknown policy, missing table, or an argument out of range.
    """
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise ValueError(f"policy = {policy!r}: expected one of {', '.join(POLICIES)}")
        policy = POLICIES[policy]
    replicas = whole("destinations", destinations, 1)
    whole("seed", seed, 0)
    if len(faults):
        raise ValueError("faults: faults are not simulated yet")
    if not 0 <= warmup < 1:
        raise ValueError(f"warmup = {warmup}: expected a share in [0, 1)")
    speeds = np.ones(replicas) if speed is None else within("speed", speed, replicas, CAPACITY_RANGE)
    if cache_tokens is not None:
        profile = profile.with_cache(whole("cache_tokens", cache_tokens, 1))

    n = len(trace)
    distinct, key = np.unique(trace.key, return_inverse=True)
    keys = KeySpace(distinct, key_hashes(distinct, trace.key_names))
    tables = policy.prepare(keys, replicas, table)
    ids, blocks, recurring = _number_blocks(trace.blocks.ids)
    engine = _engine(profile, trace.block_tokens, step)
    skipped = int(warmup * n)
    requests, cache, fleet = allocate(
        trace.arrival_s,
        key.astype(np.int64),
        trace.blocks.offsets,
        ids,
        trace.prompt_tokens,
        trace.output_tokens,
        replicas=replicas,
        recurring=recurring,
        slots=max(1, min(engine.capacity, blocks)),
        max_sequences=profile.max_sequences,
        speed=speeds,
    )
    rng = hash_indices(np.array([seed], dtype=np.int64), salt=7)
    measure_from = float(trace.arrival_s[skipped]) if n else 0.0
    refused = run(requests, cache, fleet, engine, tables, rng, measure_from)
    return ReplayResult(
        policy=policy.name,
        destinations=replicas,
        seed=seed,
        profile_fingerprint=profile.fingerprint(),
        warmup_requests=skipped,
        arrival_s=trace.arrival_s,
        latency_s=requests.finish - trace.arrival_s,
        ttft_s=requests.first_token - trace.arrival_s,
        destination=requests.destination,
        key=trace.key,
        prompt_tokens=trace.prompt_tokens,
        cached_tokens=np.maximum(requests.cached, 0),
        busy_s=fleet.measured_busy,
        queue_peak=fleet.queue_peak,
        preemptions=fleet.preemptions,
        peak_blocks=cache.peak,
        capacity_blocks=engine.capacity,
        refused=int(refused),
    )


def _number_blocks(ids: NDArray[np.int64]) -> tuple[NDArray[np.int32], int, int]:
    """Number recurring blocks densely and mark the others -1; also the count of all and of recurring ones."""
    _, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
    recurs = counts > 1
    number = np.where(recurs, np.cumsum(recurs) - 1, -1).astype(np.int32)
    return number[inverse], len(counts), int(recurs.sum())


def _engine(profile: EngineProfile, block_tokens: int, step: bool) -> Engine:
    capacity = 1 << 60 if profile.cache_tokens is None else profile.cache_tokens // block_tokens
    return Engine(
        iteration_s=float(profile.iteration_s),
        prefill_token_s=1.0 / float(profile.prefill_tokens_per_s),
        sequence_s=float(profile.sequence_s),
        context_token_s=float(profile.context_token_s),
        max_batched_tokens=int(profile.max_batched_tokens),
        max_sequences=int(profile.max_sequences),
        capacity=min(int(capacity), 1 << 60),
        block_tokens=int(block_tokens),
        step=bool(step),
    )
