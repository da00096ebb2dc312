"""Serializers of rollouts, analyses, freezes and blast radius. Rules live in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.core.serializers import FleetField
from planner.api.plans.serializers import PlanOnlyInput
from planner.selectors.rollouts.queries import rollout_state


class RolloutStepSerializer(serializers.ModelSerializer[models.RolloutStep]):
    entered_by = serializers.CharField(source="entered_by.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.RolloutStep
        fields = ["number", "weight", "entered_at", "entered_by"]


class RolloutAnalysisSerializer(serializers.ModelSerializer[models.RolloutAnalysis]):
    class Meta:
        model = models.RolloutAnalysis
        fields = [
            "id", "rollout", "step", "verdict", "explanation", "numbers", "simulated", "window_start", "window_end",
            "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class PlannedStepSerializer(serializers.Serializer[Any]):
    weight = serializers.FloatField(help_text="Share of keys")
    hold_s = serializers.FloatField(help_text="Hold in seconds")


class HeldSerializer(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=["frozen", "paused", "watching", "analysis"])
    message = serializers.CharField(help_text="Reason of the hold, and the next action")


class RolloutSerializer(serializers.ModelSerializer[models.Rollout]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    started_by = serializers.CharField(source="started_by.username", read_only=True, allow_null=True, default=None)
    paused_by = serializers.CharField(source="paused_by.username", read_only=True, allow_null=True, default=None)
    planned_steps = PlannedStepSerializer(many=True, read_only=True)
    steps = RolloutStepSerializer(many=True, read_only=True)
    step = serializers.IntegerField(
        source="standing.step", read_only=True, help_text="Current step, from 1; 0: scheduled"
    )
    next_weight = serializers.FloatField(
        source="standing.next_weight",
        read_only=True,
        allow_null=True,
        help_text="Weight of the next step; null: the next advance makes the plan active",
    )
    hold_left_s = serializers.FloatField(
        source="standing.hold_left_s", read_only=True, help_text="Remaining seconds of the hold"
    )
    analysis = RolloutAnalysisSerializer(
        source="standing.analysis", read_only=True, allow_null=True, help_text="Latest analysis of the step"
    )
    held = HeldSerializer(source="standing.held", many=True, read_only=True, help_text="Holds of the step; empty: none")

    class Meta:
        model = models.Rollout
        fields = [
            "id", "fleet", "plan", "state", "kind", "weight", "planned_steps", "steps", "step", "next_weight",
            "step_started_at", "hold_left_s", "analysis", "held", "incumbent", "evidence_digest", "scheduled_for",
            "paused_at", "paused_by", "pause_reason", "started_by", "activated_at", "ended_at", "end_reason", "version",
            "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = fields

    def to_representation(self, instance: models.Rollout) -> dict[str, Any]:
        """The rollout with its state, which is computed once. `freezes` of the context are the open freezes."""
        instance.standing = rollout_state(instance, self.context.get("freezes"))  # type: ignore[attr-defined]  # used by the fields
        return super().to_representation(instance)


class FreezeSerializer(serializers.ModelSerializer[models.Freeze]):
    fleet = serializers.CharField(
        source="fleet.slug", read_only=True, allow_null=True, default=None, help_text="null: all fleets"
    )
    frozen_by = serializers.CharField(source="frozen_by.username", read_only=True)
    lifted_by = serializers.CharField(source="lifted_by.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.Freeze
        fields = ["id", "fleet", "reason", "frozen_by", "created_at", "lifted_by", "lifted_at"]
        read_only_fields = fields


class TouchedTenantSerializer(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    keys = serializers.IntegerField(help_text="Affected keys of the tenant")
    rate_rps = serializers.FloatField(help_text="Requests/s of the affected keys")
    share_of_own = serializers.FloatField(help_text="Share of the requests/s of the tenant")


class DipSerializer(serializers.Serializer[Any]):
    cold_share = serializers.FloatField(help_text="Share of cold requests at the switch")
    first_misses = serializers.IntegerField(help_text="Pairs of key and destination that start cold")
    half_s = serializers.FloatField(help_text="Seconds until half of the cold requests/s remains")
    tenth_s = serializers.FloatField(help_text="Seconds until a tenth remains")
    how = serializers.CharField(help_text="Assumptions of the estimate")


class BlastRadiusSerializer(serializers.Serializer[Any]):
    """Blast radius of a plan: an estimate from tables and rates."""

    against = serializers.IntegerField(help_text="Number of the active plan")
    estimate = serializers.BooleanField()
    keys_gained = serializers.IntegerField(help_text="Keys that are warm only in the new table")
    keys_lost = serializers.IntegerField(help_text="Keys that are warm only in the active table")
    keys_moved = serializers.IntegerField(help_text="Keys that are warm in both tables on different destinations")
    keys_gone = serializers.IntegerField(help_text="Keys of the active table without requests in the workload")
    rate_gained = serializers.FloatField(help_text="Share of the requests/s of the workload on gained keys")
    rate_lost = serializers.FloatField(help_text="Share on lost keys")
    rate_changed = serializers.FloatField(help_text="Share on moved keys")
    rate_moved = serializers.FloatField(help_text="Share on gained, lost and moved keys")
    rate_rps = serializers.FloatField(help_text="Requests/s of the workload")
    tenants = TouchedTenantSerializer(many=True)
    tenant_count = serializers.IntegerField(help_text="Affected tenants; the first 20 are listed")
    rewarm_tokens = serializers.IntegerField(allow_null=True, help_text="null: prefix lengths are unknown")
    dip = DipSerializer()


# --- Input ---------------------------------------------------------------------------------
class RolloutInput(PlanOnlyInput):
    scheduled_for = serializers.DateTimeField(
        required=False, allow_null=True, help_text="Time of the start, if all checks pass again; null: now"
    )


class RescheduleInput(serializers.Serializer[Any]):
    scheduled_for = serializers.DateTimeField()


class NeededReasonInput(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=4000)


class RollBackInput(PlanOnlyInput, NeededReasonInput):
    pass


class FreezeInput(NeededReasonInput):
    fleet = FleetField(
        required=False, allow_null=True, help_text="null: all fleets; requires the right to manage fleets"
    )
