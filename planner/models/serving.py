from __future__ import annotations

from django.db import models

from planner.models.base import DIGEST_LENGTH, immutable


class ServingProfile(models.Model):
    """How a fleet serves requests; a change makes the gate run again (paper, section 5.7, item 6).

    Rows do not change: another batching policy is another profile with another fingerprint.
    """

    name = models.CharField(max_length=120)
    model = models.CharField(max_length=200)
    precision = models.CharField(max_length=40)
    tensor_parallel = models.PositiveSmallIntegerField(default=1)
    context_tokens = models.PositiveIntegerField()
    batching_policy = models.CharField(max_length=200)
    cache_allocation = models.CharField(max_length=200)
    hardware = models.CharField(max_length=200)
    engine = models.CharField(max_length=80)
    engine_version = models.CharField(max_length=40, blank=True)
    engine_profile = models.CharField(max_length=80, help_text="Name of the engine constants")
    engine_constants = models.JSONField(help_text="Engine constants with the source of each")
    fit = models.JSONField(default=dict, blank=True, help_text="Source of fitted constants, and quality of the fit")
    fingerprint = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]
        triggers = immutable()
        constraints = [
            models.CheckConstraint(condition=models.Q(tensor_parallel__gte=1), name="serving_tensor_parallel_positive"),
            models.CheckConstraint(condition=models.Q(context_tokens__gte=1), name="serving_context_positive"),
        ]

    def __str__(self) -> str:
        return self.name
