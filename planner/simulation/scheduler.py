"""Continuous batching of one replica: start an iteration, finish it, leap over decode-only stretches.

In each iteration, running sequences get one decode token each, prompts in progress get the next chunk, then waiting
requests join in order while the prefill budget, the batch size and the blocks allow it. When a decoding sequence needs
a block and none is left, the youngest running sequence is preempted: it goes to the head of the queue and is recomputed
(the rules of vLLM V1).

The loop does not visit decoding sequences in each iteration. Each holds the values of the iteration clock of the
replica at which it is complete and at which it needs another block; the replica holds the minimum of both.
"""

from __future__ import annotations

import numpy as np

from planner.simulation.cache import admit_blocks, available, make_room, release_blocks
from planner.simulation.compiled import inline, inner
from planner.simulation.slots import release_slot, take_slot
from planner.simulation.state import FOREVER, Engine, Index, World, blocks_for

__all__ = ["advance", "enqueue", "interrupt_leap", "settle"]


@inline
def enqueue(world: World, r: Index, q: Index, measured: bool) -> None:
    """Put request ``q`` at the tail of the queue of replica ``r``.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    r : int
        Index of the replica.
    q : int
        Index of the request.
    measured : bool
        Whether the warm-up is over.
    """
    replica = world.replicas[r]
    if replica.queue_head < 0:
        replica.queue_head = q
    else:
        world.next_waiting[replica.queue_tail] = q
    replica.queue_tail = q
    world.next_waiting[q] = -1
    replica.queued += 1
    if measured and replica.queued > replica.queue_peak:
        replica.queue_peak = replica.queued


@inline
def _leave(world: World, engine: Engine, r: Index, sequence: Index, computed: Index) -> None:
    """Release the blocks or the slot of a sequence; ``computed`` of its prompt tokens are present."""
    if engine.slots:
        release_slot(world, r, sequence.slot)
    else:
        release_blocks(world, engine, r, sequence.request, sequence.private, computed)


@inner
def _preempt_youngest(world: World, engine: Engine, r: Index, measured: bool) -> None:
    replica = world.replicas[r]
    replica.batch -= 1
    sequence = world.running[r, replica.batch]
    q = sequence.request
    left = sequence.target - sequence.computed
    if left > 0:
        replica.filling -= 1
        world.made[q] = sequence.made
    else:
        replica.context -= world.prompt[q] + world.output[q] - sequence.end
        world.made[q] = world.output[q] - (sequence.end - replica.clock)
    _leave(world, engine, r, sequence, min(sequence.computed, world.prompt[q]))
    world.estimate[q] = world.prompt[q] + world.made[q]
    world.pending[r] += world.estimate[q] - left
    replica.queued_tokens += world.estimate[q]
    replica.same = 0
    world.next_waiting[q] = replica.queue_head
    if replica.queue_head < 0:
        replica.queue_tail = q
    replica.queue_head = q
    replica.queued += 1
    if measured:
        replica.preemptions += 1
        replica.queue_peak = max(replica.queue_peak, replica.queued)


@inner
def _room_for_decodes(world: World, engine: Engine, r: Index, measured: bool) -> bool:
    """Give each decoding sequence the block of its next token, oldest first; return whether one was preempted."""
    replica = world.replicas[r]
    preempted = False
    at = 0
    while at < replica.batch:
        sequence = world.running[r, at]
        if sequence.computed == sequence.target and sequence.next_block <= replica.clock:
            while at < replica.batch and available(world, engine, r) < 1:
                _preempt_youngest(world, engine, r, measured)
                preempted = True
            if at < replica.batch:
                replica.private += 1
                sequence.private += 1
                sequence.next_block += engine.block_tokens
                make_room(world, engine, r)
        at += 1
    replica.next_block = FOREVER
    replica.next_end = FOREVER
    for at in range(replica.batch):
        sequence = world.running[r, at]
        if sequence.computed == sequence.target:
            replica.next_block = min(replica.next_block, sequence.next_block)
            replica.next_end = min(replica.next_end, sequence.end)
    return preempted


@inline
def _needed(world: World, engine: Engine, r: Index, steps: Index) -> Index:
    """Return the blocks that the decoding sequences take within ``steps`` iterations."""
    replica = world.replicas[r]
    needed = 0
    if replica.clock + steps > replica.next_block:
        for at in range(replica.batch):
            late = replica.clock + steps - world.running[r, at].next_block
            if late > 0:
                needed += blocks_for(engine, late)
    return needed


