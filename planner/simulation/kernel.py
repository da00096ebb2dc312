"""The event loop: arrivals in order; a replica is advanced when a rule reads its state."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.digests import source_number
from planner.routing.policies import DispatchTables, Signals, choose, propose
from planner.routing.policies.base import CANDIDATES, EVERYTHING
from planner.simulation.cache import drop_cache, eviction_tokens
from planner.simulation.compiled import inline, inner, outer
from planner.simulation.faults import CLOSE, DIE, OPEN, PLAN, REVIVE, SPEED, Timeline
from planner.simulation.moves import both_overloaded, found_now, move_waiting, send, visit_others
from planner.simulation.scheduler import advance, interrupt_leap, settle
from planner.simulation.state import FOREVER, Engine, Index, World, blocks_for, full_blocks

__all__ = ["Progress", "run"]

# The next act of the loop.
DISPATCH, MOVE, HAPPEN, END = range(4)


class Progress(NamedTuple):
    """Progress of a replay."""

    next_event: NDArray[np.int64]  # [1]
    dispatched: NDArray[np.int64]  # [1] requests; one that is sent again counts again
    redispatched: NDArray[np.int64]  # [1]
    refused: NDArray[np.int64]  # [1] requests larger than the cache of a replica
    oldest: NDArray[np.int64]  # [1] first request of the policy's window
    parked: NDArray[np.int64]  # [2] head and tail of the requests that wait for any destination to be up, or -1
    visit: NDArray[np.int64]  # destinations to advance before the next act
    pair: NDArray[np.int64]  # [2] destinations whose waiting requests may move

    @classmethod
    def at_the_start(cls, destinations: int, look_back: int) -> Progress:
        """Return the progress before the first event."""
        one = [np.zeros(1, dtype=np.int64) for _ in range(5)]
        visit = np.zeros(max(destinations, 2 * look_back), dtype=np.int64)
        return cls(one[0], one[1], one[2], one[3], one[4], np.full(2, -1, dtype=np.int64), visit, one[0].repeat(2))


@inner
def _known(world: World, engine: Engine, r: Index, q: Index) -> Index:
    """Return the tokens of ``q`` that requests of the window, sent to ``r``, share with it."""
    blocks: Index = 0
    for at in range(world.offsets[q], world.offsets[q + 1]):
        chain = world.chains[at]
        if chain < 0 or world.uses[chain, r] == 0:
            break
        blocks += world.length[chain]
    return min(blocks, full_blocks(engine, world.prompt[q] - 1)) * engine.block_tokens


@inner
def _count_use(world: World, signals: Signals, r: Index, q: Index, one: Index) -> None:
    """Add a request to the window of its destination (+1), or remove it (-1)."""
    signals.missed[r] += one * world.missed[q]
    signals.served[r] += one
    for at in range(world.offsets[q], world.offsets[q + 1]):
        if world.chains[at] >= 0:
            world.uses[world.chains[at], r] += one


@inner
def _see_everything(
    world: World, engine: Engine, tables: DispatchTables, signals: Signals, q: Index, time: float
) -> None:
    """Update the signals for rules that read the caches of all destinations."""
    for at in range(signals.counts[0]):
        r = signals.open[at]
        settle(world, engine, r, time)
        signals.matched[r] = found_now(world, engine, r, q)
        if tables.window_s > 0:
            signals.known[r] = _known(world, engine, r, q)
            signals.evicted[r] = 0.0 if engine.slots else eviction_tokens(world, engine, r, q, signals.matched[r])


@inline
def _park(world: World, progress: Progress, q: Index) -> None:
    """Park request ``q`` until any destination is up."""
    world.next_waiting[q] = -1
    if progress.parked[0] < 0:
        progress.parked[0] = q
    else:
        world.next_waiting[progress.parked[1]] = q
    progress.parked[1] = q


@inline
def _visit(
    world: World,
    tables: DispatchTables,
    signals: Signals,
    progress: Progress,
    rng: NDArray[np.uint64],
    q: Index,
    time: float,
) -> Index:
    """List the destinations to advance before request ``q`` is sent; return their number."""
    signals.request[0] = progress.dispatched[0]
    signals.request[1] = world.prompt[q]
    progress.dispatched[0] += 1
    if tables.looks == CANDIDATES:
        propose(tables, signals, world.key[q], rng)
        for at in range(signals.counts[1]):
            progress.visit[at] = signals.candidates[at]
        return signals.counts[1]
    if tables.looks == EVERYTHING:
        count = 0
        for other in range(len(world.replicas)):
            if world.replicas[other].busy == 0 or world.replicas[other].end <= time:
                progress.visit[count] = other
                count += 1
        return count
    progress.visit[0] = choose(tables, signals, world.key[q], rng)
    return np.int64(1)


@inline
def _choose(
    world: World,
    engine: Engine,
    tables: DispatchTables,
    signals: Signals,
    progress: Progress,
    rng: NDArray[np.uint64],
    q: Index,
    time: float,
) -> Index:
    """Return the destination of request ``q``; the state that the rule reads is current."""
    if tables.looks < CANDIDATES:
        return progress.visit[0]
    if tables.needs_cache:
        if tables.looks == EVERYTHING:
            _see_everything(world, engine, tables, signals, q, time)
        else:
            for at in range(signals.counts[1]):
                other = signals.candidates[at]
                settle(world, engine, other, time)
                signals.matched[other] = found_now(world, engine, other, q)
    r = choose(tables, signals, world.key[q], rng)
    if tables.window_s > 0 and q >= progress.oldest[0]:
        world.missed[q] = world.prompt[q] - signals.matched[r]
        _count_use(world, signals, r, q, 1)
    return r


@inner
def _list_open(world: World, signals: Signals) -> None:
    signals.counts[0] = 0
    for r in range(len(world.replicas)):
        if signals.is_open[r]:
            signals.open[signals.counts[0]] = r
            signals.counts[0] += 1


@inner
def _lose(world: World, tables: DispatchTables, signals: Signals, r: Index, time: float, from_s: float) -> Index:
    """Clear a replica that dies; return the first of its requests, linked in their order."""
    replica = world.replicas[r]
    if replica.busy:
        replica.measured_busy += max(0.0, time - max(replica.now, from_s))
    head = replica.queue_head
    for at in range(replica.batch - 1, -1, -1):
        world.next_waiting[world.running[r, at].request] = head
        head = world.running[r, at].request
    q = np.int64(head)
    while q >= 0:  # they start again on another destination
        world.made[q] = 0
        world.estimate[q] = 0
        world.cached[q] = -1
        world.ttft[q] = np.nan
        if tables.window_s > 0 and world.missed[q] >= 0:
            _count_use(world, signals, r, q, -1)
            world.missed[q] = -1
        q = np.int64(world.next_waiting[q])
    drop_cache(world, r)
    replica.busy = 0
    replica.steps = 0
    replica.batch = 0
    replica.filling = 0
    replica.context = 0
    replica.next_end = FOREVER
    replica.next_block = FOREVER
    replica.queue_head = -1
    replica.queue_tail = -1
    replica.queued = 0
    replica.queued_tokens = 0
    replica.same = 0
    replica.now = time
    world.outstanding[r] = 0
    world.pending[r] = 0
    return head


@inner
def _happen(
    world: World,
    tables: DispatchTables,
    signals: Signals,
    events: Timeline,
    progress: Progress,
    from_s: float,
) -> Index:
    """Apply the next event of the timeline; its destination is advanced to the time of the event.

    Returns
    -------
    int
        The first of the requests to send (again), linked, or -1.
    """
    at = progress.next_event[0]
    progress.next_event[0] += 1
    time, kind, subject = events.time[at], events.kind[at], events.subject[at]
    if kind == PLAN:
        tables.live[0] = subject
        return np.int64(-1)
    replica = world.replicas[subject]
    if kind == SPEED:
        replica.speed *= events.value[at]
        replica.same = 0
        interrupt_leap(world, subject, time)
        return np.int64(-1)
    head = np.int64(-1)
    if kind == DIE:
        replica.up -= 1
        head = _lose(world, tables, signals, subject, time, from_s)
        q = head
        while q >= 0:
            progress.redispatched[0] += 1
            q = np.int64(world.next_waiting[q])
    elif kind == CLOSE:
        replica.drained += 1
    elif kind == OPEN:
        replica.drained -= 1
    elif kind == REVIVE:
        replica.up += 1
        replica.now = time
    signals.is_open[subject] = 1 if replica.up > 0 and replica.drained == 0 else 0
    _list_open(world, signals)
    if signals.counts[0] > 0 and progress.parked[0] >= 0:  # then no destination was open before, so none can have died
        head = progress.parked[0]
        progress.parked[0] = -1
    return head


@inline
def _fits(world: World, engine: Engine, q: Index) -> Index:
    if engine.slots:
        return world.prompt[q] + world.output[q] <= engine.slot_tokens
    return blocks_for(engine, world.prompt[q] + world.output[q] - 1) <= engine.capacity


@inner
def _expire(world: World, tables: DispatchTables, signals: Signals, progress: Progress, time: float) -> None:
    """Remove the requests from the window of the policy that arrived before it."""
    old = progress.oldest[0]
    while world.arrival[old] < time - tables.window_s:
        if world.missed[old] >= 0:
            _count_use(world, signals, np.int64(world.destination[old]), old, -1)
            world.missed[old] = -1
        old += 1
    progress.oldest[0] = old


@inner
def _run(
    world: World,
    engine: Engine,
    tables: DispatchTables,
    signals: Signals,
    events: Timeline,
    progress: Progress,
    rng: NDArray[np.uint64],
    from_s: float,
    first: int,
    last: int,
    until: float,
) -> None:
    """Dispatch the requests ``first`` to ``last`` with the events before them; without requests, advance to ``until``.

    Replicas affect each other only through dispatch. So each is advanced alone, when a rule reads its state or a
    request is sent to it. Order at one instant: ends of iterations, events of the timeline, arrivals in trace order,
    starts of iterations.
    """
    to_the_end = first == len(world.arrival)
    arriving = first
    again = np.int64(-1)  # requests to send again after a death, or parked ones: linked
    time = again_at = 0.0
    q: Index = 0
    act = DISPATCH
    while True:
        # Find the next act, and the destinations to advance to its time.
        if act == MOVE:
            count = visit_others(world, tables, signals, rng, progress.pair, progress.visit)
        else:
            if again >= 0:
                act, time, q = DISPATCH, again_at, again
                again = np.int64(world.next_waiting[q])
            else:
                act, time = END, until
                if arriving < last:
                    act, time = DISPATCH, world.arrival[arriving]
                event = progress.next_event[0]
                if event < len(events.time) and (arriving < last or to_the_end) and events.time[event] <= time:
                    act, time = HAPPEN, events.time[event]
                elif act == DISPATCH:
                    q = arriving
                    arriving += 1
                    if not _fits(world, engine, q):
                        progress.refused[0] += 1
                        continue
                    if tables.window_s > 0:
                        _expire(world, tables, signals, progress, time)
            if act == DISPATCH:
                if signals.counts[0] == 0:
                    _park(world, progress, q)
                    continue
                count = _visit(world, tables, signals, progress, rng, q, time)
            elif act == HAPPEN:
                progress.visit[0] = events.subject[progress.next_event[0]]
                count = np.int64(0 if events.kind[progress.next_event[0]] == PLAN else 1)
            elif to_the_end:
                count = np.int64(len(world.replicas))
                for r in range(count):
                    progress.visit[r] = r
            else:
                break

        for at in range(count):
            advance(world, engine, progress.visit[at], time, from_s)

        if act == END:
            break
        if act == HAPPEN:
            again, again_at = _happen(world, tables, signals, events, progress, from_s), time
        elif act == MOVE:
            for at in range(2):
                move_waiting(world, engine, tables, signals, rng, progress.pair[at], time, from_s)
            act = DISPATCH
        else:
            r = _choose(world, engine, tables, signals, progress, rng, q, time)
            if both_overloaded(world, tables, signals):
                act = MOVE
                progress.pair[0], progress.pair[1] = signals.candidates[0], signals.candidates[1]
            send(world, engine, tables, r, q, time, from_s, world.prompt[q] - signals.matched[r])


def _kept(version: int) -> Any:
    """Return the loop with its compiled cache tied to the version of the source.

    The compiler renews its cache when kernel.py changes, but not when a file changes whose functions the loop calls.
    It does compare the constants of a closure, so the version is one.
    """

    @outer
    def run(
        world: World,
        engine: Engine,
        tables: DispatchTables,
        signals: Signals,
        events: Timeline,
        progress: Progress,
        rng: NDArray[np.uint64],
        from_s: float,
        first: int,
        last: int,
        until: float,
    ) -> None:
        if version >= 0:
            _run(world, engine, tables, signals, events, progress, rng, from_s, first, last, until)

    return run


run = _kept(source_number())
