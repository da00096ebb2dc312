"""State of the compiled replay. ``n`` requests, ``C`` chains, ``R`` replicas, ``N`` cache nodes a replica.

A replica, a running sequence and a cache node are records, so that each event of a replica touches few cache lines.
"""

from __future__ import annotations

import mmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.routing.policies.base import Index
from planner.simulation.chains import Chains
from planner.simulation.compiled import inline

__all__ = ["FOREVER", "UNLIMITED", "Engine", "Index", "World", "allocate", "blocks_for", "full_blocks"]

Records = Any  # an array of records: compiled code reads their fields as attributes
FOREVER = np.iinfo(np.int64).max
UNLIMITED = 1 << 60  # capacity, in blocks, of a cache without bounds

REPLICA = np.dtype(
    [
        ("now", "f8"),  # start of the current iteration, or the last boundary
        ("end", "f8"),  # end of the iteration or leap in progress
        ("origin", "f8"),  # start of the stretch of equal iterations that contains the current one,
        ("first_s", "f8"),  # seconds of its first iteration,
        ("growth_s", "f8"),  # and the increase from each iteration to the next
        ("done", "i8"),  # its iterations before ``now``
        ("same", "i8"),  # 1: no sequence joined or left since the last iteration, which only decoded
        ("speed", "f8"),  # factor relative to the profile
        ("measured_busy", "f8"),  # seconds, after the warm-up
        ("steps", "i8"),  # iterations until ``end``
        ("clock", "i8"),  # iterations so far; a decoding sequence gets one token in each
        ("context", "i8"),  # context tokens of the decoding sequences, minus ``clock`` for each
        ("next_end", "i8"),  # clock at which the first decoding sequence is complete
        ("next_block", "i8"),  # clock at which the first decoding sequence needs another block
        ("batch", "i8"),  # running sequences
        ("filling", "i8"),  # running sequences that still prefill
        ("queue_head", "i8"),
        ("queue_tail", "i8"),
        ("queued", "i8"),
        ("queued_tokens", "i8"),  # estimated tokens of the waiting requests
        ("queue_peak", "i8"),  # after the warm-up
        ("preemptions", "i8"),  # after the warm-up
        ("iterations", "i8"),  # iterations and leaps simulated
        ("pinned", "i8"),  # blocks of chains that running requests hold
        ("private", "i8"),  # blocks that only a running request holds: own prompt blocks, generated tokens
        ("free", "i8"),  # blocks that can be reused or evicted (in the LRU list)
        ("peak", "i8"),  # maximum of blocks in use (pinned + private + free)
        ("empties", "i8"),  # height of the stack of released nodes
        ("fresh", "i8"),  # nodes below this were used at least once
        ("releases", "i8"),  # requests that left; orders the slots by last use
        ("busy", "u1"),  # an iteration is in progress
        ("up", "i8"),  # below 1: dead
        ("drained", "i8"),  # above 0: takes no new requests
    ],
    align=True,
)

SEQUENCE = np.dtype(
    [
        ("request", "i8"),
        ("computed", "i8"),  # tokens to prefill whose KV is present
        ("target", "i8"),  # tokens to prefill: the prompt, after a preemption also the generated tokens
        ("chunk", "i8"),  # tokens prefilled in the current iteration
        ("made", "i8"),  # tokens generated before decoding began (again)
        ("end", "i8"),  # once decoding: clock at which it is complete
        ("next_block", "i8"),  # once decoding: clock at which it needs another block
        ("private", "i8"),  # blocks that only it holds
        ("slot", "i8"),
    ],
    align=True,
)

NODE = np.dtype(
    [
        ("chain", "i4"),  # -1: the own blocks of a request that left; they can be evicted and never be hit
        ("blocks", "i4"),  # its leading blocks that are present
        ("refs", "i4"),  # running requests that hold it; above 0, all its blocks are present
        ("newer", "i4"),
        ("older", "i4"),
    ],
    align=True,
)

SLOT = np.dtype([("request", "i8"), ("used", "i8"), ("busy", "i8")], align=True)


class Engine(NamedTuple):
    """Constants of a replica; see EngineProfile. ``capacity`` is in blocks, ``slot_tokens`` in tokens."""

    iteration_s: float
    prefill_token_s: float
    sequence_s: float
    context_token_s: float
    max_batched_tokens: int
    max_sequences: int
    capacity: int
    block_tokens: int
    block_shift: int  # of a power of two; -1 for others
    slots: bool  # one prefix a slot instead of paged blocks
    slot_tokens: int
    slot_similarity: float
    step: bool  # True: one iteration at a time instead of leaping


@inline
def full_blocks(engine: Engine, tokens: Index) -> Index:
    """Return the number of blocks that ``tokens`` (>= 0) fill."""
    if engine.block_shift >= 0:
        return tokens >> engine.block_shift
    return tokens // engine.block_tokens


@inline
def blocks_for(engine: Engine, tokens: Index) -> Index:
    """Return the number of blocks that ``tokens`` (>= 0) take."""
    return full_blocks(engine, tokens + engine.block_tokens - 1)


