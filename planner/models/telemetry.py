from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.base import DIGEST_LENGTH, immutable
from planner.models.fleet import Fleet
from planner.models.plan import Plan
from planner.models.rollout import Rollout


class TelemetryWindow(models.Model):
    """Telemetry of one arm of a fleet in one window of time. It never contains prompt text."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="telemetry_windows")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="telemetry_windows")
    arm = models.CharField(max_length=12)
    source = models.CharField(max_length=120, help_text="Reporting router")
    table_version = models.PositiveBigIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    simulated = models.BooleanField(default=False)
    late = models.BooleanField(default=False, help_text="Arrived after its time was judged")
    payload_digest = models.CharField(
        max_length=DIGEST_LENGTH, blank=True, help_text="Distinguishes a repeated report from a revised one"
    )
    requests = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)
    figures = models.JSONField(
        help_text="prompt_tokens, cached_tokens, latency (sketch), destinations, active_keys, keys"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-started_at", "-id"]
        triggers = immutable(allow_delete=True)
        constraints = [
            models.UniqueConstraint(
                F("fleet"), F("source"), F("arm"), F("started_at"), name="telemetry_window_once_a_source"
            ),
            models.CheckConstraint(condition=Q(ended_at__gt=F("started_at")), name="telemetry_window_has_length"),
            models.CheckConstraint(condition=Q(errors__lte=F("requests")), name="telemetry_errors_are_requests"),
        ]
        indexes = [
            models.Index(fields=["fleet", "-ended_at"], name="telemetry_newest"),
            models.Index(fields=["fleet", "source", "arm", "ended_at"], name="telemetry_of_a_source"),
        ]

    def __str__(self) -> str:
        return f"{self.arm} {self.started_at:%Y-%m-%d %H:%M:%S}"


class TelemetrySource(models.Model):
    """The account that reports under a source name on a fleet; other accounts may not use the name."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="telemetry_sources")
    name = models.CharField(max_length=120)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    token_number = models.PositiveBigIntegerField(
        null=True, help_text="Token of the first report; null if sent in a session"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["fleet", "name"]
        constraints = [models.UniqueConstraint(F("fleet"), F("name"), name="telemetry_source_once_a_fleet")]

    def __str__(self) -> str:
        return self.name


class DriftCheck(models.Model):
    """A comparison of recent telemetry with the validated range of a plan."""

    class Verdict(models.TextChoices):
        WITHIN = "within", "within the validated range"
        OUT_OF_RANGE = "left", "outside the validated range"
        MISSING = "missing", "not enough data"
        SILENT = "silent", "telemetry silent"

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="drift_checks", null=True)
    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="drift_checks", null=True)
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="drift_checks")
    verdict = models.CharField(max_length=8, choices=Verdict)
    explanation = models.TextField(blank=True)
    figures = models.JSONField(default=dict)
    simulated = models.BooleanField(default=False)
    by_hand = models.BooleanField(default=False, help_text="Requested by a person; does not show that the monitor runs")
    window_start = models.DateTimeField(null=True)
    window_end = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = immutable(allow_delete=True)
        constraints = [
            models.CheckConstraint(
                condition=Q(verdict__in=["within", "left", "missing", "silent"]), name="drift_verdict_known"
            ),
        ]
        indexes = [models.Index(fields=["fleet", "-id"], name="drift_newest")]

    def __str__(self) -> str:
        return f"drift of {self.plan}: {self.verdict}"
