"""Time of a computation, independent of the machine and of its other load.

The CPU time of the calling thread, in units of a fixed loop on the same machine at the same moment: a slow machine, a
low clock rate or other processes change both. Where a test waits for other processes, `lateness` measures how busy the
machine is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

USUAL = 0.02  # seconds that the fixed loop takes on a core of an ordinary server
LOOP = 1_000_000


def _cpu(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


def _fixed() -> int:
    return sum(number & 7 for number in range(LOOP // 2)) + sum(range(LOOP))


def lateness() -> float:
    """How much longer than usual a wait may take now: 1 on an idle machine, more where others use the processors."""
    slowest = 0.0
    for _ in range(3):
        began = time.monotonic()
        _fixed()
        slowest = max(slowest, (time.monotonic() - began) / USUAL)
    return 1.0 if slowest < 1.5 else 4 * slowest


def usual_seconds(call: Callable[[], object], *, times: int = 3) -> float:
    """CPU seconds that the call would take on an ordinary server: the best of some attempts."""
    tracer = sys.gettrace()  # coverage would time itself
    sys.settrace(None)
    try:
        return min(_cpu(call) / _cpu(_fixed) for _ in range(times)) * USUAL
    finally:
        sys.settrace(tracer)
