"""Reads of monitor and telemetry: last check, last window, validated range."""

from __future__ import annotations

import datetime as dt

from planner.models import DriftCheck, Fleet, GateEvaluation, Rollout, TelemetryWindow
from planner.records import JsonObject


def last_ran(fleet: Fleet) -> dt.datetime | None:
    """Return when the monitor last judged the fleet on schedule."""
    checks = DriftCheck.objects.filter(fleet=fleet, by_hand=False)
    return checks.order_by("-id").values_list("created_at", flat=True).first()


def last_telemetry(fleet: Fleet) -> dt.datetime | None:
    """Return the end of the newest reported window; simulated ones count where the fleet accepts them."""
    windows = TelemetryWindow.objects.filter(fleet=fleet)
    if not fleet.accept_simulated:
        windows = windows.filter(simulated=False)
    return windows.order_by("-ended_at").values_list("ended_at", flat=True).first()


def envelope_of(rollout: Rollout) -> JsonObject | None:
    """Return the validated range of the plan of a rollout, from the evidence that it was approved on.

    Its entries are ``p99_limit_s``, ``load_low_rps``, ``load_high_rps``, ``active_keys``, ``max_imbalance`` and
    ``max_error_rate``; evidence of earlier releases lacks the last two, which then come from the fleet's policy. None
    for Flat-LB, and where no replay met the SLO.
    """
    if not rollout.evidence_digest:
        return None
    rows = GateEvaluation.objects.filter(plan=rollout.plan_id, evidence_digest=rollout.evidence_digest)
    envelope: JsonObject | None = rows.order_by("-id").values_list("evidence__envelope", flat=True).first()
    if envelope is None:
        return None
    fleet = rollout.fleet
    return {"max_imbalance": fleet.max_imbalance, "max_error_rate": fleet.max_error_rate, **envelope}
