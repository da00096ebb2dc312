"""The latency sketch against the raw sample and against scipy's binomial."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from planner.analysis.latency import (
    FIRST,
    FORMAT,
    GROWTH,
    LARGEST_S,
    LAST,
    MAX_COUNT,
    RELATIVE_ERROR,
    SMALLEST_S,
    LatencySketch,
    at_most,
    merge,
)

seconds = st.lists(st.floats(0, LARGEST_S, allow_nan=False), max_size=60)


def sketch(values) -> LatencySketch:
    return LatencySketch.from_samples(values)


@given(seconds.filter(bool), st.floats(0.001, 1.0))
def test_every_quantile_is_within_one_percent_of_the_sample(values, q):
    exact = float(np.quantile(values, q, method="inverted_cdf"))
    found = sketch(values).quantile(q)
    assert abs(found - exact) <= max(SMALLEST_S, RELATIVE_ERROR * exact * (1 + 1e-9))


def test_quantiles_of_a_large_sample_are_within_one_percent():
    values = np.random.default_rng(7).lognormal(0, 1.5, 100_000)
    for q in (0.001, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = float(np.quantile(values, q, method="inverted_cdf"))
        assert sketch(values).quantile(q) == pytest.approx(exact, rel=0.01)


@given(seconds, seconds, seconds)
def test_merged_sketch_equals_the_sketch_of_all_values(a, b, c):
    together = sketch([*a, *b, *c])
    assert merge([sketch(a), sketch(b), sketch(c)]) == together
    assert merge([sketch(c), merge([sketch(b), sketch(a)])]) == together
    assert merge([together, LatencySketch.empty()]) == together
    assert together.n == len(a) + len(b) + len(c)


@given(seconds)
def test_a_sketch_survives_json(values):
    payload = json.loads(json.dumps(sketch(values).as_payload()))
    assert LatencySketch.from_payload(payload) == sketch(values)


@given(st.integers(FIRST + 1, LAST - 1))
def test_a_bucket_holds_its_upper_edge_and_not_its_lower(index):
    upper = GROWTH ** np.float64(index)
    inside = sketch([upper * (1 - 1e-9)]).as_payload()["buckets"]
    above = sketch([upper * (1 + 1e-9)]).as_payload()["buckets"]
    assert (inside, above) == ({str(index): 1}, {str(index + 1): 1})
    # The formula of the documentation for routers.
    assert math.ceil(math.log(upper * (1 - 1e-9)) / math.log(GROWTH)) == index


def test_latencies_at_the_ends_of_the_range_are_counted():
    found = sketch([0.0, SMALLEST_S, SMALLEST_S * 1.001, LARGEST_S]).as_payload()
    assert found == {"format": FORMAT, "zero": 2, "buckets": {str(FIRST): 1, str(LAST): 1}}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.001, LARGEST_S * 1.01])
def test_invalid_latency_is_refused_by_index(bad):
    with pytest.raises(ValueError, match=r"seconds\[1\]"):
        sketch([1.0, bad])


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ([], "expected a sketch"),
        ({"format": "cacheroute.sketch/2"}, "format"),
        ({}, "format"),
        ({"format": FORMAT, "text": "hello"}, "'text' is not a field"),
        ({"format": FORMAT, "buckets": [1]}, "buckets"),
        ({"format": FORMAT, "buckets": {"1.5": 1}}, "not a whole number"),
        ({"format": FORMAT, "buckets": {"07": 1}}, "not a whole number"),
        ({"format": FORMAT, "buckets": {"-0": 1}}, "not a whole number"),
        ({"format": FORMAT, "buckets": {"": 1}}, "not a whole number"),
        ({"format": FORMAT, "buckets": {str(LAST + 1): 1}}, "outside"),
        ({"format": FORMAT, "buckets": {str(FIRST - 1): 1}}, "outside"),
        ({"format": FORMAT, "buckets": {"7": -1}}, r"buckets\[7\]"),
        ({"format": FORMAT, "buckets": {"7": 1.0}}, r"buckets\[7\]"),
        ({"format": FORMAT, "buckets": {"7": True}}, r"buckets\[7\]"),
        ({"format": FORMAT, "buckets": {"7": MAX_COUNT + 1}}, r"buckets\[7\]"),
        ({"format": FORMAT, "zero": None}, "zero"),
    ],
)
def test_invalid_payload_is_refused_with_the_fault(payload, message):
    with pytest.raises(ValueError, match=message):
        LatencySketch.from_payload(payload)


@given(st.integers(0, 3_000), st.floats(0.001, 0.999), st.data())
def test_the_binomial_is_that_of_scipy(n, p, data):
    k = data.draw(st.integers(-1, n + 1))
    assert at_most(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3_000), st.sampled_from([0.5, 0.9, 0.99]), st.sampled_from([0.9, 0.95, 0.999]))
def test_interval_ends_are_binomial_order_statistics(n, q, confidence):
    values = np.arange(1, n + 1, dtype=np.float64)
    tail = (1 - confidence) / 2
    found = sketch(values).quantile_interval(q, confidence)
    # Plain counting down and up: rank l is above the quantile with P(B <= l - 1), rank u below it with P(B >= u).
    cdf = stats.binom.cdf(np.arange(-1, n + 1), n, q)
    low_rank = max((rank for rank in range(1, n + 1) if cdf[rank] <= tail), default=0)
    high_rank = min((rank for rank in range(1, n + 1) if 1 - cdf[rank] <= tail), default=n + 1)
    expected_low = 0.0 if low_rank == 0 else values[low_rank - 1]
    assert found.low <= expected_low <= max(found.low * GROWTH * (1 + 1e-9), 0)
    if high_rank == n + 1:
        assert found.high == math.inf
    else:
        assert found.high / GROWTH * (1 - 1e-9) <= values[high_rank - 1] <= found.high
    assert found.low <= found.value <= found.high


def test_the_interval_holds_the_true_quantile_as_often_as_it_says():
    rng = np.random.default_rng(3)
    true = stats.expon.ppf(0.99)
    held = 0
    for _ in range(1_000):
        found = sketch(rng.exponential(size=2_000)).quantile_interval(0.99, 0.9)
        held += found.low <= true <= found.high
    # 900 are promised; buckets of 2% and whole ranks add some. 860 would be 4 standard deviations short.
    assert held >= 875


@pytest.mark.parametrize(("n", "bounded"), [(367, False), (368, True)])
def test_p99_has_an_upper_bound_from_368_values(n, bounded):
    # 0.99^367 = 0.02500...: the largest value is below the p99 with a chance of more than 2.5%.
    assert math.isfinite(sketch(np.linspace(1, 2, n)).quantile_interval(0.99).high) is bounded


def test_empty_sketch_has_no_quantiles():
    found = LatencySketch.empty().quantile_interval(0.99)
    assert math.isnan(found.value)
    assert (found.low, found.high) == (0.0, math.inf)
    assert found.as_dict() == {"value": None, "low": 0.0, "high": None, "n": 0}


@pytest.mark.parametrize(("q", "confidence"), [(0, 0.9), (1, 0.9), (0.9, 0), (0.9, 1), (math.nan, 0.9)])
def test_shares_outside_their_range_are_refused(q, confidence):
    with pytest.raises(ValueError, match="expected a share"):
        sketch([1.0]).quantile_interval(q, confidence)
