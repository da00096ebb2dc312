"""Checks of planner input: every refusal names the argument, the index and the value."""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["positive", "rate_vector", "whole"]


def rate_vector(name: str, values: ArrayLike, length: int | None = None) -> NDArray[np.float64]:
    """Return ``values`` as a new float64 vector of finite numbers >= 0, or raise ``ValueError``."""
    try:
        raw = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: not a vector of numbers ({error})") from None
    if raw.size and raw.dtype.kind not in "iuf":
        raise ValueError(f"{name}: numbers expected, got dtype {raw.dtype}")
    if raw.ndim != 1 or (length is not None and len(raw) != length):
        raise ValueError(f"{name}: expected shape ({'n' if length is None else length},), got {raw.shape}")
    vector = raw.astype(np.float64)
    bad = ~(np.isfinite(vector) & (vector >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"{name}[{at}] = {vector[at]}: expected a finite number >= 0")
    with np.errstate(over="ignore"):
        total = vector.sum()
    if not np.isfinite(total):
        at = int(np.argmax(vector))
        raise ValueError(f"{name}: the sum overflows; largest is {name}[{at}] = {vector[at]}")
    return vector


def positive(name: str, value: float, least: float = 0.0) -> float:
    """Return ``value`` as a finite float above 0 and at least ``least``, or raise ``ValueError``."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} = {value!r}: a number expected") from None
    if not (np.isfinite(number) and number > 0 and number >= least):
        want = f"at least {least}" if least else "above 0"
        raise ValueError(f"{name} = {value}: expected a finite number {want}")
    return number


def whole(name: str, value: int, least: int) -> int:
    """Return ``value`` as an int of at least ``least``, or raise ``ValueError``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} = {value!r}: a whole number expected") from None
    if number < least:
        raise ValueError(f"{name} = {value}: expected at least {least}")
    return number
