"""Constants fitted to a measured calibration become a serving profile that says where they came from."""

import io

import numpy as np
import pytest

from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import AuditEvent, Job, ServingProfile
from planner.services.calibrations import calibrations, fits, sweep_imports
from planner.services.fleets import fleets
from planner.services.fleets.engines import engine_of, profile_names
from planner.services.jobs import jobs
from planner.services.jobs.cancellation import cancel_job
from planner.services.workloads import traces
from planner.simulation.calibration import part_of, sweep_point
from planner.simulation.fit import _scaled
from planner.tasks import run_job
from tests import factories as make

pytestmark = pytest.mark.django_db
ITERATIONS = "load_rps,p99_s,prefill_tokens,decodes,context_tokens,iteration_s"


def imported(cast, fleet, lines):
    file = io.BytesIO("\n".join(lines).encode())
    options = {"file": file, "file_name": "sweep.csv", "slots_measured": 50, "knee_factor": 100.0}
    return sweep_imports.import_sweep(acting_user=cast.ada, fleet=fleet, **options)


@pytest.fixture
def timed(cast, fleet):
    """Iterations of an engine that takes 20 ms, 1/8000 s a prefill token, 50 us a sequence, 10 ns a context token."""
    rng = np.random.default_rng(1)
    lines = [ITERATIONS]
    for load in range(1, 13):
        prefill, decodes = int(rng.integers(0, 4000)), int(rng.integers(1, 60))
        context = decodes * int(rng.integers(100, 5000))
        seconds = 0.02 + prefill / 8000 + 5e-5 * decodes + 1e-8 * context
        lines.append(f"{load},{1 + load / 100},{prefill},{decodes},{context},{seconds!r}")
    return imported(cast, fleet, lines)


@pytest.fixture
def swept(cast, fleet):
    """A sweep of an engine whose iterations take 1.3 times as long as the fleet's profile says, and its workload."""
    workload = make.make_workload(cast, fleet)
    trace = traces.trace_of(workload, traces.synthetic_settings(workload))
    engine = _scaled(engine_of(fleet.serving_profile), 1.3, 0.8)
    part = part_of(trace, make.DESTINATIONS, 2_000)
    points = [sweep_point(part, load, engine, 0) for load in (1.0, 3.0, 6.0)]
    lines = ["load_rps,p50_s,p99_s", *(f"{p.load_rps},{p.p50_s!r},{p.p99_s!r}" for p in points)]
    return imported(cast, fleet, lines), workload


def run(job):
    run_job(job.pk)
    job.refresh_from_db()
    return job


def test_iterations_give_the_constants_as_a_profile_of_its_own(cast, fleet, timed):
    job = run(fits.order_fit(acting_user=cast.ada, calibration=timed, name="mine"))
    assert (job.state, job.done, job.kind) == (Job.State.SUCCEEDED, job.total, Job.Kind.FIT)
    profile = ServingProfile.objects.get(pk=job.result["serving_profile"])
    engine = engine_of(profile)
    found = [engine.iteration_s, engine.prefill_tokens_per_s, engine.sequence_s, engine.context_token_s]
    assert found == pytest.approx([0.02, 8000, 5e-5, 1e-8], rel=1e-6)
    assert (profile.name, profile.engine_profile, engine.name) == ("mine", "mine", "mine")
    assert profile.engine_constants["provenance"]["iteration_s"].startswith("fitted: 12 points, rms error 0.00%")
    assert (profile.fit["calibration"], profile.fit["method"]) == (timed.pk, "iterations")
    assert len(profile.fit["residuals"]) == 12
    was = fleet.serving_profile
    assert profile.fingerprint != was.fingerprint
    assert (profile.model, profile.hardware, engine.cache_tokens) == (
        was.model, was.hardware, engine_of(was).cache_tokens,
    )  # fmt: skip
    assert AuditEvent.objects.get(action="profile.fitted").subject_id == profile.pk


def test_a_fleet_can_be_served_by_a_fitted_profile(cast, fleet, timed):
    profile = fits.fit_profile(acting_user=cast.ada, calibration=timed, name="mine")
    assert "mine" in profile_names()
    changed = fleets.change_serving_profile(acting_user=cast.root, fleet=fleet, engine_profile="mine")
    assert changed.serving_profile == profile
    with pytest.raises(Invalid, match=r"known: .*mine"):
        fleets.change_serving_profile(acting_user=cast.root, fleet=fleet, engine_profile="yours")


