"""Whether somebody watches: when the monitor ran last, and when routers were heard last."""

from __future__ import annotations

import datetime as dt

from planner.models import DriftCheck, Fleet, TelemetryWindow


def last_ran() -> dt.datetime | None:
    """When the monitor looked at any fleet last: it writes a check of each one every minute."""
    return DriftCheck.objects.order_by("-id").values_list("created_at", flat=True).first()


def last_telemetry(fleet: Fleet) -> dt.datetime | None:
    """The end of the newest window that was reported; simulated ones count where the fleet accepts them."""
    windows = TelemetryWindow.objects.filter(fleet=fleet)
    if not fleet.accept_simulated:
        windows = windows.filter(simulated=False)
    return windows.order_by("-ended_at").values_list("ended_at", flat=True).first()
