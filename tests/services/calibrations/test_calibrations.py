"""Simulated calibrations as jobs: ordered, run, stopped, delivered twice; and measured ones from a file."""

import io

import pytest

from planner.errors import Conflict, Invalid, NotAllowed
from planner.ingest import ImportProblem
from planner.models import AuditEvent, Calibration, Job
from planner.services.calibrations import calibrations, sweep_imports
from planner.services.calibrations.calibrations import open_calibration, order_calibration, simulate_calibration
from planner.services.fleets import fleets
from planner.services.fleets.destinations import add_destinations
from planner.services.jobs import jobs
from planner.services.jobs.cancellation import cancel_job
from planner.simulation.calibration import DEFAULT_LOADS, MAX_TRIALS
from planner.tasks import run_job
from tests import factories as make

pytestmark = pytest.mark.django_db

LOADS = [0.5, 1.0, 2.0]


@pytest.fixture
def workload(cast, fleet):
    return make.make_workload(cast, fleet)


def order(cast, fleet, workload, **options):
    return order_calibration(acting_user=cast.ada, fleet=fleet, workload=workload, **{"loads": LOADS, **options})


def test_an_ordered_calibration_is_the_one_that_is_computed_at_once(cast, fleet, workload):
    job = order(cast, fleet, workload, margin=0.7)
    assert (job.kind, job.subject_id, job.total) == (Job.Kind.CALIBRATE, workload.pk, len(LOADS) + MAX_TRIALS)
    assert open_calibration(workload) == job
    run_job(job.pk)
    job.refresh_from_db()
    assert (job.state, job.done) == (Job.State.SUCCEEDED, job.total)
    made = Calibration.objects.get(pk=job.result["calibration"])
    at_once = simulate_calibration(acting_user=cast.ada, fleet=fleet, workload=workload, loads=LOADS, margin=0.7)
    same = ("source", "q_cap", "q_cap_censored", "knee_method", "warm_slots", "slots_measured", "points", "parameters")
    assert all(getattr(made, name) == getattr(at_once, name) for name in same)
    assert (made.source, made.margin, made.created_by) == (Calibration.Source.SIMULATED, 0.7, cast.ada)
    assert [point["load_rps"] for point in made.points] == LOADS
    assert made.warm_slots == int(0.7 * made.slots_measured)
    assert (made.parameters["knee"], made.parameters["keep_share"]) == ("factor", 0.95)
    assert AuditEvent.objects.filter(action="calibration.recorded", subject_id=made.pk).count() == 1


def test_progress_tells_loads_and_trials_of_w(cast, fleet, workload, monkeypatch):
    told, plain = [], jobs.progress
    monkeypatch.setattr(jobs, "progress", lambda *a: (told.append(a[1:]), plain(*a))[1])
    job = order(cast, fleet, workload)
    run_job(job.pk)
    assert told[:4] == [(0, "0 of 3 loads"), (1, "1 of 3 loads"), (2, "2 of 3 loads"), (3, "3 of 3 loads")]
    assert told[5] == (4, f"3 loads; W: 1 trials, {MAX_TRIALS} at most")
    assert max(done for done, _ in told) <= job.total


def test_without_loads_the_job_counts_the_default_sweep(cast, fleet, workload):
    assert order(cast, fleet, workload, loads=None).total == DEFAULT_LOADS + MAX_TRIALS


def test_a_calibration_that_is_delivered_twice_is_stored_once(cast, fleet, workload):
    job = order(cast, fleet, workload)
    run_job(job.pk)
    run_job(job.pk)
    assert Calibration.objects.count() == 1


@pytest.mark.parametrize("at", [0, 2, 5])
def test_a_cancelled_calibration_stops_at_its_next_point_and_stores_nothing(cast, fleet, workload, monkeypatch, at):
    job, told, plain = order(cast, fleet, workload), [], jobs.progress

    def cancel_in_between(mine, done, message=""):
        told.append(done)
        if done == at:
            cancel_job(acting_user=cast.ada, job=job)
        return plain(mine, done, message)

    monkeypatch.setattr(jobs, "progress", cancel_in_between)
    run_job(job.pk)
    job.refresh_from_db()
    assert (job.state, told[-1]) == (Job.State.CANCELLED, at)
    assert not Calibration.objects.exists()