class World(NamedTuple):
    """The trace (first seven arrays, read only), the state of each request, and the replicas."""

    arrival: NDArray[np.float64]
    key: NDArray[np.int64]  # dense key number
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    offsets: NDArray[np.int64]  # [n + 1] into chains
    chains: NDArray[np.int32]  # of each request's prompt, -1 for a gap
    length: NDArray[np.int32]  # [C] blocks
    next_waiting: NDArray[np.int32]
    made: NDArray[np.int32]  # tokens that a preempted request had generated
    estimate: NDArray[np.int64]  # tokens to prefill, as known at dispatch
    missed: NDArray[np.int64]  # the same while the request is in the policy's window, else -1
    moved: NDArray[np.uint8]  # by a policy that moves queued requests
    destination: NDArray[np.int32]
    cached: NDArray[np.int64]  # prompt tokens found at the first admission, -1 before
    ttft: NDArray[np.float64]
    latency: NDArray[np.float64]
    replicas: Records  # [R] REPLICA
    running: Records  # [R, max_sequences] SEQUENCE, oldest first
    nodes: Records  # [R, N + 1] NODE; entry N heads the LRU list: its ``newer`` is evicted next
    empty: NDArray[np.int32]  # [R, N] stack of released nodes
    node_of: NDArray[np.int32]  # [C, R] node + 1 of a chain, 0 when no block of it is present
    slot: Records  # [R, slots] SLOT
    uses: NDArray[np.int32]  # [C, R] requests of the policy's window that hold the chain
    outstanding: NDArray[np.int64]  # [R] requests sent and not finished
    pending: NDArray[np.int64]  # [R] prompt tokens sent, not cached and not prefilled yet


def allocate(
    arrival: NDArray[np.float64],
    key: NDArray[np.int64],
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    chains: Chains,
    engine: Engine,
    speed: NDArray[np.float64],
    window: bool,
) -> World:
    """Allocate the state of a replay before its first event.

    Parameters
    ----------
    arrival : float64[n]
        Seconds from the first arrival.
    key : int64[n]
        Dense key number of each request.
    prompt, output : int64[n]
        Tokens of each request.
    chains : Chains
        Chains of the prompts.
    engine : Engine
        Constants of a replica.
    speed : float64[R]
        Relative speed of each replica.
    window : bool
        Whether the policy reads a window of past requests.

    Returns
    -------
    World
        The state.
    """
    n, replicas, shared = len(arrival), len(speed), len(chains.blocks)
    batch = min(engine.max_sequences, max(n, 1))
    # A node holds at least one block of a chain or a request; a request is admitted before an eviction makes room.
    nodes = shared if engine.capacity == UNLIMITED else int(min(engine.capacity, shared + n))
    nodes = 0 if engine.slots else nodes + int(np.diff(chains.offsets).max(initial=0))
    world = World(
        *(arrival, key, prompt, output, chains.offsets, chains.of, chains.blocks),
        next_waiting=np.empty(n, dtype=np.int32),
        made=np.zeros(n, dtype=np.int32),
        estimate=np.zeros(n, dtype=np.int64),
        missed=np.full(n if window else 0, -1, dtype=np.int64),
        moved=np.zeros(n, dtype=np.uint8),
        destination=np.full(n, -1, dtype=np.int32),
        cached=np.full(n, -1, dtype=np.int64),
        ttft=np.full(n, np.nan),
        latency=np.full(n, np.nan),
        replicas=np.zeros(replicas, dtype=REPLICA),
        running=_mostly_untouched((replicas, batch), SEQUENCE),
        nodes=_mostly_untouched((replicas, nodes + 1), NODE),
        empty=_mostly_untouched((replicas, nodes), np.dtype(np.int32)),
        node_of=_mostly_untouched((max(shared, 1), replicas), np.dtype(np.int32)),
        slot=np.zeros((replicas, batch if engine.slots else 0), dtype=SLOT),
        uses=_mostly_untouched((max(shared, 1) if window else 0, replicas), np.dtype(np.int32)),
        outstanding=np.zeros(replicas, dtype=np.int64),
        pending=np.zeros(replicas, dtype=np.int64),
    )
    for name in ("queue_head", "queue_tail"):
        world.replicas[name] = -1
    for name in ("next_end", "next_block"):
        world.replicas[name] = FOREVER
    world.replicas["up"] = 1
    world.replicas["speed"] = speed
    world.nodes["newer"][:, nodes] = world.nodes["older"][:, nodes] = nodes
    world.slot["request"] = -1
    return world


def _mostly_untouched(shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros of which the system allocates only the pages in use.

    For arrays of a few MB and more, numpy requests huge pages; then a few bytes of each row would allocate 2 MB.
    """
    size = shape[0] * shape[1] * dtype.itemsize
    if size < 4 << 20:
        return np.zeros(shape, dtype=dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype=dtype).reshape(shape)
