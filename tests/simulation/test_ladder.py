"""Capacity from a ladder: a load counts only if every lower load passes; with its censoring."""

from __future__ import annotations

import numpy as np
import pytest

from planner.simulation import capacity
from planner.simulation.ladder import next_load


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
        ([2.0, 2.0], [1.0, 2.0], 1.0, "2.0 is given twice"),
        ([2.0], [1.0], 0.0, "slo_s = 0.0"),
    ],
)
def test_bad_ladders_are_refused(loads, p99, slo, message):
    with pytest.raises(ValueError, match=message):
        capacity(loads, p99, slo)


@pytest.mark.parametrize(
    ("p99", "extend", "expected"),
    [
        ([1.0, 2.0, 9.0], False, 75.0),
        ([1.0, 9.0, 9.0], False, 45.0),
        ([1.0, 9.0, 1.0], True, 45.0),  # the bracket ends at the first failure
        ([1.0, 2.0, 3.0], False, None),
        ([9.0, 9.0, 9.0], False, None),
        ([1.0, 2.0, 3.0], True, 180.0),
        ([np.nan, 1.0, 1.0], True, 15.0),
    ],
)
def test_next_load_halves_the_bracket_and_extends_open_ends_only_on_request(p99, extend, expected):
    assert next_load([30, 60, 90], p99, 3.5, extend=extend) == expected
    assert next_load([90, 60, 30], p99[::-1], 3.5, extend=extend) == expected


def test_bisection_finds_the_capacity_and_ends():
    limit = 47.123
    loads = [10.0, 100.0]
    while (load := next_load(loads, [1.0 if x <= limit else 9.0 for x in loads], 3.5)) is not None:
        assert load not in loads
        loads.append(load)
        assert len(loads) < 30
    assert capacity(loads, [1.0 if x <= limit else 9.0 for x in loads], 3.5).value == 47.12


def test_extension_stops_at_the_bounds_of_loads():
    assert next_load([1.5e-6], [9.0], 3.5, extend=True) is None
    assert next_load([6e7], [1.0], 3.5, extend=True) is None
