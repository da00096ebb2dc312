"""Each method finds its knee, and reports a sweep that does not bracket it as censored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.simulation.knee import KNEES, find_knee

LOADS = [1.0, 2.0, 3.0, 4.0, 5.0]
BEND = [1.0, 1.1, 1.2, 1.4, 6.0]


@pytest.mark.parametrize(
    ("options", "q_cap", "censored", "method"),
    [
        ({"method": "factor"}, 4.0, None, "p99 within 2 x p99 at the lowest load"),
        ({"method": "factor", "factor": 1.3}, 3.0, None, "p99 within 1.3 x p99 at the lowest load"),
        ({"method": "factor", "factor": 10.0}, 5.0, "right", "p99 within 10 x p99 at the lowest load"),
        ({"method": "factor", "factor": 1.05}, 1.0, "left", "p99 within 1.05 x p99 at the lowest load"),
        ({"method": "slo", "slo_s": 1.25}, 3.0, None, "p99 within 1.25 s"),
        ({"method": "slo", "slo_s": 1.0}, 1.0, None, "p99 within 1 s"),
        ({"method": "slo", "slo_s": 0.9}, 1.0, "left", "p99 within 0.9 s"),
        ({"method": "slo", "slo_s": 6.0}, 5.0, "right", "p99 within 6 s"),
        ({"method": "chord"}, 4.0, None, "farthest below the chord of load and p99 (Kneedle; p99 rose above 2 x)"),
    ],
)
def test_each_method_finds_its_knee_on_one_curve(options, q_cap, censored, method):
    knee = find_knee(LOADS, BEND, **options)
    assert (knee.q_cap, knee.censored, knee.method) == (q_cap, censored, method)
    assert len(method) <= 120


def test_the_chord_finds_the_bend_of_a_queue():
    load = np.linspace(0.05, 0.99, 95)
    knee = find_knee(load.tolist(), (1 / (1 - load)).tolist(), method="chord")
    # The farthest point below the chord has the chord's slope: 1 / (1 - x)^2 = slope.
    slope = (1 / (1 - load[-1]) - 1 / (1 - load[0])) / (load[-1] - load[0])
    assert knee.q_cap == pytest.approx(1 - slope**-0.5, abs=0.006)


@pytest.mark.parametrize(
    ("p99", "q_cap", "censored"),
    [
        ([1.0, 1.2, 1.4, 1.6, 1.8], 5.0, "right"),  # never took off
        ([1.0, 2.0, 3.0, 4.0, 5.0], 1.0, "left"),  # straight: no bend
        ([1.0, 4.0, 4.5, 4.8, 5.0], 1.0, "left"),  # rose before the second load
    ],
)
def test_a_curve_without_a_bend_is_censored_by_the_chord(p99, q_cap, censored):
    knee = find_knee(LOADS, p99, method="chord")
    assert (knee.q_cap, knee.censored) == (q_cap, censored)


def test_a_load_counts_only_if_every_lower_one_does():
    assert find_knee(LOADS, [1.0, 1.1, 3.0, 1.2, 9.0]).q_cap == 2.0
    assert find_knee(LOADS, [1.0, 1.1, 3.0, 1.2, 9.0], method="slo", slo_s=2.0).q_cap == 2.0


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=30, unique=True),
    st.lists(st.floats(0.001, 1e3), min_size=30, max_size=30),
    st.sampled_from(sorted(KNEES)),
    st.floats(0.001, 1e3),
)
def test_the_knee_is_a_load_of_the_sweep_and_everything_up_to_it_is_within_the_bound(loads, p99, method, slo):
    loads, p99 = sorted(loads), p99[: len(loads)]
    knee = find_knee(loads, p99, method=method, slo_s=slo if method == "slo" else None)
    at = loads.index(knee.q_cap)
    if method != "chord":
        bound = slo if method == "slo" else 2 * p99[0]
        kept = [value <= bound for value in p99]
        assert all(kept[: at + 1]) or knee.censored == "left"
        assert (knee.censored == "right") == all(kept)
    if knee.censored == "right":
        assert knee.q_cap == loads[-1]
    if knee.censored == "left":
        assert at == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "p99_s: .* at least one"),
        (([1.0], [1.0, 2.0]), "p99_s: .*expected one for each load"),
        (([1.0, np.nan], [1.0, 2.0]), r"load_rps\[1\] = nan"),
        (([1.0, 2.0], [1.0, np.inf]), r"p99_s\[1\] = inf"),
        (([1.0, 2.0], [0.0, 1.0]), r"p99_s\[0\] = 0.0"),
        (([2.0, 2.0], [1.0, 1.0]), r"load_rps\[1\] = 2.0: expected above the load before it"),
    ],
)
def test_points_that_are_not_a_sweep_are_refused_by_index_and_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_knee(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "eye"}, "knee = 'eye': expected one of factor, chord, slo"),
        ({"factor": 1.0}, "knee_factor = 1.0"),
        ({"method": "slo"}, "slo_s = None"),
        ({"method": "chord", "slo_s": 1.0}, "slo_s = 1.0: knee = 'chord'"),
        ({"method": "slo", "slo_s": -1.0}, "slo_s = -1.0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        find_knee(LOADS, BEND, **options)
