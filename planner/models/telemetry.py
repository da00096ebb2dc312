from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from planner.models.base import immutable
from planner.models.fleet import Fleet
from planner.models.plan import Plan


class TelemetryWindow(models.Model):
    """What one arm of a fleet served in one window of time. Never prompt text."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="telemetry_windows")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="telemetry_windows")
    arm = models.CharField(max_length=12)
    source = models.CharField(max_length=120, help_text="Router that reported it")
    table_version = models.PositiveBigIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    simulated = models.BooleanField(default=False)
    figures = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-started_at", "-id"]
        triggers = immutable(allow_delete=True)
        constraints = [
            models.UniqueConstraint(
                F("fleet"), F("source"), F("arm"), F("started_at"), name="telemetry_window_once_a_source"
            ),
            models.CheckConstraint(condition=Q(ended_at__gt=F("started_at")), name="telemetry_window_has_length"),
        ]

    def __str__(self) -> str:
        return f"{self.arm} {self.started_at:%Y-%m-%d %H:%M:%S}"


class DriftCheck(models.Model):
    """A comparison of what a plan was made for with what is measured now."""

    class Verdict(models.TextChoices):
        WITHIN = "within", "within the validated range"
        LEFT = "left", "left the validated range"
        MISSING = "missing", "not enough data"

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="drift_checks")
    verdict = models.CharField(max_length=8, choices=Verdict)
    figures = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = immutable(allow_delete=True)
        constraints = [
            models.CheckConstraint(condition=Q(verdict__in=["within", "left", "missing"]), name="drift_verdict_known"),
        ]

    def __str__(self) -> str:
        return f"drift of {self.plan}: {self.verdict}"
