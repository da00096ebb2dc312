"""Flat arrays that the compiled replay works on. ``n`` requests, ``R`` replicas, ``S`` block slots a replica."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cache", "Engine", "Fleet", "Index", "Requests", "allocate"]

Index = int | np.integer  # array elements and plain ints are one to the compiler


class Engine(NamedTuple):
    """Constants of a replica; see EngineProfile. ``capacity`` is in blocks."""

    iteration_s: float
    prefill_token_s: float
    sequence_s: float
    context_token_s: float
    max_batched_tokens: int
    max_sequences: int
    capacity: int
    block_tokens: int
    step: bool  # True: one iteration at a time instead of leaping


class Requests(NamedTuple):
    """The trace (first six, read only) and the progress of each request."""

    arrival: NDArray[np.float64]
    key: NDArray[np.int64]  # dense key number
    offsets: NDArray[np.int64]  # [n + 1] into ids and Cache.held
    ids: NDArray[np.int32]  # dense block number, -1 for a block that occurs once and can never be hit
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    made: NDArray[np.int64]  # tokens generated
    computed: NDArray[np.int64]  # tokens whose KV is there, of those to prefill
    target: NDArray[np.int64]  # tokens to prefill: the prompt, after a preemption also what was generated
    chunk: NDArray[np.int64]  # tokens prefilled in the present iteration; 0 = decoding
    extra: NDArray[np.int64]  # blocks held for generated tokens
    cached: NDArray[np.int64]  # prompt tokens found at the first admission, -1 before
    next_waiting: NDArray[np.int32]
    destination: NDArray[np.int32]
    first_token: NDArray[np.float64]
    finish: NDArray[np.float64]


class Cache(NamedTuple):
    """Paged prefix cache of every replica. A block is empty, free (reusable, in the LRU list) or pinned."""

    slot_of: NDArray[np.int32]  # [R, ids] slot + 1 of a block, 0 when it is not there
    content: NDArray[np.int32]  # [R, S] block in a slot, -1 for one that can never be hit
    refs: NDArray[np.int32]  # [R, S] running requests that hold the slot
    newer: NDArray[np.int32]  # [R, S + 1] LRU list; entry S is its head: newer[S] is the next to be evicted
    older: NDArray[np.int32]  # [R, S + 1]
    empty: NDArray[np.int32]  # [R, S] stack of slots given back
    empties: NDArray[np.int64]  # [R] height of that stack
    fresh: NDArray[np.int64]  # [R] slots below this were used at least once
    pinned: NDArray[np.int64]  # [R] blocks
    free: NDArray[np.int64]  # [R] blocks in the LRU list
    extra: NDArray[np.int64]  # [R] blocks of generated tokens
    peak: NDArray[np.int64]  # [R] most blocks in use (pinned + free + extra)
    held: NDArray[np.int32]  # [offsets[-1]] slot of each block of a running request


class Fleet(NamedTuple):
    """Batch, queue and clock of every replica."""

    running: NDArray[np.int32]  # [R, max_sequences] oldest first
    batch: NDArray[np.int64]  # [R] how many are running
    queue_head: NDArray[np.int32]
    queue_tail: NDArray[np.int32]
    queued: NDArray[np.int64]
    busy: NDArray[np.bool_]  # an iteration is under way
    now: NDArray[np.float64]  # start of it, or the last boundary
    end: NDArray[np.float64]
    steps: NDArray[np.int64]  # iterations until ``end``
    slope: NDArray[np.float64]  # [R, 2] of a leap: seconds of its first iteration, growth per iteration
    outstanding: NDArray[np.int64]
    measured_busy: NDArray[np.float64]  # seconds, after the warm-up
    queue_peak: NDArray[np.int64]  # after the warm-up
    preemptions: NDArray[np.int64]  # after the warm-up
    speed: NDArray[np.float64]  # how much faster than the profile each replica is


def allocate(
    arrival: NDArray[np.float64],
    key: NDArray[np.int64],
    offsets: NDArray[np.int64],
    ids: NDArray[np.int32],
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    *,
    replicas: int,
    recurring: int,
    slots: int,
    max_sequences: int,
    speed: NDArray[np.float64],
) -> tuple[Requests, Cache, Fleet]:
    """Lay out the state of a replay before its first event."""
    n = len(arrival)

    def whole() -> NDArray[np.int64]:
        return np.zeros(n, dtype=np.int64)

    requests = Requests(
        *(arrival, key, offsets, ids, prompt, output, whole(), whole(), prompt.copy(), whole(), whole()),
        cached=np.full(n, -1, dtype=np.int64),
        next_waiting=np.full(n, -1, dtype=np.int32),
        destination=np.full(n, -1, dtype=np.int32),
        first_token=np.full(n, np.nan),
        finish=np.full(n, np.nan),
    )
    # Zeros, not a fill: the system hands out untouched pages lazily, and most of a large table stays untouched.
    cache = Cache(
        slot_of=np.zeros((replicas, max(recurring, 1)), dtype=np.int32),
        content=np.zeros((replicas, slots), dtype=np.int32),
        refs=np.zeros((replicas, slots), dtype=np.int32),
        newer=np.zeros((replicas, slots + 1), dtype=np.int32),
        older=np.zeros((replicas, slots + 1), dtype=np.int32),
        empty=np.zeros((replicas, slots), dtype=np.int32),
        empties=np.zeros(replicas, dtype=np.int64),
        fresh=np.zeros(replicas, dtype=np.int64),
        pinned=np.zeros(replicas, dtype=np.int64),
        free=np.zeros(replicas, dtype=np.int64),
        extra=np.zeros(replicas, dtype=np.int64),
        peak=np.zeros(replicas, dtype=np.int64),
        held=np.zeros(int(offsets[-1]), dtype=np.int32),
    )
    cache.newer[:, slots] = cache.older[:, slots] = slots
    fleet = Fleet(
        running=np.zeros((replicas, min(max_sequences, max(n, 1))), dtype=np.int32),
        batch=np.zeros(replicas, dtype=np.int64),
        queue_head=np.full(replicas, -1, dtype=np.int32),
        queue_tail=np.full(replicas, -1, dtype=np.int32),
        queued=np.zeros(replicas, dtype=np.int64),
        busy=np.zeros(replicas, dtype=np.bool_),
        now=np.zeros(replicas),
        end=np.zeros(replicas),
        steps=np.zeros(replicas, dtype=np.int64),
        slope=np.zeros((replicas, 2)),
        outstanding=np.zeros(replicas, dtype=np.int64),
        measured_busy=np.zeros(replicas),
        queue_peak=np.zeros(replicas, dtype=np.int64),
        preemptions=np.zeros(replicas, dtype=np.int64),
        speed=speed,
    )
    return requests, cache, fleet
