from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from planner.models.base import Versioned
from planner.models.serving import ServingProfile

# Relative speeds that a destination may have, as the services check them.
MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0


class Fleet(Versioned):
    """A set of destinations behind one routing table, with the policy that its plans are judged by."""

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    serving_profile = models.ForeignKey(ServingProfile, on_delete=models.PROTECT, related_name="fleets")
    salt = models.CharField(max_length=64, editable=False, help_text="Mixed into the hash that splits keys in a canary")
    # Policy, part of the evidence of every gate evaluation.
    slo_p99_s = models.FloatField(default=3.5, help_text="p99 end-to-end latency that capacity is measured at, seconds")
    min_approvals = models.PositiveSmallIntegerField(default=1)
    max_rates_age_days = models.PositiveSmallIntegerField(default=7)
    max_imbalance = models.FloatField(default=1.5, help_text="Highest planned max/mean load of a destination")
    accept_simulated = models.BooleanField(
        default=False, help_text="Accept a simulated calibration as evidence (sample and trial fleets only)"
    )
    canary_weights = models.JSONField(default=list, help_text="Shares of keys of the canary's steps, rising, below 1")
    # What routers poll: grows whenever the published table changes.
    table_version = models.PositiveBigIntegerField(default=1)
    table_issued_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]
        permissions = [
            ("plan_fleet", "May import workloads, build plans and run replays"),
            ("approve_plan", "May approve or reject the plans of others"),
            ("operate_fleet", "May start and advance rollouts and fall back to Flat-LB"),
            ("manage_fleet", "May create fleets and change their destinations and policy"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(min_approvals__gte=1), name="fleet_quorum_at_least_one"),
            models.CheckConstraint(condition=Q(slo_p99_s__gt=0), name="fleet_slo_positive"),
            models.CheckConstraint(condition=Q(max_imbalance__gte=1), name="fleet_max_imbalance_at_least_one"),
        ]

    def __str__(self) -> str:
        return self.name


class Destination(Versioned):
    """One replica (or replica group behind one address) that requests are sent to."""

    class State(models.TextChoices):
        UP = "up"
        DRAINING = "draining"
        DOWN = "down"

    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="destinations")
    index = models.PositiveIntegerField()
    name = models.CharField(max_length=120)
    url = models.CharField(max_length=500)
    state = models.CharField(max_length=10, choices=State, default=State.UP)
    weight = models.FloatField(default=1.0)

    class Meta:
        ordering = ["fleet", "index"]
        constraints = [
            models.UniqueConstraint(F("fleet"), F("index"), name="destination_index_once_a_fleet"),
            models.UniqueConstraint(F("fleet"), F("name"), name="destination_name_once_a_fleet"),
            # NaN is above every number to PostgreSQL, so the upper bound refuses it too.
            models.CheckConstraint(
                condition=Q(weight__gte=MIN_WEIGHT, weight__lte=MAX_WEIGHT), name="destination_weight_in_range"
            ),
            models.CheckConstraint(condition=Q(state__in=["up", "draining", "down"]), name="destination_state_known"),
        ]

    def __str__(self) -> str:
        return self.name
