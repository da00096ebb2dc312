from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.base import DIGEST_LENGTH, TRANSITIONS, StateMachine, Versioned, immutable, known_state
from planner.models.fleet import Fleet
from planner.models.plan import Plan


class RolloutState(StateMachine):
    SCHEDULED = "scheduled"
    CANARY = "canary"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back", "rolled back"
    ABORTED = "aborted"


class Rollout(Versioned):
    """A plan on its way to traffic and its time there.

    A fleet has one active rollout, and at most one other that is scheduled or in canary.
    """

    State = RolloutState
    # Not active yet: scheduled or in canary.
    AHEAD = (State.SCHEDULED, State.CANARY)
    # Carries traffic.
    LIVE = (State.CANARY, State.ACTIVE)
    OPEN = (State.SCHEDULED, State.CANARY, State.ACTIVE)

    class Kind(models.TextChoices):
        CANARY = "canary", "canary"
        ROLLBACK = "rollback", "roll back"
        FALLBACK = "fallback", "fallback"

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="rollouts")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="rollouts")
    state = models.CharField(max_length=12, choices=State)
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.CANARY)
    weight = models.FloatField(help_text="Share of keys that this plan routes; if scheduled, its first share")
    planned_steps = models.JSONField(
        default=list, help_text="[{weight, hold_s}]: steps of the fleet's policy at the start"
    )
    step_started_at = models.DateTimeField(null=True, blank=True, help_text="Start of the present step")
    incumbent = models.ForeignKey(
        Plan,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        blank=True,
        help_text="The rollout that was active at the start: the baseline",
    )
    evidence_digest = models.CharField(
        max_length=DIGEST_LENGTH, blank=True, help_text="Digest of the approved evidence"
    )
    scheduled_for = models.DateTimeField(null=True, blank=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True, blank=True
    )
    pause_reason = models.TextField(blank=True)
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    activated_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            known_state(RolloutState, "rollout_state_known"),
            models.UniqueConstraint(fields=["fleet"], condition=Q(state="active"), name="rollout_one_active_a_fleet"),
            models.UniqueConstraint(
                fields=["fleet"], condition=Q(state__in=["scheduled", "canary"]), name="rollout_one_ahead_a_fleet"
            ),
            models.CheckConstraint(
                condition=~Q(state="scheduled") | Q(scheduled_for__isnull=False), name="rollout_schedule_has_a_time"
            ),
            models.CheckConstraint(condition=Q(weight__gt=0, weight__lte=1), name="rollout_weight_a_share"),
            models.CheckConstraint(condition=~Q(state="active") | Q(weight=1), name="rollout_active_is_whole"),
            models.CheckConstraint(condition=~Q(state="canary") | Q(weight__lt=1), name="rollout_canary_is_part"),
            models.CheckConstraint(
                condition=Q(state__in=["scheduled", "canary", "active"], ended_at=None)
                | Q(state__in=["superseded", "rolled_back", "aborted"], ended_at__isnull=False),
                name="rollout_ended_iff_over",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.plan} on {self.fleet}: {self.state}"


TRANSITIONS[RolloutState] = {
    # A cancelled schedule, or one refused at its time, is aborted: the plan stays approved.
    "scheduled": ("canary", "aborted"),
    "canary": ("active", "aborted"),
    "active": ("superseded", "rolled_back"),
}


class RolloutStep(models.Model):
    """The start of a rollout's step, and the user who activated it."""

    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="steps")
    number = models.PositiveSmallIntegerField()
    weight = models.FloatField()
    entered_at = models.DateTimeField(auto_now_add=True)
    entered_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)

    class Meta:
        ordering = ["rollout", "number"]
        triggers = immutable()
        constraints = [
            models.UniqueConstraint(F("rollout"), F("number"), name="rollout_step_once"),
            models.CheckConstraint(condition=Q(weight__gt=0, weight__lte=1), name="rollout_step_weight_a_share"),
        ]

    def __str__(self) -> str:
        return f"step {self.number}: {self.weight:.0%}"


class RolloutAnalysis(models.Model):
    """A comparison of a canary with its incumbent on telemetry of one step. Rows do not change."""

    class Verdict(models.TextChoices):
        PASS = "pass"  # noqa: S105 - a verdict, not a password
        FAIL = "fail"
        INCONCLUSIVE = "inconclusive"
        MISSING = "missing", "not enough data"
        ERROR = "error"

    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="analyses")
    step = models.PositiveSmallIntegerField()
    verdict = models.CharField(max_length=12, choices=Verdict)
    explanation = models.TextField()
    numbers = models.JSONField(default=dict)
    simulated = models.BooleanField(default=False)
    window_start = models.DateTimeField(null=True)
    window_end = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = immutable(allow_delete=True)
        constraints = [
            models.CheckConstraint(
                condition=Q(verdict__in=["pass", "fail", "inconclusive", "missing", "error"]),
                name="analysis_verdict_known",
            ),
        ]

    def __str__(self) -> str:
        return f"step {self.step} of {self.rollout}: {self.verdict}"


class Freeze(models.Model):
    """A time in which no rollout moves on a fleet, or on all fleets if fleet is None. Falling back stays possible."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="freezes", null=True, blank=True)
    reason = models.TextField()
    frozen_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    lifted_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    lifted_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["fleet"],
                condition=Q(lifted_at=None),
                nulls_distinct=False,
                name="freeze_one_a_fleet",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="freeze_has_a_reason"),
        ]

    def __str__(self) -> str:
        return f"freeze of {self.fleet or 'all fleets'}"