@inline
def _leap_length(world: World, engine: Engine, r: Index) -> Index:
    """Return the iterations until a sequence is complete, as far as the blocks suffice; at least 1."""
    room = available(world, engine, r)
    low: Index = 1
    high = world.replicas[r].next_end - world.replicas[r].clock
    steps = high
    while low < high:
        if _needed(world, engine, r, steps) <= room:
            low = steps
        else:
            high = steps - 1
        steps = (low + high + 1) // 2
    return low


@inline
def _span(replica: Index, steps: Index) -> float:
    """Return the seconds of ``steps`` iterations from the origin: a series, for the context grows in each."""
    return steps * replica.first_s + replica.growth_s * (0.5 * steps * (steps - 1))


@inline
def _admit(world: World, engine: Engine, r: Index, budget: Index) -> Index:
    """Add waiting requests to the batch while the limits allow it; return the remaining prefill budget."""
    replica = world.replicas[r]
    while budget > 0 and replica.queue_head >= 0 and replica.batch < world.running.shape[1]:
        q = replica.queue_head
        target = world.prompt[q] + world.made[q]
        private = 0
        slot = 0
        if engine.slots:
            found, slot = take_slot(world, engine, r, q)
        else:
            found, private = admit_blocks(world, engine, r, q, target)
        if found < 0:
            break
        if world.cached[q] < 0:
            world.cached[q] = found
        replica.queue_head = world.next_waiting[q]
        replica.queued -= 1
        sequence = world.running[r, replica.batch]
        replica.batch += 1
        replica.filling += 1
        sequence.request = q
        sequence.computed = found
        sequence.target = target
        sequence.made = world.made[q]
        sequence.private = private
        sequence.slot = slot
        sequence.chunk = min(target - found, budget)
        budget -= sequence.chunk
        world.pending[r] += target - found - world.estimate[q]
        replica.queued_tokens -= world.estimate[q]
    return budget


@inline
def _start(world: World, engine: Engine, r: Index, measured: bool) -> None:
    """Schedule the iteration (or leap) that begins at ``now``."""
    replica = world.replicas[r]
    preempted = False
    if replica.next_block <= replica.clock:
        preempted = _room_for_decodes(world, engine, r, measured)
    budget = engine.max_batched_tokens
    decodes = replica.batch - replica.filling
    if replica.filling > 0:
        for at in range(replica.batch):
            sequence = world.running[r, at]
            if sequence.target > sequence.computed:
                sequence.chunk = min(sequence.target - sequence.computed, budget)
                budget -= sequence.chunk
    if not preempted:
        budget = _admit(world, engine, r, budget)
    prefill = engine.max_batched_tokens - budget
    if prefill > 0 or replica.same == 0:
        # Boundaries of a stretch are computed from its origin: the floating-point numbers are then the same for a
        # leap, for single steps and for an interrupted leap.
        context = replica.context + decodes * replica.clock
        replica.origin = replica.now
        replica.done = 0
        replica.first_s = (
            engine.iteration_s
            + prefill * engine.prefill_token_s
            + decodes * engine.sequence_s
            + context * engine.context_token_s
        ) / replica.speed
        replica.growth_s = decodes * engine.context_token_s / replica.speed
    replica.same = 1 if prefill == 0 else 0
    replica.steps = 1
    if prefill == 0 and not engine.step:
        replica.steps = _leap_length(world, engine, r)
    replica.end = replica.origin + _span(replica, replica.done + replica.steps)
    replica.busy = 1


@inner
def _grow(world: World, engine: Engine, r: Index, clock: Index) -> None:
    """Take the blocks that the decoding sequences need up to ``clock``."""
    replica = world.replicas[r]
    replica.next_block = FOREVER
    for at in range(replica.batch):
        sequence = world.running[r, at]
        if sequence.computed < sequence.target:
            continue
        if sequence.next_block < clock:
            taken = blocks_for(engine, clock - sequence.next_block)
            sequence.next_block += taken * engine.block_tokens
            sequence.private += taken
            replica.private += taken
        replica.next_block = min(replica.next_block, sequence.next_block)
    make_room(world, engine, r)


