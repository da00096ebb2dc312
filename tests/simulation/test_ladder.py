"""Capacity from a ladder: only what every lower load supports, with its censoring."""

from __future__ import annotations

import numpy as np
import pytest

from planner.simulation import capacity


@pytest.mark.parametrize(
    ("p99", "shown", "value", "censored"),
    [
        ([1.0, 2.0, 9.0], "60", 60.0, None),
        ([1.0, 2.0, 3.5], ">=90", 90.0, "right"),
        ([4.0, 1.0, 1.0], "<30", None, "left"),
        ([1.0, 4.0, 1.0], "30", 30.0, None),  # a pass above a fail does not count
        ([1.0, np.nan, 1.0], "30", 30.0, None),
        ([np.inf, np.nan, 1.0], "<30", None, "left"),
    ],
)
def test_capacity_and_its_censoring(p99, shown, value, censored):
    found = capacity([30, 60, 90], p99, 3.5)
    assert (str(found), found.value, found.censored) == (shown, value, censored)


def test_order_of_the_loads_does_not_matter():
    assert capacity([90, 30, 60], [9.0, 1.0, 2.0], 3.5) == capacity([30, 60, 90], [1.0, 2.0, 9.0], 3.5)


@pytest.mark.parametrize(
    ("loads", "p99", "slo", "message"),
    [
        ([], [], 1.0, "at least one load"),
        ([1.0], [1.0, 2.0], 1.0, "p99: expected shape"),
        ([1.0, -2.0], [1.0, 2.0], 1.0, r"loads\[1\] = -2.0"),
        ([2.0, 2.0], [1.0, 2.0], 1.0, "2.0 is there twice"),
        ([2.0], [1.0], 0.0, "slo_s = 0.0"),
    ],
)
def test_bad_ladders_are_refused(loads, p99, slo, message):
    with pytest.raises(ValueError, match=message):
        capacity(loads, p99, slo)
