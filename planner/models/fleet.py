from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.base import Versioned, immutable
from planner.models.serving import ServingProfile

# Bounds of a destination's speed; the services check the same bounds.
MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0


def default_weights() -> list[float]:
    """Shares of keys of the canary steps by default: 1%, 10%, 50%, then all keys."""
    return [0.01, 0.1, 0.5]


def default_holds() -> list[float]:
    """Seconds of each canary step by default: one value for all steps."""
    return [300.0]


class Fleet(Versioned):
    """Destinations behind one routing table, with the policy by which its plans are judged."""

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    serving_profile = models.ForeignKey(ServingProfile, on_delete=models.PROTECT, related_name="fleets")
    salt = models.CharField(max_length=64, editable=False, help_text="Mixed into the hash that splits keys in a canary")
    # Policy: part of the evidence of every gate evaluation. PolicyVersion has the older versions.
    policy_version = models.PositiveIntegerField(default=1)
    slo_p99_s = models.FloatField(default=3.5, help_text="SLO: p99 end-to-end latency that capacity must meet, seconds")
    min_approvals = models.PositiveSmallIntegerField(default=1)
    max_rates_age_days = models.PositiveSmallIntegerField(default=7)
    approval_days = models.PositiveSmallIntegerField(default=14, help_text="Validity of an approval, days")
    min_loads = models.PositiveSmallIntegerField(default=3, help_text="Minimum loads per replay")
    min_seeds = models.PositiveSmallIntegerField(default=3, help_text="Minimum paired seeds per replay")
    min_requests = models.PositiveIntegerField(default=1_000, help_text="Minimum measured requests per cell")
    max_imbalance = models.FloatField(default=1.5, help_text="Maximum planned imbalance (max/mean load)")
    max_loss_imbalance = models.FloatField(
        default=2.0, help_text="Maximum planned imbalance (max/mean load) after the loss of one destination"
    )
    accept_simulated = models.BooleanField(
        default=False, help_text="Accept a simulated calibration as evidence (sample and trial fleets only)"
    )
    canary_weights = models.JSONField(
        default=default_weights, help_text="Share of keys of each canary step, ascending, below 1"
    )
    canary_holds_s = models.JSONField(
        default=default_holds, help_text="Hold of each canary step, seconds: one value for all steps or one for each"
    )
    canary_warmup_s = models.FloatField(
        default=60.0, help_text="Seconds after the start of a step that the analysis ignores, because caches are cold"
    )
    canary_min_requests = models.PositiveIntegerField(
        default=1_000, help_text="Minimum requests per arm before a step is judged"
    )
    max_error_rate = models.FloatField(default=0.01, help_text="Maximum error rate (share of requests)")
    auto_advance = models.BooleanField(
        default=False, help_text="Advance automatically after the hold, if the analysis passes"
    )
    auto_abort = models.BooleanField(default=True, help_text="Abort automatically if the analysis fails")
    auto_fall_back = models.BooleanField(default=True, help_text="Fall back automatically outside the validated range")
    breaches_to_fall_back = models.PositiveSmallIntegerField(
        default=3, help_text="Consecutive checks outside the validated range before the fleet falls back"
    )
    cool_down_s = models.FloatField(
        default=1_800.0, help_text="Seconds after an automatic fallback in which no rollout starts"
    )
    telemetry_stale_s = models.FloatField(
        default=180.0, help_text="Seconds without telemetry before it counts as silent"
    )
    simulated_traffic = models.BooleanField(
        default=False, help_text="Simulated traffic: the console replays the published table in real time"
    )
    # Version of the published table, which routers poll; it grows with every change.
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
            models.CheckConstraint(condition=Q(max_loss_imbalance__gte=1), name="fleet_max_loss_at_least_one"),
            models.CheckConstraint(condition=Q(approval_days__gte=1), name="fleet_approvals_hold_a_day"),
            models.CheckConstraint(
                condition=Q(min_loads__gte=3, min_seeds__gte=3, min_requests__gte=1_000),
                name="fleet_replay_floor",
            ),
            models.CheckConstraint(
                condition=Q(max_error_rate__gte=0, max_error_rate__lte=1), name="fleet_error_rate_a_share"
            ),
            models.CheckConstraint(condition=Q(breaches_to_fall_back__gte=1), name="fleet_breaches_at_least_one"),
        ]

    def __str__(self) -> str:
        return self.name


class PolicyVersion(models.Model):
    """The policy of a fleet from one moment on. Rows do not change."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="policy_versions")
    number = models.PositiveIntegerField()
    values = models.JSONField()
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["fleet", "-number"]
        triggers = immutable()
        constraints = [models.UniqueConstraint(F("fleet"), F("number"), name="policy_version_once_a_fleet")]

    def __str__(self) -> str:
        return f"policy {self.number} of {self.fleet}"


class FleetRole(models.Model):
    """The Django group that holds a role on one fleet; the groups with plain role names hold it on all fleets."""

    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="roles")
    role = models.CharField(max_length=10)
    group = models.OneToOneField("auth.Group", on_delete=models.CASCADE, related_name="fleet_role")

    class Meta:
        ordering = ["fleet", "role"]
        constraints = [
            models.UniqueConstraint(F("fleet"), F("role"), name="fleet_role_once"),
            models.CheckConstraint(
                condition=Q(role__in=["viewer", "planner", "approver", "operator", "admin"]), name="fleet_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} of {self.fleet}"


class Publication(models.Model):
    """The content of one version of the routing table: plans and their shares of keys. Rows do not change.

    Telemetry names a version and an arm; this row maps them to a plan, also years later.
    """

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="publications")
    version = models.PositiveBigIntegerField()
    arms = models.JSONField(help_text="[{name, plan (its id), number, rollout, weight}], the incumbent first")
    issued_at = models.DateTimeField()

    class Meta:
        ordering = ["fleet", "-version"]
        triggers = immutable()
        constraints = [models.UniqueConstraint(F("fleet"), F("version"), name="publication_once_a_version")]
        indexes = [models.Index(fields=["fleet", "-issued_at"], name="publication_newest")]

    def __str__(self) -> str:
        return f"table {self.version} of {self.fleet}"


class Destination(Versioned):
    """A replica, or a group of replicas behind one address, that serves requests."""

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