def test_a_cancelled_calibration_stops_within_a_point(cast, fleet, workload, monkeypatch):
    job = order(cast, fleet, workload)
    monkeypatch.setattr(calibrations, "LOOK_EVERY_S", -1.0)
    look = calibrations.watch(jobs_running(job))
    look(1)
    cancel_job(acting_user=cast.ada, job=job)
    with pytest.raises(calibrations.Stopped):
        look(2)


def jobs_running(job):
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
    return Job.objects.get(pk=job.pk)


def test_a_row_is_looked_at_a_few_times_a_second_only(cast, fleet, workload, monkeypatch, django_assert_num_queries):
    look = calibrations.watch(jobs_running(order(cast, fleet, workload)))
    with django_assert_num_queries(0):
        for dispatched in range(1000):
            look(dispatched)


def test_a_job_that_another_worker_took_over_stores_nothing(cast, fleet, workload, monkeypatch):
    job, plain = order(cast, fleet, workload), jobs.lock_mine
    monkeypatch.setattr(
        jobs, "lock_mine", lambda mine: Job.objects.filter(pk=mine.pk).update(attempt=9) and plain(mine)
    )
    run_job(job.pk)
    assert not Calibration.objects.exists()


def test_a_calibration_that_cannot_be_done_fails_with_its_reason(cast, fleet):
    workload = make.import_rates(cast, fleet, "key,rate\na,0\nb,0\n")
    job = order(cast, fleet, workload)
    run_job(job.pk)
    job.refresh_from_db()
    assert job.state == Job.State.FAILED
    assert job.error.startswith("no key of this workload has a rate above 0")
    event = AuditEvent.objects.get(action="calibration.failed")
    assert (event.reason, event.subject_id) == (job.error, job.pk)
    with pytest.raises(Invalid, match="no key of this workload"):
        simulate_calibration(acting_user=cast.ada, fleet=fleet, workload=workload)


def test_what_was_ordered_is_calibrated_although_the_fleet_changed_meanwhile(cast, fleet, workload):
    ordered_with = fleet.serving_profile
    job = order(cast, fleet, workload)
    fleets.change_serving_profile(acting_user=cast.root, fleet=fleet, engine_profile="llama-3.1-8b-h100")
    add_destinations(acting_user=cast.root, fleet=fleet, destinations=[("more", "http://127.0.0.1:9999")])
    run_job(job.pk)
    made = Calibration.objects.get()
    assert made.serving_profile == ordered_with
    assert made.parameters["destinations"] == make.DESTINATIONS


def test_one_calibration_with_a_workload_at_a_time(cast, fleet, workload):
    order(cast, fleet, workload)
    with pytest.raises(Conflict, match="already queued or running"):
        order(cast, fleet, workload)
    assert order(cast, fleet, make.make_workload(cast, fleet)).state == Job.State.QUEUED


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"margin": 0.0}, "margin"),
        ({"loads": [1.0, 1.0]}, "loads"),
        ({"loads": [0.0]}, "loads"),
        ({"loads": [float("nan")]}, "loads"),
        ({"loads": [float(n) for n in range(1, 52)]}, "loads"),
        ({"knee": "eye"}, "knee"),
        ({"knee_factor": 1.0}, "knee_factor"),
        ({"knee_factor": float("nan")}, "knee_factor"),
        ({"slo_s": 1.0}, "slo_s"),
        ({"knee": "slo", "slo_s": 0.0}, "slo_s"),
    ],
)
def test_bad_options_are_refused_by_name(cast, fleet, workload, options, field):
    with pytest.raises(Invalid) as caught:
        order(cast, fleet, workload, **options)
    assert caught.value.field == field
    assert not Job.objects.exists()


def test_only_planners_calibrate_and_only_with_workloads_of_the_fleet(cast, fleet, workload):
    with pytest.raises(NotAllowed):
        order_calibration(acting_user=cast.vera, fleet=fleet, workload=workload)
    with pytest.raises(Invalid, match="belongs to another fleet"):
        order(cast, make.make_fleet(cast), workload)


def test_the_bound_of_the_method_slo_is_the_fleets_when_none_is_given(cast, fleet, workload):
    made = simulate_calibration(acting_user=cast.ada, fleet=fleet, workload=workload, loads=LOADS, knee="slo")
    assert made.knee_method == f"p99 within {fleet.slo_p99_s:g} s"
    assert made.parameters["slo_s"] == fleet.slo_p99_s


