"""The hit rate over time against a plain count, and dips whose depth and length are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis import HitCurve, dip, hit_curve


def curve(*percent: float | None, width: float = 10.0) -> HitCurve:
    """A curve with these hit rates in bins of ten seconds; None has no requests."""
    tokens = np.array([0 if p is None else 1_000 for p in percent])
    cached = np.array([0 if p is None else int(10 * p) for p in percent])
    return HitCurve(0.0, width, (tokens > 0).astype(np.int64), tokens, cached)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 200), st.integers(1, 70), st.floats(1e-3, 1e6))
def test_every_request_is_in_the_bin_of_its_arrival(seed, n, bins, span):
    rng = np.random.default_rng(seed)
    arrival, prompt = rng.random(n) * span, rng.integers(1, 100, n)
    cached = rng.integers(0, prompt + 1)
    found = hit_curve(arrival, prompt, cached, bins=bins)
    assert len(found.requests) <= bins
    assert found.requests.sum() == n
    for i in range(len(found.requests)):
        inside = (arrival >= found.edges_s[i]) & (arrival < found.edges_s[i + 1])
        assert found.requests[i] == inside.sum()
        assert found.prompt_tokens[i] == prompt[inside].sum()
        assert found.cached_tokens[i] == cached[inside].sum()


@given(st.floats(0.1, 1e5), st.integers(2, 60))
def test_widths_are_powers_of_two_so_that_seeds_can_be_added_up(last, bins):
    width = hit_curve([0.0, last], [1, 1], [0, 0], bins=bins).width_s
    assert np.log2(width) % 1 == 0


def test_arrival_on_the_last_edge_adds_no_bin():
    found = hit_curve([0.0, 16.0], [1, 1], [0, 1], bins=4)
    assert (found.width_s, found.requests.tolist()) == (8.0, [1, 0, 1])


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_arrival_that_is_not_a_time_is_refused_by_index(bad):
    with pytest.raises(ValueError, match=r"arrival_s\[1\]"):
        hit_curve([0.0, bad], [1, 1], [0, 0])


def test_dip_has_the_depth_and_duration_of_the_event():
    found = dip(curve(80, 80, 80, 20, 50, 79, 80, 80), 30.0)
    assert found.before == pytest.approx(0.8)
    assert found.lowest == pytest.approx(0.2)
    assert found.depth_points == pytest.approx(60)
    assert (found.duration_s, found.censored) == (20.0, False)


def test_a_dip_that_never_returns_is_censored_and_has_no_duration():
    found = dip(curve(80, 80, 40, 50, 60), 20.0)
    assert (found.duration_s, found.censored, found.seen_s) == (None, True, 30.0)
    assert found.depth_points == pytest.approx(40)


def test_single_bin_above_the_level_is_not_a_return():
    assert dip(curve(80, 80, 40, 80, 40, 80, 80), 20.0).duration_s == 30.0
    assert dip(curve(80, 80, 40, 40, 80), 20.0).censored  # the end leaves one bin only


def test_curve_without_a_dip_has_duration_zero():
    found = dip(curve(80, 80, 79, 81, 80), 20.0)
    assert (found.duration_s, found.censored) == (0.0, False)
    assert found.depth_points == pytest.approx(1)


def test_normal_variation_is_not_a_dip():
    noisy = (70, 90, 70, 90, 70, 90)
    assert dip(curve(*noisy, 62, 70, 90), 60.0).duration_s == 0.0
    assert dip(curve(*noisy, 62, 70, 90, 90), 60.0, within=0.05).duration_s == 20.0


def test_warm_up_and_empty_bins_do_not_count():
    found = dip(curve(0, 80, None, 30, None, 80, 80), 30.0, from_s=10.0)
    assert (found.before, found.duration_s) == (pytest.approx(0.8), 20.0)


def test_an_event_in_the_middle_of_a_bin_counts_from_its_own_second():
    assert dip(curve(80, 80, 40, 80, 80), 24.0).duration_s == 6.0


def test_window_after_ends_at_the_next_event():
    assert dip(curve(80, 80, 40, 50, 80, 80), 20.0, until_s=40.0).censored


def test_missing_window_before_or_after_gives_none():
    assert dip(curve(80, 40), 5.0).before is None
    after = dip(curve(80, 80), 25.0)
    assert (after.censored, after.depth_points, after.seen_s) == (True, None, 0.0)


def test_event_time_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="at_s = nan"):
        dip(curve(80, 80), float("nan"))
    with pytest.raises(ValueError, match="within = -1"):
        dip(curve(80, 80), 10.0, within=-1)
