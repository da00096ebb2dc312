"""Import calibrations from a file: a load sweep of one destination of the real engine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from django.contrib.auth.models import User
from django.db import transaction

from planner.errors import Invalid
from planner.ingest import ImportedSweep, read_sweep
from planner.models import Calibration, Fleet
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.calibrations.calibrations import check_knee, check_margin, store
from planner.simulation.knee import find_knee

MAX_BYTES = 4 * 2**20


def import_sweep(
    *,
    acting_user: User,
    fleet: Fleet,
    file: Path | BinaryIO,
    file_name: str,
    slots_measured: int | None = None,
    margin: float = 0.8,
    keep_share: float = 0.95,
    knee: str = "factor",
    knee_factor: float = 2.0,
    slo_s: float | None = None,
    strict: bool = False,
    note: str = "",
) -> Calibration:
    """Read a measured sweep (`planner.ingest.sweep_csv`) and store it as a measured calibration of the fleet.

    q_cap is read from the points by `planner.simulation.knee.find_knee`. The number of warm prefixes that were kept is
    ``slots_measured``, or, where the file has trials of W, the highest number of which at least ``keep_share`` stayed
    cached, as did that share of all lower numbers. Exactly one of the two must be given.

    Parameters
    ----------
    acting_user, fleet
        Who imports, and the fleet of the measured engine.
    file, file_name
        The file, and the name that messages and the calibration show.
    slots_measured
        Number of warm prefixes that one destination kept, 0 or more; None when the file has trials of W.
    margin
        Share of that number that becomes W, above 0, at most 1.
    keep_share
        Share of a trial's prefixes that must stay cached, above 0, at most 1.
    knee, knee_factor, slo_s
        Method and bounds of the knee, as in `check_knee`; ``slo_s`` in seconds.
    strict
        As in `read_sweep`.
    note
        A remark, stored as given.

    Returns
    -------
    Calibration
        The stored calibration.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    ImportProblem
        Naming file, row and field; nothing is stored then.
    Invalid
        Naming the option.
    """
    rights.require(acting_user, rights.PLAN, fleet)
    check_margin(margin)
    if not 0 < keep_share <= 1:
        raise Invalid("a share above 0, at most 1", field="keep_share")
    bounds = check_knee(fleet, knee, knee_factor, slo_s)
    if slots_measured is not None and not 0 <= slots_measured < 2**31:
        raise Invalid("the warm prefixes that were kept, 0 or more", field="slots_measured")
    sweep = read_sweep(file, file_name, strict=strict, max_bytes=MAX_BYTES)
    kept, warm_censored = _warm(sweep, slots_measured, keep_share)
    found = find_knee(
        [point["load_rps"] for point in sweep.points],
        [point["p99_s"] for point in sweep.points],
        method=knee,
        factor=knee_factor,
        slo_s=bounds["slo_s"],
    )
    parameters: JsonObject = {
        "source_name": sweep.source_name[-255:],
        "source_sha256": sweep.source_sha256,
        "source_bytes": sweep.source_bytes,
        "notices": [asdict(notice) for notice in sweep.notices],
        "warm_points": sweep.warm_points,
        "warm_censored": warm_censored,
        "keep_share": keep_share if sweep.warm_points else None,
        **bounds,
    }
    with transaction.atomic():
        return store(
            acting_user=acting_user,
            fleet=fleet,
            source=Calibration.Source.MEASURED,
            q_cap=found.q_cap,
            q_cap_censored=found.censored or "",
            knee_method=found.method,
            warm_slots=int(kept * margin),
            slots_measured=kept,
            margin=margin,
            points=sweep.points,
            parameters=parameters,
            note=note,
        )


def _warm(sweep: ImportedSweep, stated: int | None, keep_share: float) -> tuple[int, str | None]:
    """The number of warm prefixes that were kept; and "left" or "right" where the trials did not bracket it."""
    if stated is not None:
        if sweep.warm_points:
            message = "the file has trials of W (prefixes, kept_share); give these or a number, not both"
            raise Invalid(message, field="slots_measured")
        return stated, None
    if not sweep.warm_points:
        message = "say how many warm prefixes were kept, or add the columns prefixes and kept_share to the file"
        raise Invalid(message, field="slots_measured")
    kept = 0
    for trial in sweep.warm_points:
        if trial["kept_share"] < keep_share:
            return kept, None if kept else "left"
        kept = int(trial["prefixes"])
    return kept, "right"