@inline
def _complete(world: World, engine: Engine, r: Index, measure_from: float) -> None:
    """Apply the iteration (or leap) that ends at ``end``."""
    replica = world.replicas[r]
    end = replica.end
    replica.measured_busy += max(0.0, end - max(replica.now, measure_from))
    replica.iterations += 1
    replica.clock += replica.steps
    replica.done += replica.steps
    replica.now = end
    replica.busy = 0
    clock = replica.clock
    if replica.filling == 0 and clock < replica.next_end and clock <= replica.next_block:
        return
    if clock > replica.next_block:
        _grow(world, engine, r, clock)  # before any release: these blocks were taken during the leap
    kept = 0
    replica.next_end = FOREVER
    replica.next_block = FOREVER
    for at in range(replica.batch):
        sequence = world.running[r, at]
        q = sequence.request
        done = False
        if sequence.target > sequence.computed:
            sequence.computed += sequence.chunk
            world.pending[r] -= sequence.chunk
            if sequence.computed == sequence.target:
                replica.filling -= 1
                sequence.made += 1
                if sequence.made == 1:
                    world.ttft[q] = end - world.arrival[q]
                sequence.end = clock + world.output[q] - sequence.made
                held = blocks_for(engine, sequence.target) * engine.block_tokens
                sequence.next_block = FOREVER if engine.slots else clock + held - sequence.target
                replica.context += world.prompt[q] + world.output[q] - sequence.end
                done = sequence.made == world.output[q]
        else:
            done = sequence.end == clock
        if done:
            world.latency[q] = end - world.arrival[q]
            world.outstanding[r] -= 1
            replica.context -= world.prompt[q] + world.output[q] - sequence.end
            _leave(world, engine, r, sequence, world.prompt[q])
            continue
        if sequence.computed == sequence.target:
            replica.next_end = min(replica.next_end, sequence.end)
            replica.next_block = min(replica.next_block, sequence.next_block)
        if kept < at:
            world.running[r, kept] = sequence
        kept += 1
    if kept < replica.batch:
        replica.same = 0
    replica.batch = kept


@inline
def _steps_to(replica: Index, time: float) -> Index:
    """Return the iterations of the current leap that start before ``time``: up to the first boundary at or after it."""
    first, growth = replica.first_s, replica.growth_s
    ahead = time - replica.origin
    # steps * first + growth / 2 * steps (steps - 1) = ahead, solved for the steps; the loops below correct rounding.
    linear = first - 0.5 * growth
    root = ahead / first if growth <= 0.0 else (np.sqrt(linear * linear + 2.0 * growth * ahead) - linear) / growth
    done = replica.done
    steps = min(max(np.int64(1), np.int64(root) - done), replica.steps)
    while steps > 1 and replica.origin + _span(replica, done + steps - 1) >= time:
        steps -= 1
    while steps < replica.steps and replica.origin + _span(replica, done + steps) < time:
        steps += 1
    return steps


@inline
def settle(world: World, engine: Engine, r: Index, time: float) -> None:
    """Take the blocks that a leap in progress has used by ``time``, before another function reads the cache.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    engine : Engine
        Constants of a replica.
    r : int
        Index of the replica.
    time : float
        Seconds on the clock of the replay.
    """
    replica = world.replicas[r]
    if replica.busy and replica.steps > 1 and replica.clock + replica.steps > replica.next_block:
        clock = replica.clock + _steps_to(replica, time)
        if clock > replica.next_block:
            _grow(world, engine, r, clock)


@inline
def interrupt_leap(world: World, r: Index, time: float) -> None:
    """Shorten a leap to the first boundary at or after ``time``, where the batch may change.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    r : int
        Index of the replica.
    time : float
        Seconds on the clock of the replay.
    """
    replica = world.replicas[r]
    if replica.busy == 0 or replica.steps == 1:
        return
    steps = _steps_to(replica, time)
    if steps < replica.steps:
        replica.steps = steps
        replica.end = replica.origin + _span(replica, replica.done + steps)


@inline
def advance(world: World, engine: Engine, r: Index, time: float, measure_from: float) -> None:
    """Advance replica ``r`` to ``time``: iterations that end by then, and starts strictly before it.

    So an arrival at the very time of a boundary sees the finished work of that boundary, and joins the start there.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    engine : Engine
        Constants of a replica.
    r : int
        Index of the replica.
    time : float
        Seconds on the clock of the replay.
    measure_from : float
        End of the warm-up, seconds.
    """
    replica = world.replicas[r]
    while True:
        if replica.busy:
            if replica.end > time:
                return
            _complete(world, engine, r, measure_from)
        if replica.now >= time or (replica.batch == 0 and replica.queue_head < 0):
            return
        _start(world, engine, r, replica.now >= measure_from)
