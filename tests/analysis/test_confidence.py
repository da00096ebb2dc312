"""t intervals against scipy and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from planner.analysis import paired_difference, t_interval


def test_interval_is_students():
    values = [42.0, 30.0, 64.0, 58.0, 76.0]
    found = t_interval(values)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.mean, found.n) == (54.0, 5)
    assert t_interval(values, 0.99).half_width > found.half_width


def test_interval_covers_the_mean_at_its_confidence():
    rng = np.random.default_rng(1)
    runs = [t_interval(rng.normal(3.0, 2.0, 5)) for _ in range(4000)]
    covered = np.mean([run.low <= 3.0 <= run.high for run in runs])
    assert covered == pytest.approx(0.95, abs=0.012)


def test_pairing_resolves_a_small_difference_under_large_common_noise():
    common = np.array([10.0, 50.0, 90.0, 20.0, 70.0])
    noise = np.array([0.1, -0.1, 0.05, 0.0, -0.05])
    difference = paired_difference(common + 1.0 + noise, common)
    assert difference.mean == pytest.approx(1.0)
    assert difference.excludes_zero
    assert not paired_difference(common, common[::-1]).excludes_zero
    assert paired_difference(common, common + 2).high == -2.0


def test_one_value_has_no_interval():
    single = t_interval([3.0])
    assert (single.mean, single.half_width, single.low, single.excludes_zero) == (3.0, None, None, False)
    assert single.as_dict()["high"] is None


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="values: expected at least one"):
        t_interval([])
    with pytest.raises(ValueError, match=r"values\[1\] = nan"):
        t_interval([1.0, np.nan])
    with pytest.raises(ValueError, match="2 and 1 values cannot be paired"):
        paired_difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="confidence = 95"):
        t_interval([1.0, 2.0], 95)
