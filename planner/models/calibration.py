from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from planner.models.base import immutable
from planner.models.fleet import Fleet
from planner.models.serving import ServingProfile


class Calibration(models.Model):
    """Limits of one destination: q_cap (requests/s at the knee) and W (warm slots). Rows do not change."""

    class Source(models.TextChoices):
        MEASURED = "measured"
        SIMULATED = "simulated"

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="calibrations")
    serving_profile = models.ForeignKey(ServingProfile, on_delete=models.PROTECT, related_name="calibrations")
    source = models.CharField(max_length=10, choices=Source)
    q_cap = models.FloatField(help_text="Requests/s of one destination at the knee")
    q_cap_censored = models.CharField(
        max_length=5, blank=True, help_text="left or right: the knee is outside the tested loads"
    )
    knee_method = models.CharField(max_length=120)
    warm_slots = models.PositiveIntegerField(help_text="W: warm prefixes that one destination keeps, after the margin")
    slots_measured = models.PositiveIntegerField(help_text="Warm prefixes kept before the margin")
    margin = models.FloatField(help_text="W = measured x margin")
    points = models.JSONField(help_text="The sweep: load and latency of each point")
    parameters = models.JSONField(default=dict)
    note = models.TextField(blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = immutable()
        constraints = [
            models.CheckConstraint(condition=Q(q_cap__gt=0), name="calibration_q_cap_positive"),
            models.CheckConstraint(condition=Q(margin__gt=0, margin__lte=1), name="calibration_margin_a_share"),
            models.CheckConstraint(
                condition=Q(q_cap_censored__in=["", "left", "right"]), name="calibration_censoring_known"
            ),
            models.CheckConstraint(
                condition=Q(warm_slots__lte=models.F("slots_measured")),
                name="calibration_slots_within_measured",
            ),
        ]

    def __str__(self) -> str:
        origin = f"{self.source} with {name}" if (name := self.parameters.get("workload_name")) else self.source
        return f"q_cap {self.q_cap:g}/s, W {self.warm_slots} ({origin})"
