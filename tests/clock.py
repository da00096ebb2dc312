"""The clock that tests are given: it is half past a minute, and each look at it takes a tenth of a millisecond.

What a test sees follows from what it does, and not from the second in which it runs or from the speed of the machine:
no minute ends within a test, and 5 minutes from now are 5 minutes away when the page is drawn.
"""

from __future__ import annotations

import datetime as dt
import threading

LOOK = dt.timedelta(microseconds=100)


class Clock:
    """Replaces ``timezone.now``."""

    def __init__(self) -> None:
        self._now = dt.datetime.now(dt.UTC).replace(second=30, microsecond=0)
        self._lock = threading.Lock()

    def __call__(self) -> dt.datetime:
        """The time; every look is a little later than the one before."""
        with self._lock:
            self._now += LOOK
            return self._now

    def move(self, **delta: float) -> None:
        """Let time pass."""
        with self._lock:
            self._now += dt.timedelta(**delta)
