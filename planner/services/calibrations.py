"""Calibrations: simulated by a sweep of one replica, or recorded from a measured one."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from planner.errors import Invalid
from planner.models import Calibration, Fleet
from planner.services import audit, rights
from planner.simulation import PROFILES, calibrate


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


def simulate_calibration(*, acting_user: User, fleet: Fleet, **options: Any) -> Calibration:
    """Sweep one simulated replica of the fleet's engine profile. Stored as simulated, whatever it gives."""
    rights.require(acting_user, rights.PLAN)
    name = fleet.serving_profile.engine_profile
    try:
        result = calibrate(PROFILES[name], **options)
    except (TypeError, ValueError) as error:
        raise Invalid(str(error)) from error
    with transaction.atomic():
        return _store(acting_user, fleet, **result.as_dict(), source=Calibration.Source.SIMULATED, parameters=options)


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
    if not 0 < q_cap < 1e9:
        raise Invalid("q_cap is a number of requests/s above 0", field="q_cap")
    if not 0 < margin <= 1:
        raise Invalid("the margin is a share above 0, at most 1", field="margin")
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
