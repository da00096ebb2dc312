"""One replica's continuous batching: start an iteration, finish it, leap over decode-only stretches.

At every iteration: running sequences get one decode token each, a prompt under way gets the next chunk, then
waiting requests join in order while the prefill budget, the batch size and the blocks allow. When a decoding
sequence needs a block and none is left, the youngest running sequence is preempted, goes to the head of the
queue and is recomputed (the rules of vLLM V1).
"""

from __future__ import annotations

import numpy as np

from planner.simulation.cache import admit_blocks, available, make_room, release_blocks
from planner.simulation.compiled import inline, inner
from planner.simulation.state import Cache, Engine, Fleet, Index, Requests

__all__ = ["advance", "enqueue", "interrupt_leap"]


@inline
def enqueue(requests: Requests, fleet: Fleet, r: Index, q: Index, measured: bool) -> None:
    """Put request ``q`` at the tail of replica ``r``'s queue."""
    if fleet.queue_head[r] < 0:
        fleet.queue_head[r] = q
    else:
        requests.next_waiting[fleet.queue_tail[r]] = q
    fleet.queue_tail[r] = q
    requests.next_waiting[q] = -1
    fleet.queued[r] += 1
    if measured and fleet.queued[r] > fleet.queue_peak[r]:
        fleet.queue_peak[r] = fleet.queued[r]


@inner
def _preempt_youngest(requests: Requests, cache: Cache, fleet: Fleet, engine: Engine, r: Index, measured: bool) -> None:
    fleet.batch[r] -= 1
    q = fleet.running[r, fleet.batch[r]]
    release_blocks(requests, cache, engine, r, q, True)
    requests.computed[q] = 0
    requests.chunk[q] = 0
    requests.target[q] = requests.prompt[q] + requests.made[q]
    requests.next_waiting[q] = fleet.queue_head[r]
    if fleet.queue_head[r] < 0:
        fleet.queue_tail[r] = q
    fleet.queue_head[r] = q
    fleet.queued[r] += 1
    if measured:
        fleet.preemptions[r] += 1
        fleet.queue_peak[r] = max(fleet.queue_peak[r], fleet.queued[r])


