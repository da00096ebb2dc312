"""Prompts as chains of blocks: a run of blocks that always occur together is one unit.

The blocks of all prompts form a trie (block ids are chained). A run of it without a branch, in which every block occurs
in the same requests, is a *chain*. Its blocks are pinned, released and evicted together, last block first. So its state
in a cache is one number: how many of its leading blocks are present. The replay works on chains and gives the same
result as block by block, for any block size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planner.routing.hashing import mix64

__all__ = ["Chains", "find_chains"]


class Chains(NamedTuple):
    """Shared chains of every request, in compressed sparse rows.

    Only full blocks that occur in more than one place are listed; the other blocks of a request are its own and can
    never be hit. Where an own block comes before a shared block (ids that are not chained), the row holds a -1.
    """

    offsets: NDArray[np.int64]  # [n + 1] into ``of``
    of: NDArray[np.int32]  # chain of each entry, or -1 for a gap
    blocks: NDArray[np.int32]  # [C] blocks in each chain


def find_chains(
    offsets: NDArray[np.int64], ids: NDArray[np.int64], prompt_tokens: NDArray[np.int64], block_tokens: int
) -> Chains:
    """Find the chains of all prompts, in time linear in their blocks.

    Parameters
    ----------
    offsets, ids : int64[n + 1], int64[sum]
        As in :class:`planner.simulation.Blocks`.
    prompt_tokens : int64[n]
        A part-filled last block is never shared (vLLM caches full blocks only).
    block_tokens : int
        Tokens in a full block.

    Returns
    -------
    Chains
        Chains of each request, and their lengths in blocks.
    """
    top = int(ids.max()) + 1 if len(ids) else 0
    if top > max(4 * len(ids), 1 << 16):
        ids, top = _dense(ids)
    full = prompt_tokens // block_tokens
    seen = np.zeros((top, 2), dtype=np.int32)
    _count(offsets, ids, full, seen)
    chain_of, blocks = _number(seen, offsets, ids, full)
    rows, of = _rows(offsets, ids, full, chain_of, blocks)
    return Chains(rows, of, blocks)


@njit(cache=True, nogil=True)
def _dense(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Assign numbers to sparse ids in order of appearance, by open addressing."""
    size = 1024
    while size < 2 * len(ids):
        size *= 2
    table = np.zeros(size, dtype=np.int32)  # number + 1
    names = np.empty(len(ids), dtype=np.int64)
    dense = np.empty(len(ids), dtype=np.int64)
    found = 0
    for at in range(len(ids)):
        place = np.int64(mix64(np.uint64(ids[at])) & np.uint64(size - 1))
        while table[place] > 0 and names[table[place] - 1] != ids[at]:
            place = (place + 1) & (size - 1)
        if table[place] == 0:
            names[found] = ids[at]
            found += 1
            table[place] = found
        dense[at] = table[place] - 1
    return dense, found


@njit(cache=True, nogil=True)
def _count(
    offsets: NDArray[np.int64], ids: NDArray[np.int64], full: NDArray[np.int64], seen: NDArray[np.int32]
) -> None:
    """Count the places of each block, and record the block before it: -2 at the head of a prompt, -3 when it varies."""
    for q in range(len(full)):
        previous = -2
        for at in range(offsets[q], offsets[q] + full[q]):
            block = ids[at]
            seen[block, 0] += 1
            if seen[block, 0] == 1:
                seen[block, 1] = previous
            elif seen[block, 1] != previous:
                seen[block, 1] = -3
            previous = block


@njit(cache=True, nogil=True)
def _number(
    seen: NDArray[np.int32], offsets: NDArray[np.int64], ids: NDArray[np.int64], full: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the chain number of each shared block (-1: own block of a request), and the length of each chain.

    A block continues the chain of the block before it when it always follows that block and occurs as often. So the
    whole chain follows every occurrence of its first block.
    """
    chain_of = np.full(len(seen), -1, dtype=np.int32)
    blocks = np.zeros(len(seen), dtype=np.int32)
    found = 0
    for q in range(len(full)):
        at = offsets[q]
        end = offsets[q] + full[q]
        while at < end:
            block = ids[at]
            if seen[block, 0] < 2:
                at += 1
            elif chain_of[block] >= 0:
                at += blocks[chain_of[block]]
            else:
                previous = seen[block, 1]
                if previous >= 0 and seen[previous, 0] == seen[block, 0]:
                    chain_of[block] = chain_of[previous]
                else:
                    chain_of[block] = found
                    found += 1
                blocks[chain_of[block]] += 1
                at += 1
    return chain_of, blocks[:found].copy()


@njit(cache=True, nogil=True)
def _rows(
    offsets: NDArray[np.int64],
    ids: NDArray[np.int64],
    full: NDArray[np.int64],
    chain_of: NDArray[np.int32],
    blocks: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """List the chains of each request, in two passes: the first finds the size of the array, the second fills it."""
    rows = np.zeros(len(full) + 1, dtype=np.int64)
    of = np.empty(0, dtype=np.int32)
    for filling in range(2):
        row = 0
        for q in range(len(full)):
            gap = False
            at = offsets[q]
            end = offsets[q] + full[q]
            while at < end:
                chain = chain_of[ids[at]]
                if chain < 0:
                    gap = True
                    at += 1
                    continue
                if gap:
                    if filling:
                        of[row] = -1
                    row += 1
                    gap = False
                if filling:
                    of[row] = chain
                row += 1
                at += blocks[chain]
            rows[q + 1] = row
        if not filling:
            of = np.empty(row, dtype=np.int32)
    return rows, of
