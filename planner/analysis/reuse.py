"""How much of a trace's prompts could be reused at all: the hit rate of one unlimited cache."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["AvailableHit", "PromptBlocks", "reuse"]


class _Csr(Protocol):
    @property
    def offsets(self) -> NDArray[np.int64]: ...
    @property
    def ids(self) -> NDArray[np.int64]: ...


class PromptBlocks(Protocol):
    """The part of a trace that reuse depends on."""

    @property
    def blocks(self) -> _Csr: ...
    @property
    def prompt_tokens(self) -> NDArray[np.int64]: ...
    @property
    def block_tokens(self) -> int: ...


@dataclass(frozen=True)
class AvailableHit:
    """What an unlimited cache in front of the whole trace, in order of arrival, would have found.

    Attributes
    ----------
    hit_rate : float
        Cached prompt tokens / prompt tokens: the ceiling of every policy without eviction.
    request_hit_rate : float
        Share of requests that find at least one block.
    prompt_tokens, cached_tokens : int
    distinct_blocks, recurring_blocks : int
        Different blocks, and those that occur more than once.
    """

    hit_rate: float
    request_hit_rate: float
    prompt_tokens: int
    cached_tokens: int
    distinct_blocks: int
    recurring_blocks: int

    def as_dict(self) -> dict[str, float | int]:
        """Return every field as plain JSON-able values."""
        return asdict(self)


def reuse(trace: PromptBlocks) -> AvailableHit:
    """Measure the reuse that a trace offers.

    A hit is the longest leading run of blocks seen before; a part-filled last block counts with its tokens.
    Rates are 0.0 for an empty trace.

    Parameters
    ----------
    trace : Trace
        Anything with ``blocks`` (offsets int64[n + 1], ids), ``prompt_tokens`` int64[n] and ``block_tokens``.
    """
    blocks, inverse, counts = np.unique(trace.blocks.ids, return_inverse=True, return_counts=True)
    runs = _leading_runs(np.asarray(trace.blocks.offsets), inverse.astype(np.int64), len(blocks))
    cached = np.minimum(trace.prompt_tokens, runs * trace.block_tokens)
    total = int(trace.prompt_tokens.sum())
    return AvailableHit(
        hit_rate=int(cached.sum()) / total if total else 0.0,
        request_hit_rate=float((runs > 0).mean()) if len(runs) else 0.0,
        prompt_tokens=total,
        cached_tokens=int(cached.sum()),
        distinct_blocks=len(blocks),
        recurring_blocks=int((counts > 1).sum()),
    )


@njit(cache=True)
def _leading_runs(offsets: NDArray[np.int64], ids: NDArray[np.int64], distinct: int) -> NDArray[np.int64]:
    seen = np.zeros(distinct, dtype=np.bool_)
    runs = np.zeros(len(offsets) - 1, dtype=np.int64)
    for request in range(len(runs)):
        leading = True
        for at in range(offsets[request], offsets[request + 1]):
            leading = leading and seen[ids[at]]
            runs[request] += leading
            seen[ids[at]] = True
    return runs
