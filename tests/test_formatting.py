"""Numbers as people read them."""

from __future__ import annotations

import pytest

from planner.formatting import give_or_take, interval, rounded, signed, spaced_bounds, span, span_about
from planner.services.replays.verdicts import _capacity
from planner.simulation import capacity


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (490.0, 2, "490"),
        (1234.5, 2, "1200"),
        (0.000123, 2, "0.00012"),
        (0.0, 3, "0"),
        (-3.25, 2, "-3.2"),
        (86.0, 3, "86"),
    ],
)
def test_numbers_are_rounded_and_never_have_an_exponent(value, digits, text):
    assert rounded(value, digits) == text


def test_a_mean_without_an_interval_stands_alone():
    assert give_or_take(160.0, None) == "160"
    assert give_or_take(160.0, 9.0) == "160 ± 9"


def test_a_capacity_over_seeds_never_claims_what_was_not_tested():
    loads = [60.0, 120.0, 180.0, 240.0]

    def of(passed):
        return capacity(loads, [1.0] * passed + [9.0] * (4 - passed), 3.5)

    wide = _capacity([of(1), of(3), of(2)], [1, 3, 2], 4)
    assert wide.text == "60 to 180"  # a t interval would go from -29 to 269
    same = _capacity([of(2), of(2), of(2)], [2, 2, 2], 4)
    assert same.text == "120"


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (">=240", "≥ 240"),
        ("<60", "< 60"),
        ("60 to 180", "60 to 180"),
        ("p99 ≤ 3.5 s, Flat-LB <2.61", "p99 ≤ 3.5 s, Flat-LB < 2.61"),
    ],
)
def test_bounds_are_shown_with_a_sign_and_a_space(stored, shown):
    assert spaced_bounds(stored) == shown


def test_an_estimated_time_is_shown_in_whole_units():
    assert [span_about(s) for s in (49.9, 236.0, None)] == ["50 s", "4 min", "–"]
    assert span(236.0) == "3.93 min"


def test_a_mean_and_a_difference_have_their_interval_and_unit():
    assert interval(4.689, 0.123, "s") == "4.69 ± 0.12 s"
    assert interval(None, None, "s") == "–"
    assert signed(-0.031, 0.004, "%") == "−3.1 ± 0.4 points"
