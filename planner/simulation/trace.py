"""The request trace of a replay: arrivals, keys, prompt blocks and lengths, never text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.validation import whole
from planner.simulation.chains import Chains, find_chains

__all__ = ["Blocks", "Trace", "read_only"]

LARGEST = 2**31  # requests, and tokens of one


class _Rows(NamedTuple):
    offsets: NDArray[np.int64]  # [n + 1]
    ids: NDArray[np.int64]  # [offsets[-1]]


class Blocks(_Rows):
    """Prompt blocks of all requests in compressed sparse rows.

    Request ``i`` holds ``ids[offsets[i]:offsets[i + 1]]``, first block first. Equal ids mean equal
    prefixes up to and including that block (the ids are chained, as in vLLM's prefix caching).
    """

    # Derived data of the blocks; traces that differ only in their arrivals share it.
    _found: tuple[Any, ...] | None = None

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> Blocks:
        """Pack one sequence of block ids per request."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        parts = [_whole(f"blocks[{at}]", row) for at, row in enumerate(rows)]
        return cls(offsets, np.concatenate(parts) if parts else np.empty(0, dtype=np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        return Blocks, tuple(self)  # the derived data is computed again


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival.

    Parameters
    ----------
    arrival_s : float64[n]
        Seconds from the start, finite, >= 0, not decreasing.
    key : int64[n]
        Index of the routing key of each request; an index into the workload's rates and ``key_names``.
    blocks : Blocks or (offsets, ids) or sequence of sequences
        Chained prefix-block ids of each prompt; ``ceil(prompt_tokens / block_tokens)`` of them per request.
    prompt_tokens, output_tokens : int64[n]
        Lengths; at least 1 prompt token and 1 output token.
    block_tokens : int
        Tokens in a full block.
    key_names : sequence of str, optional
        Name of each key index; may be empty when only indices are known.

    Raises
    ------
    ValueError
        Naming the argument and the first bad index.
    """

    arrival_s: NDArray[np.float64]
    key: NDArray[np.int64]
    blocks: Blocks
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    block_tokens: int
    key_names: Sequence[str] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "arrival_s", read_only(np.ascontiguousarray(self.arrival_s, dtype=np.float64)))
        for name in ("key", "prompt_tokens", "output_tokens"):
            put(self, name, _whole(name, getattr(self, name)))
        blocks = self.blocks
        if not (isinstance(blocks, tuple) and len(blocks) == 2 and isinstance(blocks[0], np.ndarray)):
            blocks = Blocks.from_lists(blocks)
        if not isinstance(blocks, Blocks) or any(array.flags.writeable for array in blocks):
            put(self, "blocks", Blocks(_whole("blocks.offsets", blocks[0]), _whole("blocks.ids", blocks[1])))
        self._check()

    def _check(self) -> None:
        n = len(self.arrival_s)
        for name in ("arrival_s", "key", "prompt_tokens", "output_tokens"):
            array = getattr(self, name)
            if array.ndim != 1 or len(array) != n:
                raise ValueError(f"{name}: expected shape ({n},), got {array.shape}")
        whole("block_tokens", self.block_tokens, 1)
        if n >= LARGEST:
            raise ValueError(f"arrival_s: {n} requests; expected fewer than {LARGEST}")
        _refuse("arrival_s", self.arrival_s, ~np.isfinite(self.arrival_s) | (self.arrival_s < 0), "a finite time >= 0")
        if n > 1:
            steps_back = np.concatenate(([False], np.diff(self.arrival_s) < 0))
            _refuse("arrival_s", self.arrival_s, steps_back, "at or after the arrival before it")
        _refuse("key", self.key, self.key < 0, "an index >= 0")
        if len(self.key_names):
            _refuse("key", self.key, self.key >= len(self.key_names), f"below {len(self.key_names)} key names")
        _refuse("prompt_tokens", self.prompt_tokens, self.prompt_tokens < 1, "at least 1")
        _refuse("output_tokens", self.output_tokens, self.output_tokens < 1, "at least 1")
        for name in ("prompt_tokens", "output_tokens"):
            _refuse(name, getattr(self, name), getattr(self, name) >= LARGEST, f"below {LARGEST}")
        offsets, ids = self.blocks
        if offsets.shape != (n + 1,) or offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
            raise ValueError(f"blocks.offsets: must be {n + 1} non-decreasing values from 0 to {len(ids)}")
        tiles = -(-self.prompt_tokens // self.block_tokens)
        _refuse("blocks", np.diff(offsets), np.diff(offsets) != tiles, "ceil(prompt_tokens / block_tokens) blocks")
        _refuse("blocks.ids", ids, ids < 0, "an id >= 0")

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # arrays come out of a pickle writeable

    @property
    def chains(self) -> Chains:
        """Chains of the prompts, computed once for all traces that share these blocks."""
        return self._prepared()[2]

    @property
    def dense_keys(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distinct key indices, ascending, and the position of the key of each request among them."""
        return self._prepared()[1]

    def _prepared(self) -> tuple[Any, ...]:
        inputs = (self.key, self.prompt_tokens, self.block_tokens)
        found = self.blocks._found
        if found is None or any(a is not b for a, b in zip(found[0], inputs, strict=True)):
            chains = find_chains(*self.blocks, self.prompt_tokens, int(self.block_tokens))
            found = self.blocks._found = (inputs, _densely(self.key), chains)
        return found


def _densely(key: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if not len(key) or int(key.max()) > max(4 * len(key), 1 << 16):
        return np.unique(key, return_inverse=True)
    there = np.zeros(int(key.max()) + 1, dtype=bool)
    there[key] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[key]


def _whole(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name}: whole numbers expected, got dtype {array.dtype}")
    return read_only(np.ascontiguousarray(array, dtype=np.int64))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view.

    A trace then cannot change, and the compiled kernels see one type: writable and read-only arrays are different types
    to numba.
    """
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _refuse(name: str, values: NDArray[np.generic], bad: NDArray[np.bool_], want: str) -> None:
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"{name}[{at}] = {values[at]}: expected {want}")
