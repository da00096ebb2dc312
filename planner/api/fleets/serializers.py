"""Serializers of fleets, destinations and policies: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.core.fields import FiniteFloat
from planner.api.core.serializers import FleetField
from planner.models.fleet import MAX_WEIGHT, MIN_WEIGHT
from planner.services.fleets.destination_rules import MAX_NAME_CHARS, MAX_URL_CHARS
from planner.services.fleets.policy import POLICY_FIELDS


class PolicyVersionSerializer(serializers.ModelSerializer[models.PolicyVersion]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    changed_by = serializers.CharField(source="changed_by.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.PolicyVersion
        fields = "__all__"


class DestinationSerializer(serializers.ModelSerializer[models.Destination]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)

    class Meta:
        model = models.Destination
        fields = ["id", "fleet", "index", "name", "url", "state", "weight", "version"]
        read_only_fields = fields


class ServingProfileSerializer(serializers.ModelSerializer[models.ServingProfile]):
    class Meta:
        model = models.ServingProfile
        exclude = ["engine_constants", "fit"]


class FleetSerializer(serializers.ModelSerializer[models.Fleet]):
    serving_profile = ServingProfileSerializer(read_only=True)

    class Meta:
        model = models.Fleet
        fields = [
            "id", "slug", "name", "description", "serving_profile", "slo_p99_s", "min_approvals",
            *(name for name in POLICY_FIELDS if name not in ("slo_p99_s", "min_approvals")), "policy_version",
            "simulated_traffic", "table_version",
            "table_issued_at", "version", "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = fields


class Speed(FiniteFloat):
    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("help_text", "Relative speed; 1 is the destination on which q_cap was measured")
        super().__init__(min_value=MIN_WEIGHT, max_value=MAX_WEIGHT, required=False, **kwargs)


class NewDestination(serializers.Serializer[Any]):
    # Not trimmed: the service refuses surrounding spaces.
    name = serializers.CharField(max_length=MAX_NAME_CHARS, trim_whitespace=False)
    url = serializers.CharField(max_length=MAX_URL_CHARS, trim_whitespace=False)
    weight = Speed(default=1.0)


class AddDestinationInput(NewDestination):
    fleet = FleetField()


class PolicyInput(serializers.Serializer[Any]):
    slo_p99_s = FiniteFloat(required=False, min_value=0.001, max_value=3600)
    min_approvals = serializers.IntegerField(required=False, min_value=1, max_value=100)
    max_rates_age_days = serializers.IntegerField(required=False, min_value=1, max_value=3_650)
    max_imbalance = FiniteFloat(required=False, min_value=1, max_value=1000)
    max_loss_imbalance = FiniteFloat(required=False, min_value=1, max_value=1000)
    approval_days = serializers.IntegerField(required=False, min_value=1, max_value=365)
    min_loads = serializers.IntegerField(required=False, min_value=3, max_value=100)
    min_seeds = serializers.IntegerField(required=False, min_value=3, max_value=100)
    min_requests = serializers.IntegerField(required=False, min_value=1_000, max_value=10_000_000)
    accept_simulated = serializers.BooleanField(required=False)
    canary_weights = serializers.ListField(child=FiniteFloat(), required=False, max_length=20)
    canary_holds_s = serializers.ListField(
        child=FiniteFloat(),
        required=False,
        max_length=20,
        help_text="Hold of each step in seconds: one for all steps, or one per step",
    )
    canary_warmup_s = FiniteFloat(required=False, min_value=0, max_value=86_400)
    canary_min_requests = serializers.IntegerField(required=False, min_value=1, max_value=10**9)
    max_error_rate = FiniteFloat(required=False, min_value=0, max_value=1)
    auto_advance = serializers.BooleanField(required=False)
    auto_abort = serializers.BooleanField(required=False)
    auto_fall_back = serializers.BooleanField(required=False)
    breaches_to_fall_back = serializers.IntegerField(required=False, min_value=1, max_value=1_000)
    cool_down_s = FiniteFloat(required=False, min_value=0, max_value=604_800)
    telemetry_stale_s = FiniteFloat(required=False, min_value=30, max_value=86_400)


class FleetInput(PolicyInput):
    slug = serializers.SlugField(max_length=60)
    name = serializers.CharField(max_length=120)
    description = serializers.CharField(required=False, allow_blank=True, max_length=2000)
    engine_profile = serializers.CharField(max_length=80)
    destinations = NewDestination(many=True, allow_empty=False)


class ServingProfileInput(serializers.Serializer[Any]):
    engine_profile = serializers.CharField(max_length=80)


class DestinationInput(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=models.Destination.State.choices, required=False)
    weight = Speed()
