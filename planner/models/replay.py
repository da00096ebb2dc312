from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.base import DIGEST_LENGTH, Versioned, known_state
from planner.models.plan import Plan, PlanState
from planner.models.workload import Workload

# Policies that every replay compares.
BASELINE = "flat-lb"
CANDIDATE = "cacheroute"


class ReplayState(models.TextChoices):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Replay(Versioned):
    """A replay of the candidate, Flat-LB and other policies on the same arrivals, at several loads and seeds."""

    State = ReplayState

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="replays")
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="replays")
    state = models.CharField(max_length=10, choices=State, default=State.RUNNING)
    plan_state = models.CharField(
        max_length=12,
        choices=PlanState,
        blank=True,
        help_text="The plan's earlier state, restored if the replay fails or is cancelled; empty for what-if replays",
    )
    policies = models.JSONField()
    loads_rps = models.JSONField()
    seeds = models.JSONField()
    arrivals = models.CharField(max_length=20)
    parameters = models.JSONField(default=dict)
    slo_p99_s = models.FloatField()
    engine_profile = models.CharField(max_length=80)
    fingerprint = models.CharField(max_length=DIGEST_LENGTH)
    code_version = models.CharField(max_length=40)
    what_if = models.BooleanField(
        default=False,
        help_text="Has faults, a plan switch or changed policy parameters; no evidence for the gate",
    )
    refined_loads = models.JSONField(
        default=dict, help_text="Loads that bisection added to the ladder of a policy, requests/s: {policy: [load]}"
    )
    refine_rounds = models.PositiveSmallIntegerField(default=0, help_text="Bisection rounds started")
    verdict = models.JSONField(default=dict, help_text="Figures over the cells: means, intervals, capacity")
    figures_digest = models.CharField(
        max_length=DIGEST_LENGTH,
        blank=True,
        help_text="sha256 of the figures of all cells in canonical order: equal for equal replays",
    )
    failure = models.TextField(blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            known_state(ReplayState, "replay_state_known"),
            models.UniqueConstraint(fields=["plan"], condition=Q(state="running"), name="replay_one_running_a_plan"),
            models.CheckConstraint(condition=Q(slo_p99_s__gt=0), name="replay_slo_positive"),
        ]

    def __str__(self) -> str:
        return f"Replay {self.pk} of {self.plan}"


class CellState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ReplayCell(models.Model):
    """One policy at one load with one seed: the unit of work of a replay."""

    State = CellState
    OPEN = (CellState.QUEUED, CellState.RUNNING)

    replay = models.ForeignKey(Replay, on_delete=models.PROTECT, related_name="cells")
    policy = models.CharField(max_length=40, help_text="Policy, or cacheroute@N for plan N of the fleet")
    load_rps = models.FloatField()
    seed = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0)
    figures = models.JSONField(default=dict)
    error = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["replay", "load_rps", "policy", "seed"]
        constraints = [
            known_state(CellState, "replay_cell_state_known"),
            models.UniqueConstraint(F("replay"), F("policy"), F("load_rps"), F("seed"), name="replay_cell_once"),
            models.CheckConstraint(condition=Q(load_rps__gt=0), name="replay_cell_load_positive"),
        ]
        indexes = [
            models.Index(fields=["state"], condition=Q(state__in=["queued", "running"]), name="replay_cell_open")
        ]

    def __str__(self) -> str:
        return f"{self.policy} at {self.load_rps:g}/s, seed {self.seed}"
