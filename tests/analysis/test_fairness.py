"""Jain's index at its known values, and the figures of tenants against a plain reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis import jain_index, per_tenant

AMOUNTS = st.lists(st.floats(0, 1e12), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3, 3, 3], 1.0), ([5, 0, 0, 0], 0.25), ([1, 2], 0.9), ([0, 0], 1.0), ([1e-300, 1e-300], 1.0), ([1e300], 1.0)],
)
def test_jain_index_at_known_values(values, expected):
    assert jain_index(values) == pytest.approx(expected)


def test_jain_index_of_no_values_is_nan():
    assert np.isnan(jain_index([]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_jain_index_refuses_a_negative_or_non_finite_value_by_index(bad):
    with pytest.raises(ValueError, match=r"values\[1\] = "):
        jain_index([1.0, bad])


@given(AMOUNTS, st.floats(1e-6, 1e6))
def test_jain_index_is_between_one_nth_and_one_and_has_no_unit(values, unit):
    found = jain_index(values)
    assert 1 / len(values) - 1e-9 <= found <= 1
    assert jain_index([v * unit for v in values]) == pytest.approx(found)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=40))
def test_jain_index_is_the_formula(values):
    assert jain_index(values) == pytest.approx(sum(values) ** 2 / (len(values) * sum(v * v for v in values)))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 200), st.integers(1, 6), st.integers(1, 30))
def test_every_tenant_has_the_figures_of_a_plain_count(seed, n, tenants, enough):
    rng = np.random.default_rng(seed)
    owner = rng.integers(-1, tenants, n)
    prompt = rng.integers(1, 100, n)
    cached = rng.integers(0, prompt + 1) * rng.integers(0, 2, n)
    latency = np.where(rng.random(n) < 0.1, np.nan, rng.exponential(1.0, n))
    found = per_tenant(owner, prompt, cached, latency, tenants=tenants, min_requests=enough)
    p99s, too_few = {}, 0
    for tenant in range(tenants):
        own = [i for i in range(n) if owner[i] == tenant and latency[i] == latency[i]]
        assert found.requests[tenant] == len(own)
        unserved = sum(1 for i in range(n) if owner[i] == tenant) - len(own)
        assert found.unserved[tenant] == unserved
        if len(own) >= enough:
            p99s[tenant] = np.percentile(latency[own], 99)
            assert found.p99_s[tenant] == pytest.approx(p99s[tenant])
        else:
            assert np.isnan(found.p99_s[tenant])
            too_few += len(own) + unserved > 0
        if own:
            assert found.hit_rate[tenant] == pytest.approx(sum(cached[own]) / sum(prompt[own]))
            assert found.request_hit_rate[tenant] == pytest.approx(np.mean([cached[i] > 0 for i in own]))
            assert found.p50_s[tenant] == pytest.approx(np.percentile(latency[own], 50))
        else:
            assert np.isnan(found.hit_rate[tenant])
    assert found.too_few == too_few
    assert found.without_tenant == sum(owner == -1)
    assert found.requests.sum() + found.unserved.sum() + found.without_tenant == n
    if p99s:
        assert found.worst == max(p99s, key=lambda t: (p99s[t], -t))
        assert found.worst_ratio == pytest.approx(max(p99s.values()) / np.median(list(p99s.values())))
    else:
        assert found.worst is None
        assert found.worst_ratio is None
        assert np.isnan(found.jain_p99)


def test_thousands_of_tenants_beyond_sixteen_bits_keep_their_requests():
    owner = np.array([70_000, 3, 70_000])
    found = per_tenant(owner, [10, 10, 30], [10, 0, 0], [1.0, 2.0, 3.0], min_requests=1)
    assert (found.requests[70_000], found.hit_rate[70_000], found.p50_s[70_000]) == (2, 0.25, 2.0)
    assert found.worst == 70_000


def test_equal_service_is_fair_and_one_slow_tenant_shows():
    owner = np.repeat([0, 1, 2, 3], 200)
    latency = np.where(owner == 2, 5.0, 1.0)
    found = per_tenant(owner, np.full(800, 10), np.full(800, 5), latency)
    assert found.jain_hit_rate == pytest.approx(1.0)
    assert (found.worst, found.worst_ratio) == (2, 5.0)
    assert found.jain_p99 == pytest.approx(8**2 / (4 * 28))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tenant_of_request": [0, -2]}, r"tenant_of_request\[1\] = -2"),
        ({"tenants": 1}, r"tenant_of_request\[1\] = 1"),
        ({"cached_tokens": [0, 11]}, r"cached_tokens\[1\] = 11"),
        ({"latency_s": [-1.0, 1.0]}, r"latency_s\[0\] = -1.0"),
        ({"latency_s": [1.0]}, r"latency_s: expected shape \(2,\)"),
        ({"prompt_tokens": [1.5, 2.0]}, "prompt_tokens: whole numbers"),
        ({"min_requests": 0}, "min_requests = 0"),
    ],
)
def test_faults_are_refused_by_name(change, message):
    right = {
        "tenant_of_request": [0, 1],
        "prompt_tokens": [10, 10],
        "cached_tokens": [0, 10],
        "latency_s": [1.0, 1.0],
    }
    with pytest.raises(ValueError, match=message):
        per_tenant(**{**right, **change})
