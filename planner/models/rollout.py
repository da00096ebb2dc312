from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.base import TRANSITIONS, StateMachine, Versioned, immutable, known_state
from planner.models.fleet import Fleet
from planner.models.plan import Plan


class RolloutState(StateMachine):
    CANARY = "canary"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back", "rolled back"
    ABORTED = "aborted"


class Rollout(Versioned):
    """A plan on its way to traffic and its time there. A fleet has one active rollout and at most one canary."""

    State = RolloutState

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="rollouts")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="rollouts")
    state = models.CharField(max_length=12, choices=State)
    weight = models.FloatField(help_text="Share of keys that this plan routes")
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    activated_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            known_state(RolloutState, "rollout_state_known"),
            models.UniqueConstraint(fields=["fleet"], condition=Q(state="active"), name="rollout_one_active_a_fleet"),
            models.UniqueConstraint(fields=["fleet"], condition=Q(state="canary"), name="rollout_one_canary_a_fleet"),
            models.CheckConstraint(condition=Q(weight__gt=0, weight__lte=1), name="rollout_weight_a_share"),
            models.CheckConstraint(condition=~Q(state="active") | Q(weight=1), name="rollout_active_is_whole"),
            models.CheckConstraint(condition=~Q(state="canary") | Q(weight__lt=1), name="rollout_canary_is_part"),
            models.CheckConstraint(
                condition=Q(state__in=["canary", "active"], ended_at=None)
                | Q(state__in=["superseded", "rolled_back", "aborted"], ended_at__isnull=False),
                name="rollout_ended_iff_over",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.plan} on {self.fleet}: {self.state}"


TRANSITIONS[RolloutState] = {
    "canary": ("active", "aborted"),
    "active": ("superseded", "rolled_back"),
}


class RolloutStep(models.Model):
    """When a rollout took a weight, and who let it."""

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
