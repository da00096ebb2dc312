"""Checks of planner input: every error names the argument, the index and the value."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.ranking import as_float, read_only, survey

__all__ = ["flags", "index_vector", "positive", "rate_vector", "share", "summed", "whole", "within"]


_LARGEST_INDEX = int(np.iinfo(np.int64).max)


def _numbers(name: str, values: ArrayLike, length: int | None, kinds: str, expected: str) -> NDArray[Any]:
    try:
        raw = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: not a vector of {expected} ({error})") from None
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        at = int(np.argmax(np.ma.getmaskarray(values)))
        raise ValueError(f"{name}[{at}] is masked: {expected} expected")
    if raw.dtype.kind == "O" and raw.ndim == 1:
        for at, value in enumerate(raw.tolist()):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name}[{at}] = {value!r}: {expected} expected")
            if abs(value) > _LARGEST_INDEX and "f" not in kinds:
                raise ValueError(f"{name}[{at}] = {value}: beyond the range of int64")
        if "f" in kinds:
            raw = np.array([_as_number(name, at, value) for at, value in enumerate(raw.tolist())])
    if raw.size and raw.dtype.kind not in kinds:
        raise ValueError(f"{name}: {expected} expected, got dtype {raw.dtype}")
    if raw.ndim != 1 or (length is not None and len(raw) != length):
        raise ValueError(f"{name}: expected shape ({'n' if length is None else length},), got {raw.shape}")
    return raw


def rate_vector(name: str, values: ArrayLike, length: int | None = None) -> NDArray[np.float64]:
    """Return a vector of finite numbers >= 0.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    values : array_like
        The vector to check.
    length : int, optional
        Required length; by default any.

    Returns
    -------
    float64[n]
        ``values`` itself, read-only, if it has this type already.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    return summed(name, values, length)[0]


def summed(name: str, values: ArrayLike, length: int | None = None) -> tuple[NDArray[np.float64], int]:
    """Return a `rate_vector` and its exact sum.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    values : array_like
        The vector to check.
    length : int, optional
        Required length; by default any.

    Returns
    -------
    vector : float64[n]
        As `rate_vector` returns it.
    total : int
        Its `exact_sum`, finite as a float64.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    raw = _numbers(name, values, length, "iuf", "numbers")
    vector = read_only(np.asarray(raw, dtype=np.float64))
    bad, total = survey(vector)
    if bad >= 0:
        raise ValueError(f"{name}[{bad}] = {raw[bad]}: expected a finite number >= 0")
    try:
        as_float(total)
    except OverflowError:
        at = int(np.argmax(vector))
        raise ValueError(f"{name}: the sum overflows; largest is {name}[{at}] = {vector[at]}") from None
    return vector, total


def index_vector(
    name: str, values: ArrayLike, length: int | None = None, least: int = 0, most: int = _LARGEST_INDEX
) -> NDArray[np.int64]:
    """Return a vector of whole numbers from ``least`` to ``most``.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    values : array_like
        The vector to check.
    length : int, optional
        Required length; by default any.
    least, most : int
        Bounds of each value.

    Returns
    -------
    int64[n]
        A new array.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    raw = _numbers(name, values, length, "iu", "whole numbers")
    bad = (raw < least) | (raw > most)
    if bad.any():
        at = int(np.argmax(bad))
        upper = "" if most == _LARGEST_INDEX else f" and at most {most}"
        raise ValueError(f"{name}[{at}] = {raw[at]}: expected a whole number of at least {least}{upper}")
    return raw.astype(np.int64)


def flags(name: str, values: ArrayLike, length: int) -> NDArray[np.bool_]:
    """Return a vector of booleans.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    values : array_like
        The vector to check.
    length : int
        Required length.

    Returns
    -------
    bool[length]
        The values.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    return _numbers(name, values, length, "b", "booleans").astype(bool)


def within(name: str, values: ArrayLike, length: int, bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Return a vector of numbers within bounds.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    values : array_like
        The vector to check.
    length : int
        Required length.
    bounds : (float, float)
        Lowest and highest value.

    Returns
    -------
    float64[length]
        A new array.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    vector = rate_vector(name, values, length).copy()
    bad = (vector < bounds[0]) | (vector > bounds[1])
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"{name}[{at}] = {vector[at]}: expected a number from {bounds[0]:g} to {bounds[1]:g}")
    return vector


def positive(name: str, value: float, least: float = 0.0) -> float:
    """Return a finite number above 0.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    value : float
        The value to check.
    least : float
        Lowest value.

    Returns
    -------
    float
        The value.

    Raises
    ------
    ValueError
        Naming the argument and the value.
    """
    number = _number(name, value)
    if not (np.isfinite(number) and number > 0 and number >= least):
        want = f"at least {least}" if least else "above 0"
        raise ValueError(f"{name} = {value}: expected a finite number {want}")
    return number


def share(name: str, value: float) -> float:
    """Return a number from 0 to 1, or raise ``ValueError``."""
    number = _number(name, value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} = {value}: expected a share from 0 to 1")
    return number


def _number(name: str, value: float) -> float:
    if isinstance(value, str | bytes):
        raise ValueError(f"{name} = {value!r}: a number expected")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} = {value!r}: a number expected") from None
    except OverflowError:
        raise ValueError(f"{name}: a finite number expected, got one beyond float64") from None


def _as_number(name: str, at: int, value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}[{at}]: a finite number expected, got one beyond float64") from None


def whole(name: str, value: int, least: int) -> int:
    """Return a whole number.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    value : int
        The value to check.
    least : int
        Lowest value.

    Returns
    -------
    int
        The value.

    Raises
    ------
    ValueError
        Naming the argument and the value.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} = {value!r}: a whole number expected") from None
    if number < least:
        raise ValueError(f"{name} = {value}: expected at least {least}")
    return number