SWEEP = "load_rps,p50_s,p99_s\n1,0.5,1.0\n2,0.6,1.5\n4,0.9,6\n"
TRIALS = "load_rps,p99_s,prefixes,kept_share\n2,1.5,200,.97\n1,1.0,100,1\n4,6,400,.3\n"


def measured(cast, fleet, content=SWEEP, **options):
    file = io.BytesIO(content.encode())
    return sweep_imports.import_sweep(acting_user=cast.ada, fleet=fleet, file=file, file_name="sweep.csv", **options)


def test_a_measured_sweep_is_stored_with_its_points_knee_and_file(cast, fleet):
    made = measured(cast, fleet, slots_measured=101, margin=0.5, note="Tuesday")
    assert (made.source, made.q_cap, made.q_cap_censored) == (Calibration.Source.MEASURED, 2.0, "")
    assert made.knee_method == "p99 within 2 x p99 at the lowest load"
    assert (made.slots_measured, made.warm_slots, made.note) == (101, 50, "Tuesday")
    assert made.points[0] == {"load_rps": 1.0, "p50_s": 0.5, "p99_s": 1.0}
    assert made.parameters["source_name"] == "sweep.csv"
    assert len(made.parameters["source_sha256"]) == 64
    assert (made.parameters["warm_points"], made.parameters["notices"]) == ([], [])


@pytest.mark.parametrize(
    ("options", "q_cap", "censored"),
    [
        ({"knee_factor": 10.0}, 4.0, "right"),
        ({"knee_factor": 1.2}, 1.0, "left"),
        ({"knee": "slo", "slo_s": 0.5}, 1.0, "left"),
        ({"knee": "slo"}, 2.0, ""),
        ({"knee": "chord"}, 2.0, ""),
    ],
)
def test_a_knee_that_the_sweep_does_not_bracket_is_censored(cast, fleet, options, q_cap, censored):
    made = measured(cast, fleet, slots_measured=10, **options)
    assert (made.q_cap, made.q_cap_censored) == (q_cap, censored)


@pytest.mark.parametrize(
    ("keep_share", "kept", "censored"), [(0.95, 200, None), (0.99, 100, None), (0.2, 400, "right")]
)
def test_w_is_read_from_the_trials_in_the_file(cast, fleet, keep_share, kept, censored):
    made = measured(cast, fleet, TRIALS, keep_share=keep_share)
    assert (made.slots_measured, made.warm_slots) == (kept, int(kept * 0.8))
    assert made.parameters["warm_censored"] == censored
    assert [trial["prefixes"] for trial in made.parameters["warm_points"]] == [100, 200, 400]
    assert [(n["code"], n["count"]) for n in made.parameters["notices"]] == [("unsorted-rows", 4)]


def test_trials_of_which_none_was_kept_leave_no_warm_slot_and_say_so(cast, fleet):
    made = measured(cast, fleet, TRIALS.replace(",1\n", ",.5\n"))
    assert (made.slots_measured, made.parameters["warm_censored"]) == (0, "left")


@pytest.mark.parametrize(
    ("content", "options", "field"),
    [
        (SWEEP, {}, "slots_measured"),
        (TRIALS, {"slots_measured": 5}, "slots_measured"),
        (SWEEP, {"slots_measured": -1}, "slots_measured"),
        (SWEEP, {"slots_measured": 5, "margin": 2.0}, "margin"),
        (TRIALS, {"keep_share": 0.0}, "keep_share"),
        (SWEEP, {"slots_measured": 5, "knee": "eye"}, "knee"),
    ],
)
def test_a_sweep_that_leaves_something_open_is_refused_by_name(cast, fleet, content, options, field):
    with pytest.raises(Invalid) as caught:
        measured(cast, fleet, content, **options)
    assert caught.value.field == field
    assert not Calibration.objects.exists()


def test_a_fault_of_the_file_stores_nothing(cast, fleet):
    with pytest.raises(ImportProblem, match=r"sweep.csv, row 3, p99_s: NaN is not finite"):
        measured(cast, fleet, "load_rps,p99_s\n1,1\n2,NaN\n", slots_measured=5)
    assert not Calibration.objects.exists()


def test_figures_without_points_can_be_recorded(cast, fleet):
    made = calibrations.record_calibration(acting_user=cast.ada, fleet=fleet, q_cap=5.0, slots_measured=50)
    assert (made.points, made.warm_slots, made.knee_method) == ([], 40, "stated by the operator")
