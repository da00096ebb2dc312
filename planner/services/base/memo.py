"""In-process cache of values that take long to compute: bounded in bytes and age, each value computed once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import pyarrow as pa

T = TypeVar("T")
# Seconds between two checks of a waiting thread that its result is still needed.
ASK_EVERY_S = 0.2


class Memo(Generic[T]):
    """Values by key; the least recently used is dropped first.

    Parameters
    ----------
    max_bytes
        Limit for all values; half of it while another value is computed. The newest value is kept even if it
        alone is larger, because its caller will request it again.
    size_of
        Bytes of a value.
    idle_s
        Drop everything after this many seconds without a request.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[T], int], idle_s: float) -> None:
        self.max_bytes, self.idle_s = max_bytes, idle_s
        self._size_of = size_of
        self._rows: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()
        self._used = 0.0
        self._watched = False

    def get(self, key: Hashable, make: Callable[[], T], checkpoint: Callable[[], None] = lambda: None) -> T:
        """Return the value of a key; compute it if it is not cached.

        One lock guards the cache: one thread computes, and the others wait, also for values of other keys.

        Parameters
        ----------
        key
            Name of the value.
        make
            Computes the value. An exception that it raises is passed on, and nothing is cached.
        checkpoint
            Called every 0.2 seconds while the thread waits for the lock. An exception that it raises ends the wait.

        Returns
        -------
        T
            The value.
        """
        while not self._lock.acquire(timeout=ASK_EVERY_S):
            checkpoint()
        try:
            if key not in self._rows:
                self._trim(self.max_bytes // 2, keep=0)
                self._rows[key] = make()
                self._trim(self.max_bytes, keep=1)
            self._rows.move_to_end(key)
            self._used = time.monotonic()
            self._watch(self.idle_s)
            return self._rows[key]
        finally:
            self._lock.release()

    def drop(self) -> None:
        """Drop all values, except one that is being computed."""
        if self._lock.acquire(blocking=False):
            try:
                self._rows.clear()
            finally:
                self._lock.release()
            pa.default_memory_pool().release_unused()

    @property
    def size(self) -> int:
        """Total size of the kept values, bytes."""
        return sum(self._size_of(value) for value in list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def _trim(self, most: int, keep: int) -> None:
        while len(self._rows) > keep and self.size > most:
            self._rows.popitem(last=False)

    def _watch(self, after_s: float) -> None:
        if not self._watched:
            self._watched = True
            timer = threading.Timer(after_s, self._look)
            timer.daemon = True
            timer.start()

    def _look(self) -> None:
        with self._lock:
            self._watched = False
            left = self._used + self.idle_s - time.monotonic()
            if left > 0:
                self._watch(left)
                return
            self._rows.clear()
        pa.default_memory_pool().release_unused()
