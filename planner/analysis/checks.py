"""Checks of arguments of this package; an error names the argument and the first bad index."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["refuse", "whole"]


def whole(name: str, values: ArrayLike, least: int = 0) -> NDArray[np.int64]:
    """Return a vector of whole numbers, contiguous.

    Parameters
    ----------
    name : str
        Name of the argument in error messages.
    values : array_like
        The vector to check.
    least : int
        Lowest value.

    Returns
    -------
    int64[n]
        The values.

    Raises
    ------
    ValueError
        Naming the argument and the first bad index.
    """
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name}: whole numbers expected, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, got shape {array.shape}")
    array = np.ascontiguousarray(array, dtype=np.int64)
    refuse(name, array, array < least, f"at least {least}")
    return array


def refuse(name: str, values: NDArray[np.generic], bad: NDArray[np.bool_], want: str) -> None:
    """Raise ValueError for the first bad value, if there is one.

    Parameters
    ----------
    name : str
        Name of the argument in the message.
    values : array[n]
        The values.
    bad : bool[n]
        Whether each value is bad.
    want : str
        The expected value, in words.

    Raises
    ------
    ValueError
        Naming the argument, the first bad index, its value and the expectation.
    """
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"{name}[{at}] = {values[at]}: expected {want}")
