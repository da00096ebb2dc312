"""Whether somebody watches, what is watched for, and what was seen."""

from __future__ import annotations

import datetime as dt

from planner.models import DriftCheck, Fleet, GateEvaluation, Rollout, TelemetryWindow
from planner.records import JsonObject


def last_ran(fleet: Fleet) -> dt.datetime | None:
    """When the monitor looked at the fleet last, by itself: it writes a check of it every minute."""
    checks = DriftCheck.objects.filter(fleet=fleet, by_hand=False)
    return checks.order_by("-id").values_list("created_at", flat=True).first()


def last_telemetry(fleet: Fleet) -> dt.datetime | None:
    """The end of the newest window that was reported; simulated ones count where the fleet accepts them."""
    windows = TelemetryWindow.objects.filter(fleet=fleet)
    if not fleet.accept_simulated:
        windows = windows.filter(simulated=False)
    return windows.order_by("-ended_at").values_list("ended_at", flat=True).first()


def envelope_of(rollout: Rollout) -> JsonObject | None:
    """The range that was validated for the plan of a rollout, from the evidence that it was approved on.

    ``p99_limit_s``, ``load_low_rps``, ``load_high_rps``, ``active_keys``, ``max_imbalance``, ``max_error_rate``; the
    last two are the fleet's policy where the evidence is from before they were kept. None for Flat-LB, and where no
    replay validated anything.
    """
    if not rollout.evidence_digest:
        return None
    rows = GateEvaluation.objects.filter(plan=rollout.plan_id, evidence_digest=rollout.evidence_digest)
    envelope: JsonObject | None = rows.order_by("-id").values_list("evidence__envelope", flat=True).first()
    if envelope is None:
        return None
    fleet = rollout.fleet
    return {"max_imbalance": fleet.max_imbalance, "max_error_rate": fleet.max_error_rate, **envelope}
