"""The prefix cache of a replica: paged blocks (the rules of automatic prefix caching in vLLM), chain by chain.

A hit is the longest leading run of full blocks that are present, at most ``(prompt - 1) // block`` of them: the last
token is always computed. Blocks of running requests are pinned. When a request ends, blocks without reusable content
(part-filled blocks and blocks of generated tokens) are free at once. The other blocks become evictable, the last block
of the request first, so that prefixes outlive tails. A block that is present behind a gap is recomputed in place. When
a sequence is preempted, its computed blocks stay reusable; the rest is dropped.
"""

from __future__ import annotations

from planner.simulation.compiled import inline, inner
from planner.simulation.state import UNLIMITED, Engine, Index, World, blocks_for, full_blocks

__all__ = [
    "admit_blocks",
    "available",
    "drop_cache",
    "eviction_tokens",
    "found_tokens",
    "make_room",
    "release_blocks",
]


@inline
def available(world: World, engine: Engine, r: Index) -> Index:
    """Return the blocks that can still be taken: empty blocks and evictable blocks.

    Parameters
    ----------
    world : World
        State of the replay.
    engine : Engine
        Constants of a replica.
    r : int
        Index of the replica.

    Returns
    -------
    int
        Blocks.
    """
    return engine.capacity - world.replicas[r].pinned - world.replicas[r].private


@inline
def found_tokens(world: World, engine: Engine, r: Index, q: Index) -> Index:
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
    run: Index = 0
    for at in range(world.offsets[q], world.offsets[q + 1]):
        chain = world.chains[at]
        node = world.node_of[chain, r] - 1 if chain >= 0 else -1
        if node < 0:
            break
        run += world.nodes[r, node].blocks
        if world.nodes[r, node].blocks < world.length[chain]:
            break
    return min(run, full_blocks(engine, world.prompt[q] - 1)) * engine.block_tokens


@inline
def _leads(world: World, r: Index, q: Index, wanted: Index) -> bool:
    """Return whether a chain is among the chains that ``q`` finds at ``r``."""
    for at in range(world.offsets[q], world.offsets[q + 1]):
        chain = world.chains[at]
        if chain == wanted:
            return True
        if chain < 0 or world.node_of[chain, r] == 0:
            return False
    return False


@inner
def eviction_tokens(world: World, engine: Engine, r: Index, q: Index, found: Index) -> float:
    """Return the tokens that ``r`` would evict for ``q``, each weighted with the requests of the window that hold it.

    Blocks that ``q`` finds there are pinned before any eviction.

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
    found : int
        Prompt tokens of ``q`` that ``r`` has cached.

    Returns
    -------
    float
        Tokens x requests.
    """
    replica = world.replicas[r]
    used = replica.pinned + replica.private + replica.free
    need = blocks_for(engine, world.prompt[q]) - full_blocks(engine, found) - (engine.capacity - used)
    head = world.nodes.shape[1] - 1
    at = world.nodes[r, head].newer
    weighted = 0.0
    while need > 0 and at != head:
        node = world.nodes[r, at]
        at = node.newer
        if node.chain >= 0 and _leads(world, r, q, node.chain):
            continue
        taken = min(need, node.blocks)
        if node.chain >= 0:
            weighted += taken * engine.block_tokens * world.uses[node.chain, r]
        need -= taken
    return weighted


@inline
def _unlink(world: World, r: Index, at: Index) -> None:
    node = world.nodes[r, at]
    world.nodes[r, node.newer].older = node.older
    world.nodes[r, node.older].newer = node.newer
    world.replicas[r].free -= node.blocks


@inline
def _push(world: World, r: Index, at: Index) -> None:
    """Make a node the most recently used one."""
    head = world.nodes.shape[1] - 1
    newest = world.nodes[r, head].older
    world.nodes[r, newest].newer = at
    world.nodes[r, at].older = newest
    world.nodes[r, at].newer = head
    world.nodes[r, head].older = at
    world.replicas[r].free += world.nodes[r, at].blocks


@inline
def _drop(world: World, r: Index, at: Index) -> None:
    if world.nodes[r, at].chain >= 0:
        world.node_of[world.nodes[r, at].chain, r] = 0
    world.empty[r, world.replicas[r].empties] = at
    world.replicas[r].empties += 1


@inline
def _new_node(world: World, r: Index, chain: Index) -> Index:
    replica = world.replicas[r]
    if replica.empties > 0:
        replica.empties -= 1
        at = world.empty[r, replica.empties]
    else:
        at = replica.fresh
        replica.fresh += 1
    world.nodes[r, at].chain = chain
    world.nodes[r, at].refs = 0
    if chain >= 0:
        world.node_of[chain, r] = at + 1
    return at


