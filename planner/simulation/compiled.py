"""How the kernels are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit

from planner.routing.policies.base import UNCOUNTED

__all__ = ["inline", "inner", "outer"]

# The interpreter lock is let go meanwhile: a web thread that simulates does not hold up the others.
_OPTIONS: dict[str, Any] = {**UNCOUNTED, "nogil": True, "error_model": "numpy"}
# Inner functions are called by compiled code alone and kept as a part of it. Wrappers for calls from Python would
# unpack some fifty arrays each and cost more to compile than the functions themselves.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
outer = njit(cache=True, **_OPTIONS)
inner = njit(**_OPTIONS, **_INNER)
# For a few lines: what is inlined is compiled again at every place.
inline = njit(forceinline=True, **_OPTIONS, **_INNER)
