"""Retiming: the offered load, its burstiness, and the same arrivals for every policy of a pair."""

from __future__ import annotations

import numpy as np
import pytest

from planner.simulation import ARRIVALS, retime
from tests.simulation.workloads import random_trace

TRACE = random_trace(3, 20_000, load=7.0)


def cv(times):
    gaps = np.diff(times)
    return gaps.std() / gaps.mean()


@pytest.mark.parametrize("kind", ARRIVALS)
def test_offered_load_is_met_and_only_arrivals_change(kind):
    timed = retime(TRACE, 50.0, arrivals=kind, cv=1.9 if kind == "gamma" else None, seed=4)
    assert (len(timed) - 1) / timed.arrival_s[-1] == pytest.approx(50.0, rel=0.05)
    assert timed.arrival_s[0] == 0
    assert timed.key is TRACE.key
    assert timed.blocks.ids is TRACE.blocks.ids


@pytest.mark.parametrize("kind", ["poisson", "gamma", "bootstrap"])
def test_arrivals_depend_on_load_and_seed_only(kind):
    shape = {"arrivals": kind, "cv": 2.5 if kind == "gamma" else None}
    one, two, other = (retime(TRACE, 9.0, seed=s, **shape).arrival_s for s in (1, 1, 2))
    assert one.tobytes() == two.tobytes()
    assert one.tobytes() != other.tobytes()


def test_scaled_gaps_keep_their_proportions_exactly():
    timed = retime(TRACE, 70.0)
    assert np.diff(timed.arrival_s) == pytest.approx(
        np.diff(TRACE.arrival_s) * (timed.arrival_s[-1] / np.ptp(TRACE.arrival_s))
    )
    assert (len(TRACE) - 1) / timed.arrival_s[-1] == pytest.approx(70.0)


def test_gamma_gaps_have_the_stated_variation():
    assert cv(retime(TRACE, 10.0, arrivals="gamma", cv=1.9, seed=1).arrival_s) == pytest.approx(1.9, rel=0.05)
    assert cv(retime(TRACE, 10.0, arrivals="poisson", seed=1).arrival_s) == pytest.approx(1.0, rel=0.03)


def test_bootstrap_draws_runs_of_the_traces_own_gaps():
    own = np.diff(TRACE.arrival_s)
    timed = retime(TRACE, 1 / own.mean(), arrivals="bootstrap", run_length=50, seed=1)
    gaps = np.diff(timed.arrival_s)
    start = int(np.argmin(np.abs(own - gaps[0])))
    assert gaps[:50] == pytest.approx(own[start : start + 50], abs=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"load_rps": 0.0}, "load_rps = 0.0"),
        ({"arrivals": "even"}, "arrivals = 'even': expected one of scaled"),
        ({"arrivals": "gamma"}, "cv = None"),
        ({"arrivals": "gamma", "cv": -1.0}, "cv = -1.0"),
        ({"cv": 2.0}, "only 'gamma' takes it"),
        ({"run_length": 4}, "run_length = 4"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    args = {"load_rps": 5.0} | change
    with pytest.raises(ValueError, match=message):
        retime(TRACE, **args)


def test_trace_with_one_arrival_time_refuses_scaling_and_accepts_poisson():
    flat = retime(TRACE, 5.0).__class__(np.zeros(3), np.zeros(3, int), [[0]] * 3, np.full(3, 4), np.ones(3, int), 4)
    with pytest.raises(ValueError, match="arrive at one instant"):
        retime(flat, 5.0)
    assert retime(flat, 5.0, arrivals="poisson").arrival_s[-1] > 0
