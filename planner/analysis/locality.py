"""The chain of hit rates of a trace: available, planned and delivered."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from planner.analysis.checks import refuse, whole

__all__ = ["HitChain", "available_tokens", "hit_chain"]


@dataclass(frozen=True)
class HitChain:
    """Cached prompt tokens as shares of all prompt tokens; an unknown share is None.

    Attributes
    ----------
    available : float or None
        Share that one cache without eviction, which sees every request, would find. None without prompt tokens.
    planned : float or None
        The part of ``available`` on requests of admitted keys of the table. None without a table.
    delivered : float or None
        Share that was served from caches.
    delivered_planned : float or None
        The part of ``delivered`` on requests of admitted keys; the rest was found by chance for cold keys.
    """

    available: float | None
    planned: float | None
    delivered: float | None
    delivered_planned: float | None

    def as_dict(self) -> dict[str, float | None]:
        """Return every field as plain JSON-able values."""
        return asdict(self)


def available_tokens(
    offsets: ArrayLike, ids: ArrayLike, prompt_tokens: ArrayLike, block_tokens: int
) -> NDArray[np.int64]:
    """Return the prompt tokens of each request that one unlimited cache would find.

    The cache sees every request in the order given and never evicts. A hit is the longest leading run of blocks that
    an earlier request had, and at most ``(tokens - 1) // block_tokens`` full blocks: the last token is always
    computed, as vLLM's prefix caching does. A part-filled last block is neither found nor kept. Linear time; memory
    grows with the distinct blocks.

    Parameters
    ----------
    offsets : int64[n + 1]
        Request ``i`` has the blocks ``ids[offsets[i]:offsets[i + 1]]``, ``ceil(prompt_tokens[i] / block_tokens)``.
    ids : int64[offsets[n]]
        Chained block ids, >= 0: equal ids mean equal prefixes up to and including that block.
    prompt_tokens : int64[n]
        At least 1 each.
    block_tokens : int
        Tokens in a full block, at least 1.

    Returns
    -------
    int64[n]
        Tokens of each request.

    Raises
    ------
    ValueError
        Naming the argument and the first bad index.
    """
    start, number = whole("offsets", offsets), whole("ids", ids)
    prompt = whole("prompt_tokens", prompt_tokens, least=1)
    if block_tokens < 1:
        raise ValueError(f"block_tokens = {block_tokens}: expected at least 1")
    n = len(prompt)
    if start.shape != (n + 1,) or start[0] != 0 or start[-1] != len(number) or (np.diff(start) < 0).any():
        raise ValueError(f"offsets: must be {n + 1} non-decreasing values from 0 to {len(number)}")
    refuse("offsets", np.diff(start), np.diff(start) != -(-prompt // block_tokens), "ceil(tokens / block) blocks")
    if not n:
        return np.zeros(0, dtype=np.int64)
    if int(number.max()) < 16 * len(number):
        runs = _runs_by_mark(start, number, prompt, block_tokens, int(number.max()) + 1)
    else:
        runs = _runs_by_hash(start, number, prompt, block_tokens)
    return runs * block_tokens


def hit_chain(
    available: ArrayLike,
    prompt_tokens: ArrayLike,
    cached_tokens: ArrayLike,
    *,
    admitted: NDArray[np.bool_] | None = None,
) -> HitChain:
    """Sum up the chain of the given requests: available -> planned -> delivered.

    Parameters
    ----------
    available : int64[n]
        Result of `available_tokens` for the requests that count (served, after the warm-up).
    prompt_tokens, cached_tokens : int64[n]
        Prompt tokens of the same requests, and the cached tokens among them.
    admitted : bool[n], optional
        Whether the key of each request is admitted by the routing table.

    Returns
    -------
    HitChain
        The shares.

    Raises
    ------
    ValueError
        When the lengths differ.
    """
    arrays = {"available": available, "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens}
    could, prompt, cached = (whole(name, values) for name, values in arrays.items())
    for name, array in (("available", could), ("cached_tokens", cached), ("admitted", admitted)):
        if array is not None and array.shape != prompt.shape:
            raise ValueError(f"{name}: expected shape {prompt.shape}, got {array.shape}")
    total = int(prompt.sum())
    if not total:
        return HitChain(None, None, None, None)
    return HitChain(
        available=int(could.sum()) / total,
        planned=None if admitted is None else int(could[admitted].sum()) / total,
        delivered=int(cached.sum()) / total,
        delivered_planned=None if admitted is None else int(cached[admitted].sum()) / total,
    )


@njit(cache=True)
def _runs_by_mark(
    offsets: NDArray[np.int64], ids: NDArray[np.int64], prompt: NDArray[np.int64], block: int, numbers: int
) -> NDArray[np.int64]:
    """Return the leading runs in blocks, for ids that are small enough for an array of marks."""
    seen = np.zeros(numbers, dtype=np.bool_)
    runs = np.zeros(len(prompt), dtype=np.int64)
    for request in range(len(prompt)):
        first = offsets[request]
        leading = True
        for at in range(first, first + prompt[request] // block):  # the full blocks
            leading = leading and seen[ids[at]]
            runs[request] += leading
            seen[ids[at]] = True
        runs[request] = min(runs[request], (prompt[request] - 1) // block)
    return runs


@njit(cache=True)
def _place(table: NDArray[np.int64], number: np.int64) -> np.int64:
    """Return the place of a number in an open hash table whose size is a power of two; present or not."""
    mask = len(table) - 1
    mixed = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    at = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
    while table[at] >= 0 and table[at] != number:
        at = np.int64((at + 1) & mask)
    return at


@njit(cache=True)
def _runs_by_hash(
    offsets: NDArray[np.int64], ids: NDArray[np.int64], prompt: NDArray[np.int64], block: int
) -> NDArray[np.int64]:
    """Return the same as `_runs_by_mark`, for any ids."""
    table = np.full(1024, -1, dtype=np.int64)
    held = 0
    runs = np.zeros(len(prompt), dtype=np.int64)
    for request in range(len(prompt)):
        first = offsets[request]
        leading = True
        for at in range(first, first + prompt[request] // block):
            place = _place(table, ids[at])
            there = table[place] >= 0
            leading = leading and there
            runs[request] += leading
            if not there:
                table[place] = ids[at]
                held += 1
                if 2 * held > len(table):
                    larger = np.full(2 * len(table), -1, dtype=np.int64)
                    for number in table:
                        if number >= 0:
                            larger[_place(larger, number)] = number
                    table = larger
        runs[request] = min(runs[request], (prompt[request] - 1) // block)
    return runs