@inline
def _evict_to_fit(world: World, engine: Engine, r: Index) -> None:
    """Evict least recently used blocks until the replica holds no more than its capacity; record the peak."""
    replica = world.replicas[r]
    used = replica.pinned + replica.private + replica.free
    head = world.nodes.shape[1] - 1
    while used > engine.capacity:
        at = world.nodes[r, head].newer
        excess = used - engine.capacity
        if world.nodes[r, at].blocks > excess:
            world.nodes[r, at].blocks -= excess
            replica.free -= excess
            used -= excess
        else:
            used -= world.nodes[r, at].blocks
            _unlink(world, r, at)
            _drop(world, r, at)
    if used > replica.peak:
        replica.peak = used


@inner
def make_room(world: World, engine: Engine, r: Index) -> None:
    """Evict until the replica holds no more than its capacity; for the rare calls.

    Parameters
    ----------
    world : World
        State of the replay; changes in place.
    engine : Engine
        Constants of a replica.
    r : int
        Index of the replica.
    """
    _evict_to_fit(world, engine, r)


@inline
def admit_blocks(world: World, engine: Engine, r: Index, q: Index, target: Index) -> tuple[Index, Index]:
    """Pin all blocks that request ``q`` needs to prefill ``target`` tokens.

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
    target : int
        Tokens to prefill.

    Returns
    -------
    found : int
        Prompt tokens found, or -1 when there is no room; then nothing changes.
    private : int
        Blocks that only this request holds.
    """
    first, last = world.offsets[q], world.offsets[q + 1]
    replica = world.replicas[r]
    whole = blocks_for(engine, target)
    need = whole
    private = whole
    run: Index = 0
    leading = True
    for at in range(first, last):
        chain = world.chains[at]
        if chain < 0:
            leading = False
            continue
        private -= world.length[chain]
        node = world.node_of[chain, r] - 1
        if node < 0:
            leading = False
            continue
        if leading:
            run += world.nodes[r, node].blocks
            leading = world.nodes[r, node].blocks == world.length[chain]
        if world.nodes[r, node].refs > 0:
            need -= world.length[chain]
    if need > available(world, engine, r):
        return -1, 0
    for at in range(first, last):  # pin present blocks first: an eviction could take them
        chain = world.chains[at]
        if chain < 0:
            continue
        node = world.node_of[chain, r] - 1
        if node < 0:
            node = _new_node(world, r, chain)
            replica.pinned += world.length[chain]
        elif world.nodes[r, node].refs == 0:
            _unlink(world, r, node)
            replica.pinned += world.length[chain]
        world.nodes[r, node].blocks = world.length[chain]
        world.nodes[r, node].refs += 1
    replica.private += private
    _evict_to_fit(world, engine, r)
    return min(run, full_blocks(engine, world.prompt[q] - 1)) * engine.block_tokens, private


@inline
def release_blocks(world: World, engine: Engine, r: Index, q: Index, private: Index, computed: Index) -> None:
    """Unpin the blocks of ``q``.

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
    private : int
        Blocks that only this request holds.
    computed : int
        Prompt tokens whose KV is present.
    """
    first, last = world.offsets[q], world.offsets[q + 1]
    full = full_blocks(engine, computed)
    shared = 0
    for at in range(first, last):
        if world.chains[at] >= 0:
            shared += world.length[world.chains[at]]
    replica = world.replicas[r]
    replica.private -= private
    own = full - shared
    if own > 0 and engine.capacity == UNLIMITED:  # without eviction, the number is enough
        replica.free += own
    elif own > 0:
        at = _new_node(world, r, -1)
        world.nodes[r, at].blocks = own
        _push(world, r, at)
    for at in range(last - 1, first - 1, -1):
        chain = world.chains[at]
        if chain < 0:
            continue
        size = world.length[chain]
        shared -= size
        node = world.node_of[chain, r] - 1
        world.nodes[r, node].refs -= 1
        if world.nodes[r, node].refs > 0:
            continue
        replica.pinned -= size
        kept = min(size, max(0, full - shared))
        world.nodes[r, node].blocks = kept
        if kept > 0:
            _push(world, r, node)
        else:
            _drop(world, r, node)


@inner
def drop_cache(world: World, r: Index) -> None:
    """Clear the cache of a replica that died; no request runs on it."""
    head = world.nodes.shape[1] - 1
    world.nodes[r, head].newer = head
    world.nodes[r, head].older = head
    world.node_of[:, r] = 0
    replica = world.replicas[r]
    replica.pinned = 0
    replica.private = 0
    replica.free = 0
    replica.empties = 0
    replica.fresh = 0
    for at in range(world.slot.shape[1]):
        world.slot[r, at].request = -1
        world.slot[r, at].busy = 0
