"""How much a run tries: `make test` and CI on every change, `make nightly` (NIGHTLY=1) with many more examples.

Nothing runs only at night. Sizes are chosen with `pick`, and `enlarge` multiplies the examples of every property test.
An ordinary run draws the same examples each time, so that its outcome follows from the code; a nightly run draws new
ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hypothesis import settings

NIGHTLY = os.environ.get("NIGHTLY") == "1"
FACTOR = 5  # times as many examples at night

settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.register_profile("nightly", deadline=None, print_blob=True)
settings.load_profile("nightly" if NIGHTLY else "ci")


def pick(ordinary: int, nightly: int) -> int:
    """The size for this run."""
    return nightly if NIGHTLY else ordinary


def enlarge(items: Iterable[Any]) -> int:
    """Multiply the examples of the property tests among the collected tests; return how many tests that are."""
    seen = set()
    for item in items:
        test = getattr(item, "obj", None)
        test = getattr(test, "__func__", test)
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None and test not in seen:
            seen.add(test)
            test._hypothesis_internal_use_settings = settings(own, max_examples=own.max_examples * FACTOR)
    return len(seen)
