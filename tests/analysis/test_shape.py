"""Concentration of rates against its definition and the source's figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfinv
from scipy.stats import norm

from planner.analysis import gini, rate_shape

RATES = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(RATES)
def test_gini_is_half_the_relative_mean_difference(rates):
    mean = np.mean(rates)
    if mean < 1e-200:
        assert gini([0.0] * len(rates)) == 0.0
        return
    expected = np.abs(np.subtract.outer(rates, rates)).mean() / (2 * mean)
    assert gini(rates) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(RATES)
def test_shares_are_those_of_the_sorted_vector(rates):
    shape = rate_shape(rates)
    total = sum(rates)
    descending = sorted(rates, reverse=True)
    assert shape.active_keys == sum(r > 0 for r in rates)
    if total > 1e-200:
        head = -(-4 * len(rates) // 100)
        assert shape.top_4pct_share == pytest.approx(sum(descending[:head]) / total)
        assert shape.largest_share == pytest.approx(max(rates) / total)
        assert sum(descending[: shape.keys_for_half]) >= 0.5 * total * (1 - 1e-12)
        assert sum(descending[: shape.keys_for_half - 1]) < 0.5 * total * (1 + 1e-12)


def test_lognormal_vector_has_the_shape_of_the_main_workload():
    keys = 128_824
    shape = rate_shape(np.exp(2 * erfinv(0.756) * norm.ppf(np.arange(1, keys + 1) / (keys + 1))))
    assert shape.gini == pytest.approx(0.756, abs=0.003)
    assert 0.45 <= shape.top_4pct_share <= 0.48
    assert shape.largest_share <= 0.003
    assert shape.active_keys == shape.keys == keys


def test_extremes():
    assert gini([]) == gini([0.0, 0.0]) == gini([5.0] * 9) == gini([1e300] * 9) == 0.0
    assert gini([0.0] * 99 + [1.0]) == pytest.approx(0.99)
    empty = rate_shape([])
    assert (empty.keys, empty.gini, empty.top_4pct_share, empty.keys_for_half) == (0, 0.0, 0.0, 0)
    assert rate_shape([0.0, 0.0]).largest_share == 0.0
    one = rate_shape([0.0, 3.0])
    assert (one.active_keys, one.largest_share, one.keys_for_half, one.keys_for_90pct) == (1, 1.0, 1, 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_rates_are_refused_by_index(bad):
    with pytest.raises(ValueError, match=r"rates\[2\] = "):
        gini([1.0, 2.0, bad])
    with pytest.raises(ValueError, match=r"rates: expected shape"):
        rate_shape([[1.0]])
