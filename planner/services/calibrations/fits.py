"""Engine constants fitted to the points of a measured calibration, stored as a new serving profile."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.models import User
from django.db import transaction

from planner.errors import Conflict, Invalid, JobFailed
from planner.ingest.sweep_csv import ITERATION
from planner.models import Calibration, Job, ServingProfile, Workload
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.calibrations.calibrations import Stopped, watch
from planner.services.fleets.engines import engine_of, stored_profile
from planner.services.jobs import jobs, kinds
from planner.services.workloads import traces
from planner.simulation import PROFILES, IterationPoint, SweepPoint
from planner.simulation.fit import MAX_EVALUATIONS, Fit, fit_iterations, fit_sweep

MAX_NAME_CHARS = 80
# Properties of the engine that a fit of its speed does not change.
KEPT = ("model", "precision", "tensor_parallel", "context_tokens", "batching_policy", "cache_allocation",
        "hardware", "engine", "engine_version")  # fmt: skip


def method_of(calibration: Calibration) -> str:
    """How the points of a calibration can be fitted: by their "iterations" where all have them, else as a "sweep"."""
    points = calibration.points
    return "iterations" if points and all(name in point for point in points for name in ITERATION) else "sweep"


def _check_order(calibration: Calibration, name: str, workload: Workload | None) -> JsonObject:
    if calibration.source != Calibration.Source.MEASURED:
        raise Conflict("its points were simulated: a fit would only return the profile that they were simulated with")
    if not calibration.points:
        raise Conflict("this calibration has no points; import the sweep as a file to fit constants to it")
    name = name.strip()
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise Invalid(f"a name of 1 to {MAX_NAME_CHARS} characters", field="name")
    if _is_taken(name):
        raise Conflict(f"a serving profile named {name!r} exists already", code="exists", field="name")
    method = method_of(calibration)
    if method == "sweep":
        if workload is None:
            raise Invalid("name the workload whose requests were sent", field="workload")
        if workload.fleet_id != calibration.fleet_id:
            raise Invalid("this workload belongs to another fleet", field="workload")
    return {
        "name": name,
        "method": method,
        "workload": workload.pk if workload is not None and method == "sweep" else None,
        "destinations": calibration.fleet.destinations.count(),
    }


def _is_taken(name: str) -> bool:
    return name in PROFILES or ServingProfile.objects.filter(name=name).exists()


@transaction.atomic
def order_fit(*, acting_user: User, calibration: Calibration, name: str, workload: Workload | None = None) -> Job:
    """Order a fit of engine constants to a measured calibration; the result of the job names the new serving profile.

    Points that all have a mean iteration (`prefill_tokens`, `decodes`, `context_tokens`, `iteration_s`) give the
    constants themselves (`planner.simulation.fit.fit_iterations`). Other points give factors on the times of the
    calibrated profile (`fit_sweep`), by simulating the requests of ``workload`` at the loads up to the knee.

    Parameters
    ----------
    acting_user
        A user who may plan for the fleet of the calibration.
    calibration
        A measured calibration with points.
    name
        Name of the new profile, 1 to 80 printable characters; outer blanks are removed.
    workload
        Workload of the same fleet whose requests were sent. Required unless all points have a mean iteration; not used
        then.

    Returns
    -------
    Job
        The queued job.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    Invalid
        Naming the option.
    Conflict
        When the points were simulated, there are none, the name exists, or a fit is queued or running.
    """
    rights.require(acting_user, rights.PLAN, calibration.fleet)
    calibration = Calibration.objects.select_for_update(no_key=True, of=("self",)).get(pk=calibration.pk)
    order = _check_order(calibration, name, workload)
    if open_fit(calibration) is not None:
        raise Conflict(f"a fit to calibration {calibration.pk} is already queued or running")
    job = jobs.file_job(
        acting_user=acting_user,
        fleet=calibration.fleet,
        kind=Job.Kind.FIT,
        subject_id=calibration.pk,
        total=MAX_EVALUATIONS + 3,
        payload=order,
    )
    after = {"calibration": calibration.pk, **order}
    record_event("profile.fit_ordered", acting_user=acting_user, fleet=calibration.fleet, subject=job, after=after)
    return job


def open_fit(calibration: Calibration) -> Job | None:
    """Return the open job of a fit to this calibration."""
    return Job.objects.filter(kind=Job.Kind.FIT, subject_id=calibration.pk, state__in=Job.OPEN).first()


def run_fit(job: Job) -> None:
    """Fit for a claimed job and store the profile; if the job was cancelled meanwhile, store nothing."""
    calibration = Calibration.objects.select_related("fleet", "serving_profile").get(pk=job.subject_id or 0)

    def tell(done: int, most: int) -> None:
        if not jobs.progress(job, min(done, most), f"{done} trials, {most} at most"):
            raise Stopped

    try:
        found = _fit(calibration, job.payload, tell, watch(job))
    except Stopped:
        return
    except ValueError as error:
        raise JobFailed(str(error)) from error
    with transaction.atomic():
        if not jobs.lock_mine(job):
            return  # Cancelled, or claimed by another worker.
        profile = _store(job.created_by, calibration, job.payload, found)
        jobs.finish(job, Job.State.SUCCEEDED, result={"calibration": calibration.pk, "serving_profile": profile.pk})


@transaction.atomic
def fit_failed(job: Job, *, message: str, crashed: bool) -> None:
    """Record that a fit failed. A job that was cancelled or claimed by another worker does not change.

    Parameters
    ----------
    job, message, crashed
        The job, the cause as users read it, and whether that is a fault ("errored") or an expected failure ("failed").
    """
    if not jobs.lock_mine(job):
        return
    jobs.finish(job, Job.State.ERRORED if crashed else Job.State.FAILED, error=message)
    record_event("profile.fit_failed", acting_user=job.created_by, fleet=job.fleet, subject=job, reason=message)


def fit_profile(
    *, acting_user: User, calibration: Calibration, name: str, workload: Workload | None = None
) -> ServingProfile:
    """As `order_fit`, but computed at once: for commands. A fit that is queued or running does not prevent it.

    Parameters
    ----------
    acting_user, calibration, name, workload
        As in `order_fit`.

    Returns
    -------
    ServingProfile
        The stored profile.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    Invalid
        Naming the option; without a field when the points cannot be fitted.
    Conflict
        When the points were simulated, there are none, or the name exists.
    ArtifactLost
        When the requests of the workload cannot be read from storage.
    """
    rights.require(acting_user, rights.PLAN, calibration.fleet)
    order = _check_order(calibration, name, workload)
    try:
        found = _fit(calibration, order, lambda _done, _most: None)
    except ValueError as error:
        raise Invalid(str(error)) from error
    with transaction.atomic():
        Calibration.objects.select_for_update(no_key=True, of=("self",)).get(pk=calibration.pk)
        return _store(acting_user, calibration, order, found)


def _fit(
    calibration: Calibration,
    order: JsonObject,
    tell: Callable[[int, int], None],
    checkpoint: Callable[[int], None] | None = None,
) -> Fit:
    base = engine_of(calibration.serving_profile)
    if order["method"] == "iterations":
        tell(0, 1)
        rows = [IterationPoint(*(point[name] for name in ITERATION)) for point in calibration.points]
        return fit_iterations(rows, base=base, name=order["name"])
    workload = Workload.objects.select_related("rates", "trace").get(pk=order["workload"])
    between_steps = (lambda: None) if checkpoint is None else (lambda: checkpoint(0))
    trace = traces.trace_of(workload, traces.synthetic_settings(workload), checkpoint=between_steps)
    # Beyond the knee a queue grows for as long as the run lasts, so two runs of different length cannot be compared.
    points = [
        SweepPoint(point["load_rps"], point["p99_s"], point.get("p50_s"))
        for point in calibration.points
        if point["load_rps"] <= calibration.q_cap
    ]
    if len(points) < 2:
        raise ValueError(f"{len(points)} of {len(calibration.points)} loads up to the knee; two or more are needed")
    return fit_sweep(
        points,
        base=base,
        trace=trace,
        destinations=order["destinations"],
        name=order["name"],
        progress=tell,
        checkpoint=checkpoint,
    )


def _store(acting_user: User, calibration: Calibration, order: JsonObject, found: Fit) -> ServingProfile:
    if _is_taken(order["name"]):
        raise Conflict(f"a serving profile named {order['name']!r} exists already", code="exists", field="name")
    fit = {
        "calibration": calibration.pk,
        "fleet": calibration.fleet.slug,
        "base": calibration.serving_profile.name,
        "method": found.method,
        "workload": order["workload"],
        "points": len(found.residuals),
        "rms_error": found.rms_error,
        "scales": found.scales,
        "residuals": list(found.residuals),
    }
    was = calibration.serving_profile
    profile = stored_profile(
        found.profile,
        fit=fit,
        **{name: getattr(was, name) for name in KEPT},
    )
    record_event(
        "profile.fitted",
        acting_user=acting_user,
        fleet=calibration.fleet,
        subject=profile,
        after={name: fit[name] for name in ("calibration", "base", "method", "points", "rms_error", "scales")},
    )
    return profile


kinds.register(Job.Kind.FIT, kinds.JobKind(run=run_fit, failed=fit_failed))
