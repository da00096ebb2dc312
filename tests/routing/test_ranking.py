"""Selection and sums that do not depend on the order of the input."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.routing.ranking import as_float, exact_sum, survey, top_indices

VALUES = st.lists(
    st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1e-300, 1e300, 2.0]),
        st.floats(0, 1e308, allow_nan=False),
        st.integers(0, 4).map(lambda i: 1.0 + i * 2**-52),  # equal in all but the last bits
    ),
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(values=VALUES, count=st.one_of(st.none(), st.integers(0, 70)))
def test_top_indices_are_those_of_a_stable_sort(values, count):
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert top_indices(np.array(values, dtype=float), count).tolist() == expected


@pytest.mark.parametrize("count", [1, 700, 50_000, 99_999, None])
@pytest.mark.parametrize("kind", ["lognormal", "close", "equal", "few"])
def test_top_of_many_values_is_that_of_a_stable_sort(kind, count):
    rng = np.random.default_rng(3)
    values = {
        "lognormal": rng.lognormal(0, 2, 100_000),
        "close": 1.0 + rng.random(100_000) * 1e-12,  # one bucket of the radix sort
        "equal": np.full(100_000, 7.5),
        "few": rng.integers(0, 3, 100_000) * 1.0,
    }[kind]
    expected = np.lexsort((np.arange(len(values)), -values))[:count]
    assert np.array_equal(top_indices(values, count), expected)


@settings(max_examples=400, deadline=None)
@given(values=st.lists(st.floats(0, 1e305, allow_nan=False), max_size=60), seed=st.integers(0, 99))
def test_exact_sum_is_the_correctly_rounded_sum_in_any_order(values, seed):
    vector = np.array(values, dtype=float)
    assert as_float(exact_sum(vector)) == math.fsum(values)
    assert exact_sum(np.random.default_rng(seed).permutation(vector)) == exact_sum(vector)


def test_exact_sum_of_many_values_does_not_overflow_its_bins():
    values = np.full(3_000_000, np.nextafter(2.0, 0.0))
    assert exact_sum(values) == 3_000_000 * exact_sum(values[:1])


@pytest.mark.parametrize(
    ("value", "bad"), [(np.nan, 2), (np.inf, 2), (-1.0, 2), (-np.nan, 2), (-0.0, -1), (5e-324, -1)]
)
def test_survey_finds_the_first_value_that_is_not_a_rate(value, bad):
    assert survey(np.array([1.0, 0.0, value, value]))[0] == bad


def test_selection_of_a_few_takes_hardly_any_memory():
    values = np.random.default_rng(0).lognormal(0, 2, 2_000_000)
    top_indices(values, 10)
    tracemalloc.start()
    top_indices(values, 20_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes / 4
