"""Calibrations: simulated by a sweep of one replica, or recorded from a measured one."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from planner.errors import Busy, Invalid
from planner.models import Calibration, Fleet, Workload
from planner.services import audit, rights, traces
from planner.services.engines import engine_of
from planner.simulation import calibrate

# A sweep computes for seconds; one at a time leaves the other threads of this process room.
_simulating = threading.Lock()


def _store(acting_user: User, fleet: Fleet, **fields: Any) -> Calibration:
    calibration = Calibration.objects.create(
        fleet=fleet, serving_profile=fleet.serving_profile, created_by=acting_user, **fields
    )
    audit.record(
        "calibration.recorded",
        acting_user=acting_user,
        fleet=fleet,
        subject=calibration,
        after={k: fields[k] for k in ("source", "q_cap", "q_cap_censored", "warm_slots")},
        reason=fields.get("note", ""),
    )
    return calibration


def simulate_calibration(*, acting_user: User, fleet: Fleet, workload: Workload, margin: float = 0.8) -> Calibration:
    """Sweep one simulated replica of the fleet's engine profile with the workload's requests (about a second).

    Stored as simulated, whatever it gives. The sweep serves the share of the requests that one of the
    fleet's destinations would get.
    """
    rights.require(acting_user, rights.PLAN)
    if workload.fleet_id != fleet.pk:
        raise Invalid("this workload belongs to another fleet", field="workload")
    _check_margin(margin)
    destinations = fleet.destinations.count()
    if not _simulating.acquire(blocking=False):
        raise Busy("another calibration is being simulated; try again in a moment")
    try:
        synthetic = traces.synthetic_settings(workload)
        trace = traces.trace_of(workload, synthetic)
        result = calibrate(engine_of(fleet.serving_profile), trace, destinations=destinations, margin=margin)
    except ValueError as error:
        raise Invalid(f"{error}. With few keys, import the trace with a larger key depth.", field="workload") from error
    finally:
        _simulating.release()
    with transaction.atomic():
        return _store(
            acting_user,
            fleet,
            source=Calibration.Source.SIMULATED,
            q_cap=result.q_cap,
            q_cap_censored=result.censored or "",
            knee_method=result.knee_method,
            warm_slots=result.warm_slots,
            slots_measured=result.warm_kept,
            margin=result.margin,
            points=[asdict(point) for point in result.points],
            parameters={
                "workload": workload.pk,
                "workload_name": workload.name,
                "destinations": destinations,
                "synthetic_trace": synthetic,
                "prefix_tokens": result.prefix_tokens,
                "cold_share": result.cold_share,
                "warm_points": [asdict(point) for point in result.warm_points],
                "warm_censored": result.warm_censored,
                "seed": result.seed,
            },
        )


def _check_margin(margin: float) -> None:
    if not 0 < margin <= 1:
        raise Invalid("the margin is a share above 0, at most 1", field="margin")


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
    """Record figures measured on a real engine: q_cap in requests/s, and the warm prefixes that it kept.

    W is `slots_measured` x `margin`, rounded down (the checklist wants a conservative allocation).
    """
    rights.require(acting_user, rights.PLAN)
    if not 1e-6 <= q_cap <= 1e6:
        raise Invalid("q_cap is a number of requests/s from 1e-6 to 1e6", field="q_cap")
    _check_margin(margin)
    if not 0 <= slots_measured < 2**31:
        raise Invalid("the warm prefixes that were kept, 0 or more", field="slots_measured")
    if q_cap_censored not in ("", "left", "right"):
        raise Invalid("left, right or nothing", field="q_cap_censored")
    return _store(
        acting_user,
        fleet,
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
