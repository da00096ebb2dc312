"""The reuse that the prompts of a trace allow: the hit rate of one unlimited cache."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from planner.analysis.locality import available_tokens

__all__ = ["AvailableHit", "PromptBlocks", "reuse"]


class _Csr(Protocol):
    @property
    def offsets(self) -> NDArray[np.int64]: ...
    @property
    def ids(self) -> NDArray[np.int64]: ...


class PromptBlocks(Protocol):
    """The part of a trace on which reuse depends."""

    @property
    def blocks(self) -> _Csr:
        """Chained block ids of each prompt, in compressed sparse rows."""

    @property
    def prompt_tokens(self) -> NDArray[np.int64]:
        """Length of each prompt; int64[n]."""

    @property
    def block_tokens(self) -> int:
        """Tokens in a full block."""


@dataclass(frozen=True)
class AvailableHit:
    """Hits of one unlimited cache over the whole trace, in order of arrival.

    Attributes
    ----------
    hit_rate : float
        Cached prompt tokens / prompt tokens: the ceiling of every policy without eviction.
    request_hit_rate : float
        Share of requests that find at least one block.
    prompt_tokens, cached_tokens : int
        Sums over all requests.
    distinct_blocks, recurring_blocks : int
        Distinct blocks, and the blocks among them that occur more than once.
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
    """Measure the reuse that a trace allows.

    `available_tokens` defines a hit. Rates are 0.0 for an empty trace.

    Parameters
    ----------
    trace : Trace
        Anything with ``blocks`` (offsets int64[n + 1], ids), ``prompt_tokens`` int64[n] and ``block_tokens``.

    Returns
    -------
    AvailableHit
        Hit rates and block counts.
    """
    _, counts = np.unique(trace.blocks.ids, return_counts=True)
    cached = available_tokens(trace.blocks.offsets, trace.blocks.ids, trace.prompt_tokens, trace.block_tokens)
    total = int(trace.prompt_tokens.sum())
    return AvailableHit(
        hit_rate=int(cached.sum()) / total if total else 0.0,
        request_hit_rate=float((cached > 0).mean()) if len(cached) else 0.0,
        prompt_tokens=total,
        cached_tokens=int(cached.sum()),
        distinct_blocks=len(counts),
        recurring_blocks=int((counts > 1).sum()),
    )
