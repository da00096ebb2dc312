"""Rounds of telemetry and monitor checks on a fleet, with a clock that the test controls."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone

from planner.models import AuditEvent, DriftCheck, Fleet, Plan, TelemetryWindow
from planner.services.monitoring import monitor
from planner.services.monitoring.drift import GRACE_S
from planner.services.telemetry import windows
from tests.traffic import arm_report, window_report

POLICY = {"canary_weights": [0.1], "canary_holds_s": [0], "canary_warmup_s": 0, "canary_min_requests": 300}
STEP = dt.timedelta(minutes=2)


class Clock:
    """Rounds of two minutes, at the end of each of which a router reports and the monitor checks the fleet."""

    def __init__(self, cast, fleet):
        self.cast, self.fleet = cast, fleet
        self.now = timezone.now() - dt.timedelta(hours=1)

    def round(self, *, report=True, look=True, **figures):
        """Two minutes of 6 requests/s (validated for 8), unless the figures say otherwise; the check, if any."""
        self.now += STEP
        fleet = self.fleet = Fleet.objects.get(pk=self.fleet.pk)
        if report:
            more = {name: figures.pop(name) for name in ("keys", "simulated", "source") if name in figures}
            canary = figures.pop("canary", None)
            arms = [arm_report(fleet, **{"requests": 720, "p99_s": 1.5, **figures})]
            if canary is not None:
                arms[0] = arm_report(fleet, **{"requests": 470, "p99_s": 1.5, **figures})
                arms.append(arm_report(fleet, "canary", **{"requests": 470, "p99_s": 1.5, "seed": 5, **canary}))
            ended = self.now - dt.timedelta(seconds=GRACE_S)
            payload = window_report(fleet, *arms, started_at=ended - STEP, seconds=120, **more)
            windows.record_windows(acting_user=self.cast.linus, fleet=fleet, payload=payload)
        return monitor.watch_fleet(fleet, now=self.now) if look else None


def long_ago_clock(cast, fleet) -> Clock:
    """A clock for a fleet whose plan has been active for five hours, without earlier telemetry or checks."""
    long_ago = timezone.now() - dt.timedelta(hours=5)
    fleet.rollouts.filter(state="active").update(activated_at=long_ago, step_started_at=long_ago)
    TelemetryWindow.objects.all().delete()
    DriftCheck.objects.all().delete()
    return Clock(cast, fleet)


def actions(fleet) -> list[str]:
    """What the monitor did, oldest first."""
    return list(
        AuditEvent.objects.filter(fleet=fleet, actor_name="monitor").order_by("id").values_list("action", flat=True)
    )


def is_flat(fleet) -> bool:
    return fleet.rollouts.get(state="active").plan.kind == Plan.Kind.FLAT