def test_a_sweep_gives_factors_on_the_times_of_its_profile(cast, fleet, swept):
    calibration, workload = swept
    job = run(fits.order_fit(acting_user=cast.ada, calibration=calibration, name="slower", workload=workload))
    assert job.state == Job.State.SUCCEEDED, job.error
    profile = ServingProfile.objects.get(name="slower")
    scales = profile.fit["scales"]
    assert (scales["iteration"], scales["prefill"]) == pytest.approx((1.3, 0.8), rel=0.05)
    assert profile.fit["workload"] == workload.pk
    assert [row["load_rps"] for row in profile.fit["residuals"]] == [1.0, 3.0, 6.0]
    assert profile.fit["rms_error"] < 0.05


def test_the_command_path_gives_the_same_profile(cast, fleet, timed):
    job = run(fits.order_fit(acting_user=cast.ada, calibration=timed, name="one"))
    one = ServingProfile.objects.get(pk=job.result["serving_profile"])
    two = fits.fit_profile(acting_user=cast.ada, calibration=timed, name="two")
    assert engine_of(one).iteration_s == engine_of(two).iteration_s
    assert one.fit == two.fit


@pytest.mark.parametrize("at", [0, 20])
def test_a_cancelled_fit_stops_and_stores_nothing(cast, fleet, swept, monkeypatch, at):
    calibration, workload = swept
    job = fits.order_fit(acting_user=cast.ada, calibration=calibration, name="slower", workload=workload)
    told, plain = [], jobs.progress

    def cancel_in_between(mine, done, message=""):
        told.append(done)
        if done == at:
            cancel_job(acting_user=cast.ada, job=job)
        return plain(mine, done, message)

    monkeypatch.setattr(jobs, "progress", cancel_in_between)
    run(job)
    assert (job.state, told[-1]) == (Job.State.CANCELLED, at)
    assert not ServingProfile.objects.exclude(fit={}).exists()


def test_points_that_cannot_tell_a_constant_fail_with_its_name(cast, fleet):
    rows = [f"{n},1,0,{n},{n * n},0.02" for n in range(1, 9)]
    job = run(fits.order_fit(acting_user=cast.ada, calibration=imported(cast, fleet, [ITERATIONS, *rows]), name="x"))
    assert job.state == Job.State.FAILED
    assert job.error.startswith("prefill_tokens_per_s: not determined by these points")
    assert AuditEvent.objects.get(action="profile.fit_failed").reason == job.error


def test_a_sweep_that_is_left_censored_has_too_few_loads(cast, fleet):
    workload = make.make_workload(cast, fleet)
    calibration = imported(cast, fleet, ["load_rps,p99_s", "1,1", "2,900"])
    job = run(fits.order_fit(acting_user=cast.ada, calibration=calibration, name="x", workload=workload))
    assert (job.state, job.error) == (Job.State.FAILED, "1 of 2 loads up to the knee; two or more are needed")


def test_what_cannot_be_fitted_is_refused_when_it_is_ordered(cast, fleet, timed, swept):
    sweep, workload = swept
    simulated = calibrations.simulate_calibration(acting_user=cast.ada, fleet=fleet, workload=workload, loads=[1.0])
    bare = make.make_calibration(cast, fleet)
    other = make.make_workload(cast, make.make_fleet(cast))
    refusals = [
        (NotAllowed, {"acting_user": cast.vera}, None),
        (Conflict, {"calibration": simulated}, None),
        (Conflict, {"calibration": bare}, None),
        (Conflict, {"name": "llama-3.1-8b-h100"}, "name"),
        (Conflict, {"name": fleet.serving_profile.name}, "name"),
        (Invalid, {"name": "  "}, "name"),
        (Invalid, {"name": "a\nb"}, "name"),
        (Invalid, {"calibration": sweep}, "workload"),
        (Invalid, {"calibration": sweep, "workload": other}, "workload"),
    ]
    for error, change, field in refusals:
        with pytest.raises(error) as caught:
            fits.order_fit(**{"acting_user": cast.ada, "calibration": timed, "name": "new", **change})
        assert getattr(caught.value, "field", None) == field, change
    fits.order_fit(acting_user=cast.ada, calibration=timed, name="new")
    with pytest.raises(Conflict, match="already queued or running"):
        fits.order_fit(acting_user=cast.ada, calibration=timed, name="newer")


def test_a_fit_to_nonsense_fails_and_stores_no_profile(cast, fleet):
    workload, profiles = make.make_workload(cast, fleet), ServingProfile.objects.count()
    lines = ["load_rps,p50_s,p99_s", "1,0.000001,0.000002", "2,0.000001,0.000002", "3,0.000001,0.000003"]
    calibration = imported(cast, fleet, lines)
    job = run(fits.order_fit(acting_user=cast.ada, calibration=calibration, name="nonsense", workload=workload))
    assert job.state == Job.State.FAILED
    assert "as short as the base profile's; measured p99 is 2e-06 to 3e-06 s at 1 to 3 requests/s" in job.error
    assert ServingProfile.objects.count() == profiles
