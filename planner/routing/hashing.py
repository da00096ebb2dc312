"""Stable 64-bit hashes: the same on every machine, process and Python version (unlike ``hash``)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["hash_indices", "hash_names", "key_hashes", "mix64", "next_random", "next_uniform"]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MUL_A = np.uint64(0xBF58476D1CE4E5B9)
_MUL_B = np.uint64(0x94D049BB133111EB)


@njit(cache=True, inline="always")
def mix64(value: np.uint64) -> np.uint64:
    """Scatter a 64-bit word (the finaliser of SplitMix64, Steele et al. 2014)."""
    z = np.uint64(value) + _STEP
    z = (z ^ (z >> np.uint64(30))) * _MUL_A
    z = (z ^ (z >> np.uint64(27))) * _MUL_B
    return z ^ (z >> np.uint64(31))


@njit(cache=True, inline="always")
def next_random(state: NDArray[np.uint64], below: int) -> np.int64:
    """Draw a whole number in ``[0, below)`` and advance ``state`` (uint64[1]); SplitMix64."""
    word = mix64(state[0])
    state[0] = state[0] + _STEP
    return np.int64(((word >> np.uint64(32)) * np.uint64(below)) >> np.uint64(32))


@njit(cache=True, inline="always")
def next_uniform(state: NDArray[np.uint64]) -> np.float64:
    """Draw a number in ``[0, 1)`` and advance ``state`` (uint64[1]); SplitMix64."""
    word = mix64(state[0])
    state[0] = state[0] + _STEP
    return np.float64(word >> np.uint64(11)) / 9007199254740992.0


def hash_indices(indices: NDArray[np.integer], salt: int = 0) -> NDArray[np.uint64]:
    """Hash whole numbers elementwise (uint64, any shape)."""
    with np.errstate(over="ignore"):
        z = np.asarray(indices).astype(np.uint64) + np.uint64(salt) * _MUL_A + _STEP
        z = (z ^ (z >> np.uint64(30))) * _MUL_A
        z = (z ^ (z >> np.uint64(27))) * _MUL_B
    return z ^ (z >> np.uint64(31))


def hash_names(names: Sequence[str]) -> NDArray[np.uint64]:
    """Hash key names: the SHA-256 of the UTF-8 text, as one number modulo 2**64; uint64[len(names)]."""
    digests = b"".join(hashlib.sha256(name.encode()).digest()[-8:] for name in names)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def key_hashes(keys: NDArray[np.int64], names: Sequence[str] = ()) -> NDArray[np.uint64]:
    """Hash keys by name where names are known: then a key keeps its hash when indices shift.

    Parameters
    ----------
    keys : int64[n]
        Key indices, >= 0.
    names : sequence of str, optional
        Name of each key index; without names the index is hashed.

    Returns
    -------
    uint64[n]
        Hash of each key.
    """
    if len(names):
        return hash_names([names[int(key)] for key in keys])
    return hash_indices(keys)
