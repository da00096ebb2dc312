"""The cache of a llama.cpp server: each slot keeps the tokens of its last sequence.

A request goes to the idle slot that shares the longest leading part of its prompt, when that is more than a share of
the prompt (``slot_similarity``, llama.cpp's ``--slot-prompt-similarity``, default 0.1); else to the least recently used
idle slot. The shared part is kept, the rest of the slot is overwritten. At least the last prompt token is computed. A
server that also keeps idle prompts in host memory (``--cache-ram``) needs another model.
"""

from __future__ import annotations

from planner.simulation.compiled import inline, inner
from planner.simulation.state import Engine, Index, World

__all__ = ["found_in_slots", "release_slot", "take_slot"]


@inline
def _common(world: World, engine: Engine, q: Index, other: Index) -> Index:
    """Return the leading tokens that the prompts of two requests share."""
    if other < 0:
        return 0
    blocks: Index = 0
    at, last = world.offsets[q], world.offsets[q + 1]
    there, end = world.offsets[other], world.offsets[other + 1]
    while at < last and there < end and world.chains[at] == world.chains[there] and world.chains[at] >= 0:
        blocks += world.length[world.chains[at]]
        at += 1
        there += 1
    return min(blocks * engine.block_tokens, world.prompt[q] - 1)


@inner
def found_in_slots(world: World, engine: Engine, r: Index, q: Index) -> Index:
    """Return the largest number of leading tokens of ``q`` that any slot of ``r`` holds.

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
    best = 0
    for at in range(world.slot.shape[1]):
        best = max(best, _common(world, engine, q, world.slot[r, at].request))
    return best


@inner
def take_slot(world: World, engine: Engine, r: Index, q: Index) -> tuple[Index, Index]:
    """Put ``q`` into a slot.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    engine : Engine
        Constants of a replica.
    r : int
        Index of the replica.
    q : int
        Index of the request.

    Returns
    -------
    found : int
        Tokens found in the slot, or -1 when no slot is idle.
    slot : int
        Index of the slot, or -1.
    """
    oldest = -1
    similar = -1
    most = 0
    for at in range(world.slot.shape[1]):
        if world.slot[r, at].busy > 0:
            continue
        if oldest < 0 or world.slot[r, at].used < world.slot[r, oldest].used:
            oldest = at
        common = _common(world, engine, q, world.slot[r, at].request)
        if common > most and common > engine.slot_similarity * world.prompt[q]:
            most = common
            similar = at
    if oldest < 0:
        return -1, -1
    chosen = similar if similar >= 0 else oldest
    found = _common(world, engine, q, world.slot[r, chosen].request)
    world.slot[r, chosen].request = q
    world.slot[r, chosen].busy = 1
    return found, chosen


@inline
def release_slot(world: World, r: Index, slot: Index) -> None:
    """Mark the slot idle; it keeps its tokens.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    r : int
        Index of the replica.
    slot : int
        Index of the slot.
    """
    world.slot[r, slot].busy = 0
    world.replicas[r].releases += 1
    world.slot[r, slot].used = world.replicas[r].releases
