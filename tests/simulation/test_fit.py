"""Fits recover known constants from generated points, and refuse points that do not determine a constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.simulation import PROFILES, EngineProfile, IterationPoint, SweepPoint, fit
from planner.simulation.calibration import part_of, sweep_point
from planner.simulation.fit import TERMS, fit_iterations, fit_sweep
from tests.simulation.test_calibration import TRACE, engine

BASE = PROFILES["llama-3.1-8b-h100"]


def iterations(profile, n, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    prefill = rng.integers(0, 8192, n) * (rng.random(n) < 0.6)
    decodes = rng.integers(0, 256, n)
    context = decodes * rng.integers(100, 8000, n)
    seconds = (
        profile.iteration_s
        + prefill / profile.prefill_tokens_per_s
        + profile.sequence_s * decodes
        + profile.context_token_s * context
    )
    seconds = seconds * (1 + noise * rng.standard_normal(n))
    return [IterationPoint(*map(float, row)) for row in zip(prefill, decodes, context, seconds, strict=True)]


def constants(profile):
    return np.array([getattr(profile, name) for name in TERMS])


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-3, 0.05),
    st.floats(1e3, 1e5),
    st.floats(1e-6, 1e-3),
    st.floats(1e-9, 1e-6),
    st.integers(0, 1000),
)
def test_points_without_noise_give_the_constants(iteration, rate, sequence, context, seed):
    truth = replace(
        BASE, iteration_s=iteration, prefill_tokens_per_s=rate, sequence_s=sequence, context_token_s=context
    )
    found = fit(iterations(truth, 60, seed), base=BASE)
    np.testing.assert_allclose(constants(found), constants(truth), rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_two_percent_noise_moves_the_constants_by_less_than_five_percent(seed):
    truth = replace(BASE, iteration_s=0.006, sequence_s=4e-5, context_token_s=2e-8)
    found = fit_iterations(iterations(truth, 500, seed, noise=0.02), base=BASE)
    np.testing.assert_allclose(constants(found.profile), constants(truth), rtol=0.05)
    assert 0.015 < found.rms_error < 0.025
    assert len(found.residuals) == 500
    errors = [row["given_s"] / row["seconds"] - 1 for row in found.residuals]
    assert found.rms_error == pytest.approx(float(np.sqrt(np.mean(np.square(errors)))))


def test_fitted_profile_states_its_provenance_and_keeps_other_constants():
    found = fit(iterations(replace(BASE, iteration_s=0.01), 80), base=BASE, name="mine")
    assert (found.name, found.cache_tokens, found.serving) == ("mine", BASE.cache_tokens, BASE.serving)
    assert all(found.provenance[name].startswith("fitted: 80 points, rms error 0.00%") for name in TERMS)
    assert found.provenance["cache_tokens"] == BASE.provenance["cache_tokens"]
    assert found.fingerprint() != BASE.fingerprint()


def test_constant_below_its_error_is_reported_as_possibly_zero():
    points = iterations(BASE, 12, seed=3, noise=0.05)
    found = fit([replace(p, context_tokens=100 * p.decodes + i) for i, p in enumerate(points)], base=BASE)
    told = [found.provenance[name] for name in ("sequence_s", "context_token_s")]
    assert any("not significantly above 0" in text or "held at 0" in text for text in told), told
    assert "not significantly above 0" not in found.provenance["prefill_tokens_per_s"]


def test_rows_of_numbers_are_points_too():
    points = iterations(BASE, 50)
    rows = [(p.prefill_tokens, p.decodes, p.context_tokens, p.seconds) for p in points]
    assert fit(rows, base=BASE) == fit(points, base=BASE)


def test_constant_without_cost_is_zero_and_reported():
    truth = replace(BASE, context_token_s=0.0)
    found = fit(iterations(truth, 300, noise=0.01), base=BASE)
    assert 0 <= found.context_token_s < 1e-9
    falling = [replace(p, seconds=p.seconds - 1e-9 * p.context_tokens) for p in iterations(truth, 300)]
    assert fit(falling, base=BASE).context_token_s == 0
    assert "held at 0" in fit(falling, base=BASE).provenance["context_token_s"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda p: replace(p, prefill_tokens=0.0),
            "prefill_tokens_per_s: not determined .* prefill_tokens is 0 in all",
        ),
        (lambda p: replace(p, decodes=0.0), "sequence_s: not determined .* decodes is 0 in all"),
        (lambda p: replace(p, decodes=7.0), "iteration_s and sequence_s: not determined separately"),
        (
            lambda p: replace(p, context_tokens=9 * p.decodes),
            "sequence_s and context_token_s: not determined separately",
        ),
        (lambda p: replace(p, seconds=0.01), "prefill_tokens_per_s: not determined .* does not grow with"),
    ],
)
def test_points_that_do_not_determine_a_constant_are_refused_by_its_name(change, message):
    with pytest.raises(ValueError, match=message):
        fit([change(p) for p in iterations(BASE, 40)], base=BASE)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "iteration_s: not determined"),
        (iterations(BASE, 3, seed=5), "points: 3 given; .* need at least 4"),
        ([(1, 2, 3)], r"points\[0\]: 3 values"),
        ([(1, 2, 3, 0.1), (1, -2, 3, 0.1)], r"points\[1\].decodes = -2.0"),
        ([(1, 2, float("nan"), 0.1)], r"points\[0\].context_tokens = nan"),
        ([(1, 2, 3, 0)], r"points\[0\].seconds = 0"),
    ],
)
def test_bad_points_are_refused_by_index_and_value(points, message):
    with pytest.raises(ValueError, match=message):
        fit(points, base=BASE)


SLOW = engine(20_000)
SHORT = part_of(TRACE, 1, 600)


def sweep(profile, loads=(20.0, 60.0, 90.0), seed=0):
    found = [sweep_point(SHORT, load, profile, seed) for load in loads]
    return [SweepPoint(p.load_rps, p.p99_s, p.p50_s) for p in found]


def slower(iteration, prefill):
    return replace(
        SLOW,
        iteration_s=SLOW.iteration_s * iteration,
        sequence_s=SLOW.sequence_s * iteration,
        context_token_s=SLOW.context_token_s * iteration,
        prefill_tokens_per_s=SLOW.prefill_tokens_per_s / prefill,
    )


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1.3, 0.7), (0.6, 1.5)])
def test_fit_recovers_the_scales_of_a_sweep(scales):
    points = sweep(slower(*scales))
    found = fit_sweep(points, base=SLOW, trace=TRACE, max_requests=600)
    assert (found.scales["iteration"], found.scales["prefill"]) == pytest.approx(scales, rel=0.02)
    assert found.rms_error < 0.01
    assert found.profile.iteration_s == pytest.approx(SLOW.iteration_s * found.scales["iteration"])
    assert found.profile.provenance["iteration_s"].startswith("fitted: 3 points of a sweep, rms error")
    for row, point in zip(found.residuals, points, strict=True):
        assert row["error_p99_s"] == pytest.approx(row["given_p99_s"] / point.p99_s - 1)


def test_other_arrivals_and_noise_leave_the_scales_within_fifteen_percent():
    rng = np.random.default_rng(4)
    noisy = [
        replace(p, p99_s=p.p99_s * rng.normal(1, 0.05), p50_s=p.p50_s * rng.normal(1, 0.05))
        for p in sweep(slower(1.4, 1.2), seed=9)
    ]
    found = fit_sweep(noisy, base=SLOW, trace=TRACE, max_requests=600)
    assert (found.scales["iteration"], found.scales["prefill"]) == pytest.approx((1.4, 1.2), rel=0.15)
    assert 0 < found.rms_error < 0.2


def test_equal_arguments_give_equal_fits_and_fit_returns_its_profile():
    points = sweep(slower(1.2, 1.0), loads=(30.0, 80.0))
    first = fit_sweep(points, base=SLOW, trace=TRACE, max_requests=300)
    assert fit_sweep(points, base=SLOW, trace=TRACE, max_requests=300) == first
    assert fit(points, base=SLOW, trace=TRACE, max_requests=300) == first.profile


def test_sweep_without_prefill_does_not_determine_its_rate():
    quick = EngineProfile("q", 20_000, 1e12, 0.005, 0.0002, 1e-7, max_batched_tokens=512, max_sequences=32)
    points = [SweepPoint(load, p.p99_s, p.p50_s) for load in (20.0, 60.0) for p in [sweep_point(SHORT, load, quick, 0)]]
    with pytest.raises(ValueError, match="prefill_tokens_per_s: not determined by these points"):
        fit_sweep(points, base=quick, trace=TRACE, max_requests=300)


def test_progress_is_reported_and_can_end_the_fit():
    class Enough(Exception):
        pass

    told = []

    def stop(done, most):
        told.append((done, most))
        if done == 3:
            raise Enough

    with pytest.raises(Enough):
        fit_sweep(sweep(SLOW), base=SLOW, trace=TRACE, max_requests=300, progress=stop)
    assert [done for done, _ in told] == [0, 1, 2, 3]
    assert all(done <= most for done, most in told)


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        ([SweepPoint(1.0, 1.0), SweepPoint(1.0, 2.0)], {}, "at least two loads"),
        ([SweepPoint(1.0, 1.0), SweepPoint(2.0, float("nan"))], {}, r"points\[1\].p99_s = nan"),
        ([SweepPoint(1.0, 1.0), SweepPoint(2.0, 1.0)], {"destinations": 10**6}, "100 are needed"),
        ([SweepPoint(1.0, 1.0)], {"trace": None}, "trace: required"),
        (iterations(BASE, 10), {}, "trace: only for the points of a sweep"),
    ],
)
def test_bad_sweeps_are_refused(points, options, message):
    with pytest.raises(ValueError, match=message):
        fit(points, **{"base": SLOW, "trace": TRACE, **options})


def swept(*of_p99, p50=1.0):
    """A sweep of the base profile at four loads, each p99 times a factor of its own."""
    found = [sweep_point(SHORT, load, SLOW, 0) for load in (20.0, 40.0, 60.0, 90.0)]
    return [SweepPoint(p.load_rps, p.p99_s * f, p.p50_s * p50) for p, f in zip(found, of_p99, strict=True)]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (
            swept(60, 60, 60, 60, p50=60),
            "8 times as long as the base profile's; measured p99 is .* s at 20 to 90 ",
        ),
        (swept(*[1 / 60] * 4, p50=1 / 60), "more than 8 times as short"),
        (
            swept(6, 1 / 6, 6, 1 / 6),
            r"no scales fit them; the best fit has an error of \d+% .* 50% is accepted; measured",
        ),
    ],
    ids=["much slower", "much faster", "contradictory"],
)
def test_sweep_far_from_the_base_profile_is_refused_with_both_latency_ranges(points, message):
    with pytest.raises(ValueError, match=message):
        fit_sweep(points, base=SLOW, trace=TRACE, max_requests=600)


def test_iterations_far_from_the_equation_are_refused():
    rng = np.random.default_rng(3)
    points = [replace(p, seconds=float(p.seconds * np.exp(3 * rng.standard_normal()))) for p in iterations(BASE, 60)]
    with pytest.raises(ValueError, match=r"no constants fit them; .*rms.*Check the units"):
        fit_iterations(points, base=BASE)