@inline
def _missing(requests: Requests, engine: Engine, q: Index, steps: Index) -> Index:
    """Blocks that ``q`` lacks to decode ``steps`` more tokens; the last token's own KV is never needed."""
    tokens = requests.prompt[q] + requests.made[q] + steps - 1
    held = requests.offsets[q + 1] - requests.offsets[q] + requests.extra[q]
    if tokens <= held * engine.block_tokens:
        return 0  # nearly always: worth sparing the division
    return -(-tokens // engine.block_tokens) - held


@inline
def _room_for_decodes(requests: Requests, cache: Cache, fleet: Fleet, engine: Engine, r: Index, measured: bool) -> bool:
    """Give each decoding sequence the block of its next token, oldest first; True when one was preempted."""
    preempted = False
    at = 0
    while at < fleet.batch[r]:
        q = fleet.running[r, at]
        if requests.computed[q] == requests.target[q]:
            missing = _missing(requests, engine, q, 1)
            while at < fleet.batch[r] and missing > available(cache, engine, r):
                _preempt_youngest(requests, cache, fleet, engine, r, measured)
                preempted = True
            if at < fleet.batch[r]:
                cache.extra[r] += missing
                requests.extra[q] += missing
                make_room(cache, engine, r)
        at += 1
    return preempted


@inline
def _leap_length(requests: Requests, cache: Cache, fleet: Fleet, engine: Engine, r: Index, most: Index) -> Index:
    """Iterations up to ``most`` for which the blocks suffice; at least 1, whose blocks are already held."""
    room = available(cache, engine, r)
    low: Index = 1
    high = most
    steps = most
    while low < high:
        need = 0
        for at in range(fleet.batch[r]):
            need += _missing(requests, engine, fleet.running[r, at], steps)
        if need <= room:
            low = steps
        else:
            high = steps - 1
        steps = (low + high + 1) // 2
    return low


@inline
def _span(fleet: Fleet, r: Index, steps: Index) -> float:
    """Seconds of ``steps`` iterations: the context grows by the batch at each, so the sum is arithmetic."""
    return steps * fleet.slope[r, 0] + fleet.slope[r, 1] * (0.5 * steps * (steps - 1))


@inline
def _start(requests: Requests, cache: Cache, fleet: Fleet, engine: Engine, r: Index, measured: bool) -> None:
    """Schedule the iteration (or leap) that begins at ``now[r]``."""
    preempted = _room_for_decodes(requests, cache, fleet, engine, r, measured)
    budget = engine.max_batched_tokens
    decodes = 0
    context = 0
    most = np.int64(1 << 62)
    for at in range(fleet.batch[r]):
        q = fleet.running[r, at]
        left = requests.target[q] - requests.computed[q]
        if left > 0:
            requests.chunk[q] = min(left, budget)
            budget -= requests.chunk[q]
        else:
            requests.chunk[q] = 0
            decodes += 1
            context += requests.prompt[q] + requests.made[q]
            most = min(most, requests.output[q] - requests.made[q])
    while not preempted and budget > 0 and fleet.queue_head[r] >= 0 and fleet.batch[r] < engine.max_sequences:
        q = fleet.queue_head[r]
        found = admit_blocks(requests, cache, engine, r, q)
        if found < 0:
            break
        if requests.cached[q] < 0:
            requests.cached[q] = found
        fleet.queue_head[r] = requests.next_waiting[q]
        fleet.queued[r] -= 1
        fleet.running[r, fleet.batch[r]] = q
        fleet.batch[r] += 1
        requests.computed[q] = min(found, requests.target[q] - 1)  # the last token is computed to get the next
        requests.chunk[q] = min(requests.target[q] - requests.computed[q], budget)
        budget -= requests.chunk[q]

    prefill = engine.max_batched_tokens - budget
    fleet.slope[r, 0] = (
        engine.iteration_s
        + prefill * engine.prefill_token_s
        + decodes * engine.sequence_s
        + context * engine.context_token_s
    ) / fleet.speed[r]
    fleet.slope[r, 1] = decodes * engine.context_token_s / fleet.speed[r]
    fleet.steps[r] = 1
    if prefill == 0 and not engine.step:
        fleet.steps[r] = _leap_length(requests, cache, fleet, engine, r, most)
    fleet.end[r] = fleet.now[r] + _span(fleet, r, fleet.steps[r])
    fleet.busy[r] = True


@inline
def _complete(requests: Requests, cache: Cache, fleet: Fleet, engine: Engine, r: Index, measure_from: float) -> None:
    """Apply the iteration (or leap) that ends at ``end[r]``."""
    end = fleet.end[r]
    fleet.measured_busy[r] += max(0.0, end - max(fleet.now[r], measure_from))
    steps = fleet.steps[r]
    if steps > 1:
        for at in range(fleet.batch[r]):
            q = fleet.running[r, at]
            missing = _missing(requests, engine, q, steps)
            cache.extra[r] += missing
            requests.extra[q] += missing
        make_room(cache, engine, r)
    kept = 0
    for at in range(fleet.batch[r]):
        q = fleet.running[r, at]
        if requests.chunk[q] > 0:
            requests.computed[q] += requests.chunk[q]
            if requests.computed[q] == requests.target[q]:
                requests.made[q] += 1
                if requests.made[q] == 1:
                    requests.first_token[q] = end
        else:
            requests.made[q] += steps
        if requests.made[q] == requests.output[q]:
            requests.finish[q] = end
            fleet.outstanding[r] -= 1
            release_blocks(requests, cache, engine, r, q, False)
        else:
            fleet.running[r, kept] = q
            kept += 1
    fleet.batch[r] = kept
    fleet.now[r] = end
    fleet.busy[r] = False


@inline
def interrupt_leap(fleet: Fleet, engine: Engine, r: Index, time: float) -> None:
    """Shorten a leap to the first boundary at or after ``time``, where a new arrival can join."""
    if fleet.steps[r] == 1 or fleet.queued[r] > 1 or fleet.batch[r] >= engine.max_sequences:
        return  # not a leap; or one stands before it in the queue, or the batch is full: it cannot join yet
    low, high = 1, fleet.steps[r]
    while low < high:
        middle = (low + high) // 2
        if fleet.now[r] + _span(fleet, r, middle) >= time:
            high = middle
        else:
            low = middle + 1
    if low < fleet.steps[r]:
        fleet.steps[r] = low
        fleet.end[r] = fleet.now[r] + _span(fleet, r, low)


@inline
def advance(
    requests: Requests,
    cache: Cache,
    fleet: Fleet,
    engine: Engine,
    r: Index,
    time: float,
    measure_from: float,
) -> None:
    """Play replica ``r`` up to ``time``: iterations that end by then, and starts strictly before it.

    An arrival at the very instant of a boundary so sees what finished there, and joins what starts there.
    """
    while True:
        if fleet.busy[r]:
            if fleet.end[r] > time:
                return
            _complete(requests, cache, fleet, engine, r, measure_from)
        if fleet.now[r] >= time or (fleet.batch[r] == 0 and fleet.queue_head[r] < 0):
            return
        _start(requests, cache, fleet, engine, r, fleet.now[r] >= measure_from)
