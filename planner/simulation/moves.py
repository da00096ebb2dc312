"""Dispatch of requests to replicas, and moves of waiting requests to their other candidate (DualMap)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.routing.policies import DispatchTables, Signals, propose
from planner.simulation.cache import found_tokens
from planner.simulation.compiled import inline, inner
from planner.simulation.scheduler import enqueue, interrupt_leap, settle
from planner.simulation.slots import found_in_slots
from planner.simulation.state import Engine, Index, World

__all__ = ["both_overloaded", "found_now", "move_waiting", "send", "visit_others"]


@inline
def found_now(world: World, engine: Engine, r: Index, q: Index) -> Index:
    """Return the prompt tokens of request ``q`` that replica ``r`` has cached now.

    Parameters
    ----------
    world : World
        State of the replay.
    engine : Engine
        Constants of a replica.
    r : int
        Index of the replica.
    q : int
        Index of the request.

    Returns
    -------
    int
        Tokens.
    """
    return found_in_slots(world, engine, r, q) if engine.slots else found_tokens(world, engine, r, q)


@inline
def send(
    world: World, engine: Engine, tables: DispatchTables, r: Index, q: Index, time: float, from_s: float, tokens: Index
) -> None:
    """Put request ``q`` into the queue of ``r``, whose state is current at ``time``.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    engine : Engine
        Constants of a replica.
    tables : DispatchTables
        Arrays of the policy.
    r : int
        Index of the replica.
    q : int
        Index of the request.
    time : float
        Seconds on the clock of the replay.
    from_s : float
        End of the warm-up, seconds.
    tokens : int
        Tokens to prefill.
    """
    replica = world.replicas[r]
    if replica.busy == 0 and replica.batch == 0 and replica.queue_head < 0:
        replica.now = time
    world.destination[q] = r
    world.outstanding[r] += 1
    if tables.needs_cache:
        world.estimate[q] = tokens
        world.pending[r] += tokens
        replica.queued_tokens += tokens
    enqueue(world, r, q, time >= from_s)
    # Behind another request in the queue, or with a full batch, it cannot join: then the leap continues.
    if replica.steps > 1 and replica.queued == 1 and replica.batch < world.running.shape[1]:
        interrupt_leap(world, r, time)


@inline
def both_overloaded(world: World, tables: DispatchTables, signals: Signals) -> bool:
    """Return whether both candidates have more tokens to prefill than the budget of a policy that moves requests.

    Parameters
    ----------
    world : World
        State of the replay.
    tables : DispatchTables
        Arrays of the policy.
    signals : Signals
        The candidates.

    Returns
    -------
    bool
        False for a policy that moves no requests.
    """
    if tables.look_back == 0 or signals.counts[1] < 2:
        return False
    first, second = world.pending[signals.candidates[0]], world.pending[signals.candidates[1]]
    return first > tables.budget_tokens and second > tables.budget_tokens


@inline
def _other(
    world: World, tables: DispatchTables, signals: Signals, rng: NDArray[np.uint64], r: Index, q: Index
) -> Index:
    """Return the other of the two candidates of request ``q``, which waits at ``r``; ``r`` where there is none."""
    propose(tables, signals, world.key[q], rng)
    if signals.counts[1] < 2:
        return r
    return signals.candidates[1] if signals.candidates[0] == r else signals.candidates[0]


@inner
def visit_others(
    world: World,
    tables: DispatchTables,
    signals: Signals,
    rng: NDArray[np.uint64],
    pair: NDArray[np.int64],
    visit: NDArray[np.int64],
) -> Index:
    """List in ``visit`` the destinations that requests waiting at the ``pair`` could move to.

    Parameters
    ----------
    world : World
        State of the replay.
    tables : DispatchTables
        Arrays of the policy.
    signals : Signals
        State that the rule reads; the candidates change in place.
    rng : uint64[1]
        State of the random numbers; changes in place.
    pair : int64[2]
        The two overloaded candidates.
    visit : int64[]
        Receives the destinations; changes in place.

    Returns
    -------
    int
        Number of destinations in ``visit``.
    """
    count = 0
    for at in range(2):
        q = np.int64(world.replicas[pair[at]].queue_head)
        for _ in range(tables.look_back):
            if q < 0:
                break
            visit[count] = _other(world, tables, signals, rng, pair[at], q)
            count += 1
            q = np.int64(world.next_waiting[q])
    return count


@inner
def move_waiting(
    world: World,
    engine: Engine,
    tables: DispatchTables,
    signals: Signals,
    rng: NDArray[np.uint64],
    r: Index,
    time: float,
    from_s: float,
) -> None:
    """Move requests that wait at ``r`` to their other candidate, once each, where they get their first token sooner.

    The estimate of the time to first token is the prefill time of all pending tokens before the request and of its own.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    engine : Engine
        Constants of a replica.
    tables : DispatchTables
        Arrays of the policy.
    signals : Signals
        State that the rule reads; the candidates change in place.
    rng : uint64[1]
        State of the random numbers; changes in place.
    r : int
        Index of the replica.
    time : float
        Seconds on the clock of the replay.
    from_s : float
        End of the warm-up, seconds.
    """
    replica = world.replicas[r]
    ahead = world.pending[r] - replica.queued_tokens  # running requests come before the whole queue
    before = np.int64(-1)
    q = np.int64(replica.queue_head)
    for _ in range(tables.look_back):
        if q < 0:
            return
        following = np.int64(world.next_waiting[q])
        ahead += world.estimate[q]
        other = _other(world, tables, signals, rng, r, q)
        goes = False
        if other != r and signals.is_open[other] and world.moved[q] == 0 and world.made[q] == 0:
            settle(world, engine, other, time)
            found = found_now(world, engine, other, q)
            there = world.pending[other] + world.prompt[q] - found
            goes = there < ahead and time - world.arrival[q] + there * engine.prefill_token_s <= tables.within_s
            if goes:
                world.moved[q] = 1
                ahead -= world.estimate[q]
                world.pending[r] -= world.estimate[q]
                world.outstanding[r] -= 1
                replica.queued -= 1
                replica.queued_tokens -= world.estimate[q]
                if before < 0:
                    replica.queue_head = following
                else:
                    world.next_waiting[before] = following
                if following < 0:
                    replica.queue_tail = before
                send(world, engine, tables, other, q, time, from_s, world.prompt[q] - found)
        if not goes:
            before = q
        q = following
