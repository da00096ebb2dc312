from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.artifact import Artifact
from planner.models.base import DIGEST_LENGTH, immutable
from planner.models.fleet import Fleet


class Workload(models.Model):
    """Measured key rates of a fleet, with the request trace if one was imported. Rows do not change."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="workloads")
    name = models.CharField(max_length=120)
    format = models.CharField(max_length=40)
    source_name = models.CharField(max_length=255)
    source_sha256 = models.CharField(max_length=DIGEST_LENGTH)
    source_bytes = models.PositiveBigIntegerField()
    parameters = models.JSONField(default=dict)
    simulated = models.BooleanField(default=False, help_text="Generated, not measured on traffic")
    measured_at = models.DateTimeField(help_text="End of the window that the rates were measured in")
    window_s = models.FloatField(help_text="Length of that window, seconds")
    key_count = models.PositiveIntegerField()
    request_count = models.PositiveIntegerField(default=0)
    total_rps = models.FloatField()
    shape = models.JSONField(help_text="Shape of the rates: Gini coefficient, shares of the top keys")
    notices = models.JSONField(default=list, help_text="Counts of corrections and warnings of the import")
    rates = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+")
    trace = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = immutable()
        constraints = [
            models.UniqueConstraint(F("fleet"), F("name"), name="workload_name_once_a_fleet"),
            models.CheckConstraint(condition=Q(key_count__gte=1), name="workload_has_keys"),
            models.CheckConstraint(condition=Q(total_rps__gte=0), name="workload_rate_not_negative"),
            models.CheckConstraint(condition=Q(window_s__gte=0), name="workload_window_not_negative"),
        ]

    def __str__(self) -> str:
        return self.name
