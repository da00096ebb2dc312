"""The page of a calibration."""

from __future__ import annotations

from typing import Any

from planner.models import Calibration, Fleet, Job, ServingProfile
from planner.simulation.fit import TERMS

# Columns of a sweep in the order of its table, with their headings; others follow by name.
COLUMNS = {
    "load_rps": "Load, requests/s",
    "requests": "Requests",
    "p50_s": "p50, s",
    "p95_s": "p95, s",
    "p99_s": "p99, s",
    "ttft_p99_s": "TTFT p99, s",
    "hit_rate": "Hit rate",
    "busy_share": "Busy",
    "prefill_tokens": "Prefill tokens",
    "decodes": "Decodes",
    "context_tokens": "Context tokens",
    "iteration_s": "Iteration, s",
}
SHARES = ("hit_rate", "busy_share")
MAX_COLUMNS = 20
UNITS = {
    "iteration_s": ("Iteration (t_0)", "s"),
    "prefill_tokens_per_s": ("Prefill", "tokens/s"),
    "sequence_s": ("Each sequence", "s"),
    "context_token_s": ("Each context token", "s"),
}


def calibration_page(calibration: Calibration) -> dict[str, Any]:
    """The data of the page, except the header of the fleet, the chart and the forms."""
    found = calibration.parameters
    keep = found.get("keep_share") or 0.95
    names = [name for name in COLUMNS if any(name in point for point in calibration.points)]
    others = sorted({name for point in calibration.points for name in point} - set(COLUMNS))
    shown = [*names, *others][:MAX_COLUMNS]
    jobs = Job.objects.filter(kind=Job.Kind.FIT, subject_id=calibration.pk)
    latest = jobs.first()
    return {
        "calibration": calibration,
        "simulated": calibration.source == Calibration.Source.SIMULATED,
        "columns": [(COLUMNS.get(name, name), name in SHARES) for name in shown],
        "rows": [
            {
                "cells": [(point.get(name), name in SHARES) for name in shown],
                "is_knee": point.get("load_rps") == calibration.q_cap,
            }
            for point in calibration.points
        ],
        "bound_s": _bound(calibration),
        "trials": [{**trial, "kept": trial["kept_share"] >= keep} for trial in found.get("warm_points") or ()],
        "keep_share": keep,
        "warm_censored": found.get("warm_censored"),
        "facts": _facts(calibration),
        "notices": found.get("notices") or [],
        "plans": list(calibration.plans.select_related("author").only("number", "kind", "state", "fleet_id", "author")),
        "fitted": [_fitted(p) for p in ServingProfile.objects.filter(fit__calibration=calibration.pk).order_by("-id")],
        "job": latest if latest is not None and latest.is_open else None,
        "failed": latest if latest is not None and latest.state in ("failed", "errored") else None,
    }


def calibration_jobs(fleet: Fleet) -> list[Job]:
    """Open jobs that calibrate this fleet."""
    return list(
        Job.objects.filter(fleet=fleet, kind=Job.Kind.CALIBRATE, state__in=Job.OPEN).select_related("created_by")
    )


def _bound(calibration: Calibration) -> float | None:
    """Seconds that p99 was compared with by the method of the knee; None where it has no bound."""
    found = calibration.parameters
    if found.get("knee") == "slo":
        return float(found["slo_s"])
    first = calibration.points[0].get("p99_s") if calibration.points else None
    return found["knee_factor"] * first if found.get("knee") == "factor" and first else None


def _facts(calibration: Calibration) -> list[tuple[str, Any]]:
    """The source of the figures, in words; unknown parts are left out."""
    found = calibration.parameters
    synthetic = found.get("synthetic_trace")
    facts = [
        ("File", found.get("source_name")),
        ("sha256", found.get("source_sha256")),
        ("Workload", found.get("workload_name")),
        (
            "Share of it",
            f"load on one of {found['destinations']} destinations" if found.get("destinations") else None,
        ),
        ("Requests", "synthetic, made from rates" if synthetic else "of its trace" if "seed" in found else None),
        ("Warm prefix", f"{found['prefix_tokens']:,} tokens" if found.get("prefix_tokens") else None),
        ("Cold requests", f"{found['cold_share']:.1%} in the trials of W" if "cold_share" in found else None),
        ("Seed", found.get("seed")),
        ("Inputs sha256", found.get("inputs_digest")),
        ("Code", found.get("code_version")),
    ]
    return [(name, value) for name, value in facts if value is not None]


def _fitted(profile: ServingProfile) -> dict[str, object]:
    constants = profile.engine_constants
    return {
        "profile": profile,
        "fit": profile.fit,
        "constants": [(*UNITS[name], constants[name], constants["provenance"].get(name, "")) for name in TERMS],
        "residuals": [_residual(row) for row in profile.fit["residuals"]],
    }


def _residual(row: dict[str, float]) -> list[tuple[str, float]]:
    """A point beside the value of the fitted profile, as label and value."""
    if "seconds" in row:
        return [("measured, s", row["seconds"]), ("fitted, s", row["given_s"]), ("error", row["error"])]
    found = [("load, requests/s", row["load_rps"])]
    for name in ("p50_s", "p99_s"):
        if name in row:
            short = name.removesuffix("_s")
            found += [
                (f"{short} measured, s", row[name]),
                (f"{short} fitted, s", row[f"given_{name}"]),
                (f"{short} error", row[f"error_{name}"]),
            ]
    return found
