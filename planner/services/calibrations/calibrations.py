"""Calibrations: simulated by a sweep of one replica (as a job or at once), or recorded as measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from planner.digests import code_version, digest
from planner.errors import Conflict, Invalid, JobFailed
from planner.models import Calibration, Fleet, Job, ServingProfile, Workload
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.fleets.engines import engine_of
from planner.services.jobs import jobs, kinds
from planner.services.workloads import traces
from planner.simulation import calibrate
from planner.simulation.calibration import DEFAULT_LOADS, MAX_TRIALS
from planner.simulation.knee import find_knee

MAX_LOADS = 50
# Seconds between checks of the row of the job while a point is computed: a cancelled job stops within two seconds.
LOOK_EVERY_S = 0.5


class Stopped(Exception):
    """The job was cancelled or claimed by another worker."""


def watch(job: Job) -> Callable[[int], None]:
    """Return a checkpoint for replays that stops them when the job is cancelled or taken over."""
    looked = time.monotonic()

    def check(_dispatched: int) -> None:
        nonlocal looked
        if time.monotonic() - looked > LOOK_EVERY_S:
            looked = time.monotonic()
            if not jobs.is_mine(job):
                raise Stopped

    return check


def store(
    *, acting_user: User, fleet: Fleet, serving_profile: ServingProfile | None = None, **fields: Any
) -> Calibration:
    """Store a calibration with its audit event. The caller checks the right.

    Parameters
    ----------
    acting_user, fleet
        Who stores it, and the fleet that it is for.
    serving_profile
        The profile that was calibrated; by default the present one of the fleet.
    **fields
        Columns of `Calibration`, among them ``source``, ``q_cap`` (requests/s), ``q_cap_censored``, ``warm_slots`` and
        ``knee_method``.

    Returns
    -------
    Calibration
        The stored row.
    """
    calibration = Calibration.objects.create(
        fleet=fleet, serving_profile=serving_profile or fleet.serving_profile, created_by=acting_user, **fields
    )
    record_event(
        "calibration.recorded",
        acting_user=acting_user,
        fleet=fleet,
        subject=calibration,
        after={k: fields[k] for k in ("source", "q_cap", "q_cap_censored", "warm_slots", "knee_method")},
        reason=fields.get("note", ""),
    )
    return calibration


def check_margin(margin: float) -> None:
    """W is a share of the measured slots, so it is never more."""
    if not 0 < margin <= 1:
        raise Invalid("the margin is a share above 0, at most 1", field="margin")


def check_knee(fleet: Fleet, knee: str, knee_factor: float, slo_s: float | None) -> JsonObject:
    """Check the method and bounds of the knee as `find_knee` takes them.

    Parameters
    ----------
    fleet
        Its SLO is the default bound of the method "slo".
    knee
        "factor", "slo" or "chord".
    knee_factor, slo_s
        Multiple of the p99 at the lowest load, above 1, at most 1,000; for "slo" only, seconds above 0, at most 86,400.

    Returns
    -------
    JsonObject
        ``knee``, ``knee_factor`` and ``slo_s``.

    Raises
    ------
    Invalid
        For a value that cannot be used; `field` names it.
    """
    if knee == "slo" and slo_s is None:
        slo_s = fleet.slo_p99_s
    if not 1 < knee_factor <= 1_000:
        raise Invalid("a factor above 1, at most 1,000", field="knee_factor")
    if slo_s is not None and not 0 < slo_s <= 86_400:
        raise Invalid("a number of seconds above 0, at most a day", field="slo_s")
    if slo_s is not None and knee != "slo":
        raise Invalid("a bound in seconds belongs to the method slo", field="slo_s")
    try:
        find_knee([1.0], [1.0], method=knee, factor=knee_factor, slo_s=slo_s)
    except ValueError as error:
        raise Invalid(str(error), field="knee") from error
    return {"knee": knee, "knee_factor": knee_factor, "slo_s": slo_s}


def _check_order(
    fleet: Fleet,
    workload: Workload,
    *,
    margin: float = 0.8,
    loads: Sequence[float] | None = None,
    knee: str = "factor",
    knee_factor: float = 2.0,
    slo_s: float | None = None,
) -> JsonObject:
    """The inputs of a simulated calibration, as JSON. A fleet may change later; an order does not."""
    if workload.fleet_id != fleet.pk:
        raise Invalid("this workload belongs to another fleet", field="workload")
    check_margin(margin)
    chosen = sorted(loads or ())
    if len(chosen) > MAX_LOADS or len(set(chosen)) < len(chosen):
        raise Invalid(f"at most {MAX_LOADS} different loads", field="loads")
    if any(not 1e-6 <= load <= 1e6 for load in chosen):
        raise Invalid("loads are requests/s from 1e-6 to 1e6", field="loads")
    return {
        "workload": workload.pk,
        "serving_profile": fleet.serving_profile_id,
        "destinations": fleet.destinations.count(),
        "margin": margin,
        "loads": chosen or None,
        **check_knee(fleet, knee, knee_factor, slo_s),
    }


@transaction.atomic
def order_calibration(*, acting_user: User, fleet: Fleet, workload: Workload, **options: Any) -> Job:
    """Order a sweep of one simulated replica of the engine profile; the result of the job names the calibration.

    Parameters
    ----------
    acting_user, fleet
        Who orders it, and the fleet whose serving profile is simulated.
    workload
        A workload of the fleet; its requests are replayed.
    **options
        ``margin`` (share of the measured slots that becomes W, above 0, at most 1), ``loads`` (requests/s of one
        destination, at most 50; by default chosen from the rate at which the replica saturates), and ``knee``,
        ``knee_factor``, ``slo_s``: the method of `planner.simulation.knee.find_knee`.

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
        When a calibration with this workload is queued or running.
    """
    rights.require(acting_user, rights.PLAN, fleet)
    order = _check_order(fleet, workload, **options)
    Workload.objects.select_for_update(no_key=True).get(pk=workload.pk)
    if open_calibration(workload) is not None:
        raise Conflict(f"a calibration with {workload} is already queued or running")
    job = jobs.file_job(
        acting_user=acting_user,
        fleet=fleet,
        kind=Job.Kind.CALIBRATE,
        subject_id=workload.pk,
        total=len(order["loads"] or range(DEFAULT_LOADS)) + MAX_TRIALS,
        payload=order,
    )
    record_event("calibration.ordered", acting_user=acting_user, fleet=fleet, subject=job, after=order)
    return job


def open_calibration(workload: Workload) -> Job | None:
    """Return the open job of a calibration with this workload."""
    return Job.objects.filter(kind=Job.Kind.CALIBRATE, subject_id=workload.pk, state__in=Job.OPEN).first()


def run_calibration(job: Job) -> None:
    """Run the sweep of a claimed job and store it; if the job was cancelled meanwhile, store nothing."""
    order = job.payload
    loads = len(order["loads"] or range(DEFAULT_LOADS))

    def tell(what: str, done: int) -> None:
        text = (
            f"{done} of {loads} loads" if what == "loads" else f"{loads} loads; W: {done} trials, {MAX_TRIALS} at most"
        )
        if not jobs.progress(job, done if what == "loads" else loads + done, text):
            raise Stopped

    try:
        fields = _simulate(order, tell, watch(job))
    except Stopped:
        return
    except ValueError as error:
        raise JobFailed(_advice(error)) from error
    with transaction.atomic():
        if not jobs.lock_mine(job):
            return  # Cancelled, or claimed by another worker.
        profile = ServingProfile.objects.get(pk=order["serving_profile"])
        done = store(acting_user=job.created_by, fleet=job.fleet, serving_profile=profile, **fields)
        jobs.finish(job, Job.State.SUCCEEDED, result={"calibration": done.pk})


@transaction.atomic
def calibration_failed(job: Job, *, message: str, crashed: bool) -> None:
    """Record that a calibration failed. A job that was cancelled or claimed by another worker does not change.

    Parameters
    ----------
    job, message, crashed
        The job, the cause as users read it, and whether that is a fault ("errored") or an expected failure ("failed").
    """
    if not jobs.lock_mine(job):
        return
    jobs.finish(job, Job.State.ERRORED if crashed else Job.State.FAILED, error=message)
    record_event("calibration.failed", acting_user=job.created_by, fleet=job.fleet, subject=job, reason=message)


def simulate_calibration(*, acting_user: User, fleet: Fleet, workload: Workload, **options: Any) -> Calibration:
    """As `order_calibration`, but computed at once: for commands and the sample of the first start.

    Parameters
    ----------
    acting_user, fleet, workload, **options
        As in `order_calibration`.

    Returns
    -------
    Calibration
        The stored calibration.

    Raises
    ------
    NotAllowed, Invalid, ArtifactLost
        As in `order_calibration`; Invalid also when the requests do not allow a sweep, ArtifactLost when they are lost.
    """
    rights.require(acting_user, rights.PLAN, fleet)
    order = _check_order(fleet, workload, **options)
    try:
        fields = _simulate(order, lambda _what, _done: None)
    except ValueError as error:
        raise Invalid(_advice(error), field="workload") from error
    with transaction.atomic():
        return store(acting_user=acting_user, fleet=fleet, **fields)


def _advice(error: ValueError) -> str:
    return (
        f"{error}. With few keys, import the trace with a larger key depth."
        if "are needed" in str(error)
        else str(error)
    )


def _simulate(
    order: JsonObject, tell: Callable[[str, int], None], checkpoint: Callable[[int], None] | None = None
) -> JsonObject:
    """The fields of the calibration, from an order."""
    workload = Workload.objects.select_related("rates", "trace").get(pk=order["workload"])
    profile = ServingProfile.objects.get(pk=order["serving_profile"])
    synthetic = traces.synthetic_settings(workload)
    knee = {name: order[name] for name in ("knee", "knee_factor", "slo_s")}
    result = calibrate(
        engine_of(profile),
        traces.trace_of(workload, synthetic),
        destinations=order["destinations"],
        loads=order["loads"],
        margin=order["margin"],
        progress=tell,
        checkpoint=checkpoint,
        **knee,
    )
    inputs = {
        "order": order,
        "fingerprint": profile.fingerprint,
        "rates": workload.rates.digest,
        "trace": workload.trace.digest if workload.trace else None,
        "synthetic_trace": synthetic and synthetic.to_json(),
    }
    return {
        "source": Calibration.Source.SIMULATED,
        "q_cap": result.q_cap,
        "q_cap_censored": result.censored or "",
        "knee_method": result.knee_method,
        "warm_slots": result.warm_slots,
        "slots_measured": result.warm_kept,
        "margin": result.margin,
        "points": [asdict(point) for point in result.points],
        "parameters": {
            "workload": workload.pk,
            "workload_name": workload.name,
            "destinations": order["destinations"],
            "synthetic_trace": synthetic and synthetic.to_json(),
            "prefix_tokens": result.prefix_tokens,
            "cold_share": result.cold_share,
            "keep_share": result.keep_share,
            "warm_points": [asdict(point) for point in result.warm_points],
            "warm_censored": result.warm_censored,
            "seed": result.seed,
            **knee,
            "inputs_digest": digest(inputs),
            "code_version": code_version(),
        },
    }


@transaction.atomic
def record_calibration(
    *,
    acting_user: User,
    fleet: Fleet,
    q_cap: float,
    slots_measured: int,
    margin: float = 0.8,
    q_cap_censored: str = "",
    knee_method: str = "stated by the operator",
    points: list[dict[str, float]] | None = None,
    note: str = "",
) -> Calibration:
    """Record figures measured on a real engine.

    W is `slots_measured` x `margin`, rounded down (the checklist requires a conservative allocation).

    Parameters
    ----------
    acting_user, fleet
        Who records it, and the fleet of the engine.
    q_cap
        Requests/s that one destination serves at its knee, 1e-6 to 1e6.
    slots_measured, margin
        Number of warm prefixes that one destination kept, 0 or more; share of them that becomes W, above 0, at most 1.
    q_cap_censored
        "left" or "right" where `q_cap` is only a bound, else empty.
    knee_method, points, note
        How the knee was found, the points of the sweep with their figures by name, and a remark; stored as given.

    Returns
    -------
    Calibration
        The stored calibration.

    Raises
    ------
    NotAllowed, Invalid
        When the user may not plan for the fleet; for a value out of range (`field` names it).
    """
    rights.require(acting_user, rights.PLAN, fleet)
    if not 1e-6 <= q_cap <= 1e6:
        raise Invalid("q_cap is a number of requests/s from 1e-6 to 1e6", field="q_cap")
    check_margin(margin)
    if not 0 <= slots_measured < 2**31:
        raise Invalid("the warm prefixes that were kept, 0 or more", field="slots_measured")
    if q_cap_censored not in ("", "left", "right"):
        raise Invalid("left, right or nothing", field="q_cap_censored")
    return store(
        acting_user=acting_user,
        fleet=fleet,
        source=Calibration.Source.MEASURED,
        q_cap=q_cap,
        q_cap_censored=q_cap_censored,
        knee_method=knee_method,
        warm_slots=int(slots_measured * margin),
        slots_measured=slots_measured,
        margin=margin,
        points=points or [],
        note=note,
    )


kinds.register(Job.Kind.CALIBRATE, kinds.JobKind(run=run_calibration, failed=calibration_failed))
