"""Compiler options of the kernels."""

from __future__ import annotations

from typing import Any

from numba import njit

from planner.routing.policies.base import UNCOUNTED

__all__ = ["inline", "inner", "outer"]

# The kernels release the interpreter lock: a web thread that simulates does not block the other threads.
_OPTIONS: dict[str, Any] = {**UNCOUNTED, "nogil": True, "error_model": "numpy"}
# Only compiled code calls inner functions. A wrapper for calls from Python would unpack some fifty arrays and take
# longer to compile than the function.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
outer = njit(cache=True, **_OPTIONS)
inner = njit(**_OPTIONS, **_INNER)
# For functions of a few lines: inlined code is compiled again at every call.
inline = njit(forceinline=True, **_OPTIONS, **_INNER)
