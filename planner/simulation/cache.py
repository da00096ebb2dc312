"""The paged prefix cache of a replica, block by block (the rules of vLLM's automatic prefix caching).

A hit is the longest leading run of blocks that are present. Blocks of running requests are pinned. When a
request leaves, its last block becomes free first and so is evicted first: prefixes outlive tails. A block that
is present behind a gap is recomputed in place. Blocks of generated tokens only take room.
When a sequence is preempted, what it had computed and another request shares stays reusable; the rest is dropped.
"""

from __future__ import annotations

from planner.simulation.compiled import inline
from planner.simulation.state import Cache, Engine, Index, Requests

__all__ = ["admit_blocks", "available", "make_room", "release_blocks"]


@inline
def available(cache: Cache, engine: Engine, r: Index) -> Index:
    """Blocks that could still be taken: empty ones and those an eviction would yield."""
    return engine.capacity - cache.pinned[r] - cache.extra[r]


@inline
def _unlink(cache: Cache, r: Index, slot: Index) -> None:
    newer, older = cache.newer[r, slot], cache.older[r, slot]
    cache.older[r, newer] = older
    cache.newer[r, older] = newer
    cache.free[r] -= 1


@inline
def _empty(cache: Cache, r: Index, slot: Index) -> None:
    if cache.content[r, slot] >= 0:
        cache.slot_of[r, cache.content[r, slot]] = 0
    cache.empty[r, cache.empties[r]] = slot
    cache.empties[r] += 1


@inline
def _evict(cache: Cache, r: Index) -> None:
    slot = cache.newer[r, cache.refs.shape[1]]
    _unlink(cache, r, slot)
    _empty(cache, r, slot)


@inline
def make_room(cache: Cache, engine: Engine, r: Index) -> None:
    """Evict least recently used blocks until the replica holds no more than its capacity; note the peak."""
    used = cache.pinned[r] + cache.extra[r] + cache.free[r]
    while used > engine.capacity:
        _evict(cache, r)
        used -= 1
    if used > cache.peak[r]:
        cache.peak[r] = used


@inline
def _take(cache: Cache, engine: Engine, r: Index) -> Index:
    slots = cache.refs.shape[1]
    if cache.pinned[r] + cache.extra[r] + cache.free[r] >= engine.capacity or (
        cache.empties[r] == 0 and cache.fresh[r] == slots
    ):
        _evict(cache, r)
    if cache.empties[r] > 0:
        cache.empties[r] -= 1
        return cache.empty[r, cache.empties[r]]
    cache.fresh[r] += 1
    return cache.fresh[r] - 1


@inline
def _pin(cache: Cache, r: Index, slot: Index) -> None:
    if cache.refs[r, slot] == 0:
        _unlink(cache, r, slot)
        cache.pinned[r] += 1
    cache.refs[r, slot] += 1


@inline
def admit_blocks(requests: Requests, cache: Cache, engine: Engine, r: Index, q: Index) -> Index:
    """Pin all blocks that request ``q`` has to prefill.

    Returns
    -------
    int
        Prompt tokens found, or -1 when there is no room (then nothing was changed).
    """
    first, last = requests.offsets[q], requests.offsets[q + 1]
    extra = -(-requests.target[q] // engine.block_tokens) - (last - first)
    need = extra
    run = 0
    leading = True
    for at in range(first, last):
        number = requests.ids[at]
        slot = cache.slot_of[r, number] - 1 if number >= 0 else -1
        if slot < 0:
            leading = False
        elif leading:
            run += 1
        if slot < 0 or cache.refs[r, slot] == 0:
            need += 1
    if need > available(cache, engine, r):
        return -1
    for at in range(first, first + run):  # before any eviction, which could take them
        slot = cache.slot_of[r, requests.ids[at]] - 1
        _pin(cache, r, slot)
        cache.held[at] = slot
    for at in range(first + run, last):
        number = requests.ids[at]
        slot = cache.slot_of[r, number] - 1 if number >= 0 else -1
        if slot >= 0:
            _pin(cache, r, slot)
        else:
            slot = _take(cache, engine, r)
            cache.content[r, slot] = number
            cache.refs[r, slot] = 1
            cache.pinned[r] += 1
            if number >= 0:
                cache.slot_of[r, number] = slot + 1
        cache.held[at] = slot
    cache.extra[r] += extra
    requests.extra[q] = extra
    make_room(cache, engine, r)
    return min(requests.prompt[q], run * engine.block_tokens)


@inline
def release_blocks(requests: Requests, cache: Cache, engine: Engine, r: Index, q: Index, preempted: bool) -> None:
    """Unpin the blocks of ``q``, last block first. What a preempted request had not computed is emptied."""
    first, last = requests.offsets[q], requests.offsets[q + 1]
    for at in range(last - 1, first - 1, -1):
        slot = cache.held[at]
        cache.refs[r, slot] -= 1
        if cache.refs[r, slot] > 0:
            continue
        cache.pinned[r] -= 1
        there = min(requests.prompt[q], (at - first + 1) * engine.block_tokens) <= requests.computed[q]
        if preempted and (cache.content[r, slot] < 0 or not there):
            _empty(cache, r, slot)
            continue
        head = cache.refs.shape[1]
        newest = cache.older[r, head]
        cache.newer[r, newest] = slot
        cache.older[r, slot] = newest
        cache.newer[r, slot] = head
        cache.older[r, head] = slot
        cache.free[r] += 1
    cache.extra[r] -= requests.extra[q]
    requests.extra[q] = 0
