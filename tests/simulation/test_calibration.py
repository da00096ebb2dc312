"""Calibration: the knee lies where queueing theory puts it, and W follows the cache."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from planner.simulation import EngineProfile, Trace, calibrate
from planner.simulation.calibration import MAX_TRIALS, _largest_kept

BLOCK = 16


def engine(cache_tokens):
    return EngineProfile("e", cache_tokens, 4000.0, 0.005, 0.0002, 1e-7, max_batched_tokens=512, max_sequences=32)


def shared_prefix_trace(requests=2000, keys=20, prefix_blocks=4):
    rng = np.random.default_rng(1)
    key = rng.integers(0, keys, requests)
    rows = [[k * 10 + j for j in range(prefix_blocks)] + [10_000 + i] for i, k in enumerate(key)]
    full = np.full(requests, BLOCK * (prefix_blocks + 1))
    return Trace(np.arange(requests) * 0.1, key, rows, full, np.full(requests, 8), BLOCK)


TRACE = shared_prefix_trace()


def test_default_sweep_brackets_the_knee_and_keeps_its_points():
    result = calibrate(engine(20_000), TRACE)
    assert result.censored is None
    loads = [point.load_rps for point in result.points]
    assert loads == sorted(loads)
    assert len(loads) == 11
    at = loads.index(result.q_cap)
    base = result.points[0].p99_s
    assert all(point.p99_s <= 2 * base for point in result.points[: at + 1])
    assert result.points[at + 1].p99_s > 2 * base
    assert 0 < result.points[0].busy_share < result.points[at].busy_share <= 1
    json.dumps(result.as_dict(), allow_nan=False)


def test_faster_engine_has_a_higher_q_cap():
    slow = EngineProfile("s", 20_000, 2000.0, 0.010, 0.0004, 2e-7, max_batched_tokens=512, max_sequences=32)
    assert calibrate(engine(20_000), TRACE).q_cap > 1.5 * calibrate(slow, TRACE).q_cap


def test_low_loads_are_right_censored_and_an_early_cliff_is_left_censored():
    assert calibrate(engine(20_000), TRACE, loads=[0.1, 0.2]).censored == "right"
    cliff = calibrate(engine(20_000), TRACE, loads=[1.0, 5000.0])
    assert (cliff.censored, cliff.q_cap) == ("left", 1.0)


def test_warm_slots_grow_with_the_cache_and_never_exceed_what_fits():
    found = {}
    for tokens in (1600, 6400):
        result = calibrate(engine(tokens), TRACE, cold_share=0.3)
        assert result.prefix_tokens == 4 * BLOCK  # measured: the hits of an unlimited cache
        assert result.warm_slots == int(0.8 * result.warm_kept)
        assert 0 < result.warm_kept <= tokens // result.prefix_tokens
        found[tokens] = result.warm_kept
    assert 3 < found[6400] / found[1600] < 7


def test_more_cold_traffic_leaves_fewer_warm_prefixes():
    few, many = (calibrate(engine(6400), TRACE, cold_share=c).warm_kept for c in (0.1, 0.8))
    assert many < few


def test_equal_arguments_give_equal_results():
    assert calibrate(engine(6400), TRACE, seed=3) == calibrate(engine(6400), TRACE, seed=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knee_factor": 1.0}, "knee_factor = 1.0"),
        ({"margin": 1.5}, "margin = 1.5"),
        ({"keep_share": 0.0}, "keep_share = 0.0"),
        ({"cold_share": 1.0}, "cold_share = 1.0"),
        ({"destinations": 0}, "destinations = 0"),
        ({"destinations": 10**6}, "requests fall to one of 1000000 destinations; 100 are needed"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        calibrate(engine(6400), TRACE, **change)


def test_requests_that_never_fit_and_an_empty_sweep_are_refused():
    with pytest.raises(ValueError, match="every request is larger than the cache of e"):
        calibrate(engine(32), TRACE)
    with pytest.raises(ValueError, match="every request is larger than the cache of e"):
        calibrate(engine(32), TRACE, loads=[1.0])
    with pytest.raises(ValueError, match="loads: expected at least one"):
        calibrate(engine(6400), TRACE, loads=[])


def test_unlimited_cache_keeps_every_key_and_is_right_censored():
    result = calibrate(engine(None), TRACE)
    assert (result.warm_kept, result.warm_censored) == (20, "right")


@pytest.mark.parametrize(
    ("options", "named"),
    [({"knee": "chord"}, "farthest below the chord"), ({"knee": "slo", "slo_s": 0.2}, "p99 within 0.2 s")],
)
def test_the_knee_is_read_by_the_method_asked_for_and_named(options, named):
    result = calibrate(engine(20_000), TRACE, **options)
    assert result.knee_method.startswith(named)
    plain = calibrate(engine(20_000), TRACE)
    assert result.points == plain.points
    assert result.q_cap in [point.load_rps for point in result.points]


def test_progress_counts_loads_and_then_trials_of_w():
    reported = []
    result = calibrate(engine(6400), TRACE, progress=lambda phase, done: reported.append((phase, done)))
    loads, trials = len(result.points), len(result.warm_points)
    assert reported == [("loads", n) for n in range(loads + 1)] + [("W", n) for n in range(trials + 1)]


def test_progress_may_stop_the_calibration():
    class Enough(Exception):
        pass

    def stop(phase, done):
        if done == 2:
            raise Enough

    with pytest.raises(Enough):
        calibrate(engine(6400), TRACE, progress=stop)


@pytest.mark.parametrize("most", [1, 2, 3, 99, 100, 101, 128, 199, 200, 255, 1_000, 65_537, 10**7])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.37, 0.99])
def test_w_is_found_in_a_bounded_number_of_trials(most, kept):
    class Step:
        def __init__(self):
            self.most = most

        def __call__(self, prefixes):
            return float(prefixes <= kept * most)

    reported = []
    found, points, _ = _largest_kept(Step(), 0.95, lambda phase, done: reported.append(done))
    assert len(points) == reported[-1] <= MAX_TRIALS
    assert kept * most - max(1, most // 100) <= found <= kept * most


def test_loads_are_swept_in_rising_order_and_duplicates_are_refused():
    assert [p.load_rps for p in calibrate(engine(6400), TRACE, loads=[20.0, 5.0]).points] == [5.0, 20.0]
    with pytest.raises(ValueError, match=r"loads\[1\] = 5.0: given twice"):
        calibrate(engine(6400), TRACE, loads=[5.0, 5.0])


def test_a_checkpoint_may_stop_the_calibration_within_a_point():
    class Enough(Exception):
        pass

    reported, seen = [], []

    def stop(dispatched):
        seen.append(dispatched)
        raise Enough

    with pytest.raises(Enough):
        calibrate(
            engine(20_000), shared_prefix_trace(60_000), loads=[60.0], max_requests=60_000,
            progress=lambda phase, done: reported.append((phase, done)), checkpoint=stop,
        )  # fmt: skip
    assert reported == [("loads", 0)]
    assert 0 < seen[0] <= 60_000  # one point has as many, and none was finished


def test_slots_keep_no_more_prefixes_than_there_are_slots():
    slots = dataclasses.replace(engine(6400), cache_shape="slots", max_sequences=8)
    result = calibrate(slots, TRACE, loads=[1.0, 2.0], cold_share=0.0)
    assert result.prefix_tokens == 4 * BLOCK
    assert 0 <= result.warm_kept <= 8
    assert max(point.prefixes for point in result.warm_points) == 8
