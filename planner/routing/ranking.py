"""Order and sums of millions of rates: exact, and the same for every order of the input."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["as_float", "exact_sum", "read_only", "survey", "top_indices"]

# The bits of floats >= 0, read as whole numbers, have the same order as the floats; -0.0 counts as 0.0.
_WITHOUT_SIGN = np.uint64(0x7FFF_FFFF_FFFF_FFFF)
_UNITS = 1 << 1074  # the smallest float64 above 0 is 1 / _UNITS


@njit(cache=True, nogil=True)
def _fill_bins(values: NDArray[np.float64], low: NDArray[np.int64], high: NDArray[np.int64]) -> int:
    """Add the mantissas of all values to bins by exponent; return the first index that is not finite and >= 0."""
    bits = values.view(np.uint64)
    for i in range(len(bits)):
        exponent = np.int64(bits[i] >> np.uint64(52))
        if exponent >= 0x7FF:  # infinite, NaN, or with the sign bit
            if values[i] == 0.0:
                continue
            return i
        mantissa = np.int64(bits[i] & np.uint64(0xF_FFFF_FFFF_FFFF))
        if exponent:
            mantissa |= np.int64(1) << 52
        else:
            exponent = np.int64(1)
        low[exponent] += mantissa & 0x7FF_FFFF
        high[exponent] += mantissa >> 27
    return -1


def read_only(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a contiguous read-only view: numba then compiles each kernel for one type of array only."""
    view = np.ascontiguousarray(values).view()
    view.setflags(write=False)
    return view


def exact_sum(values: NDArray[np.float64]) -> int:
    """Return the exact sum of finite values >= 0, in units of 2**-1074; see `as_float`.

    The last bits of a float sum depend on the order of its terms, and a cold load that differs in the last bit can
    resolve a tie of the placement in another way. This sum is exact, so shuffled rates give equal tables.
    """
    return survey(values)[1]


def survey(values: NDArray[np.float64]) -> tuple[int, int]:
    """Return the first index whose value is not finite or is below 0, or -1; and the `exact_sum`; in one pass."""
    low, high = np.zeros(0x7FF, dtype=np.int64), np.zeros(0x7FF, dtype=np.int64)
    bad = _fill_bins(read_only(values), low, high)
    total = 0
    if bad < 0:
        for exponent in np.flatnonzero(low | high).tolist():
            total += (int(low[exponent]) + (int(high[exponent]) << 27)) << (exponent - 1)
    return bad, total


def as_float(exact: int) -> float:
    """Round an exact sum to the nearest float64; raise `OverflowError` beyond the largest."""
    return exact / _UNITS


@njit(cache=True, nogil=True)
def _floor_of_top(values: NDArray[np.float64], count: int) -> tuple[np.int64, int]:
    """Return a floor that at least the ``count`` largest values reach, found 16 bits at a time.

    The second result is the number of values above the floor when the floor is a value of the vector. Else it is -1,
    and at most ``2 * count`` values reach the floor.
    """
    bits = values.view(np.uint64)
    counts = np.empty(1 << 16, dtype=np.int64)
    prefix = np.uint64(0)
    above = 0
    shift = 48
    while True:
        counts[:] = 0
        for i in range(len(bits)):
            b = bits[i] & _WITHOUT_SIGN
            if shift == 48 or b >> np.uint64(shift + 16) == prefix:
                counts[np.int64((b >> np.uint64(shift)) & np.uint64(0xFFFF))] += 1
        at = len(counts) - 1
        while above + counts[at] < count:
            above += counts[at]
            at -= 1
        prefix = (prefix << np.uint64(16)) | np.uint64(at)
        if shift == 0:
            return np.int64(prefix), above
        if counts[at] <= count:
            return np.int64(prefix << np.uint64(shift)), -1
        shift -= 16


@njit(cache=True, nogil=True)
def _reaching(values: NDArray[np.float64], least: np.int64, equal: int) -> NDArray[np.int64]:
    """Return ascending indices of values at or above the floor; of equal values only the first ``equal``, if >= 0."""
    bits = values.view(np.uint64)
    floor = np.uint64(least)  # numba converts both sides of a comparison with a signed number to float64
    size = 0
    for i in range(len(bits)):
        if bits[i] & _WITHOUT_SIGN >= floor:
            size += 1
    found = np.empty(size, dtype=np.int64)
    size = 0
    for i in range(len(bits)):
        b = bits[i] & _WITHOUT_SIGN
        if b > floor or (b == floor and equal != 0):
            if b == floor:
                equal -= 1
            found[size] = i
            size += 1
    return found[:size]


@njit(cache=True, nogil=True)
def _radix_descending(values: NDArray[np.float64], order: NDArray[np.int64]) -> bool:
    """Stable sort by descending value: radix on the upper 32 bits, insertion where those are equal.

    Returns False, with ``order`` unusable, when values are so close together that insertion would take too long.
    """
    n = len(values)
    bits = values.view(np.uint64)
    counts = np.zeros((3, 2048), dtype=np.int64)
    digit = np.uint32(2047)
    key, other_key = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    rank, other_rank = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    for i in range(n):
        k = np.uint32((~bits[i] & _WITHOUT_SIGN) >> np.uint64(31))
        key[i] = k
        rank[i] = i
        counts[0, k & digit] += 1
        counts[1, (k >> np.uint32(11)) & digit] += 1
        counts[2, k >> np.uint32(22)] += 1
    for d in range(3):
        place, shift = counts[d], np.uint32(11 * d)
        total = 0
        for j in range(2048):
            total += place[j]
            place[j] = total - place[j]
        for i in range(n):
            j = (key[i] >> shift) & digit
            other_key[place[j]] = key[i]
            other_rank[place[j]] = rank[i]
            place[j] += 1
        key, other_key = other_key, key
        rank, other_rank = other_rank, rank
    steps = 0
    for i in range(n):
        value = values[rank[i]]
        at = i
        while at > 0 and key[at - 1] == key[i] and values[order[at - 1]] < value:
            order[at] = order[at - 1]
            at -= 1
        order[at] = rank[i]
        steps += i - at
        if steps > 16 * n:
            return False
    return True


def top_indices(values: NDArray[np.float64], count: int | None = None) -> NDArray[np.int64]:
    """Return the indices of the ``count`` largest values (default: all), descending, ties on the lower index.

    Only the result is sorted: O(B + count log count). With a small count no second array of size B is made.

    Parameters
    ----------
    values : float64[B]
        Finite, >= 0.
    count : int, optional
        At least 0; more than B counts as B.

    Returns
    -------
    int64[min(count, B)]
        Indices into ``values``.
    """
    values = read_only(values)
    if count is None or count >= len(values):
        return _descending(values)
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    floor, above = _floor_of_top(values, count)
    found = _reaching(values, floor, count - above if above >= 0 else -1)
    return found[_descending(read_only(values[found]))[:count]]


def _descending(values: NDArray[np.float64]) -> NDArray[np.int64]:
    order = np.empty(len(values), dtype=np.int64)
    if _radix_descending(values, order):
        return order
    # The last line restores the order of indices among equal values.
    order = np.argsort(-values)
    ranked = values[order]
    group = np.zeros(len(values), dtype=np.int64)
    np.cumsum(ranked[1:] != ranked[:-1], out=group[1:])
    return order[np.lexsort((order, group))]
