"""How the kernels are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["inline", "inner"]

# Inner functions are called by compiled code alone. Wrappers for calls from Python would unpack some fifty arrays
# each and cost more to compile than the functions themselves.
# The interpreter lock is let go meanwhile: a web thread that simulates does not hold up the others.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = njit(**_OPTIONS)
# A call counts references to every array it hands over, so what runs at every
# iteration is inlined: twice as fast as calling it.
inline = njit(forceinline=True, **_OPTIONS)
