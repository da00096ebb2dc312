"""Webhooks, emergencies, checkpoints and policies: what is shown and what is accepted."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.serializers import FleetField


class WebhookSerializer(serializers.ModelSerializer[models.Webhook]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True, allow_null=True, default=None)
    created_by = serializers.CharField(source="created_by.username", read_only=True)

    class Meta:
        model = models.Webhook
        exclude = ["secret"]


class NewWebhookSerializer(WebhookSerializer):
    signing_secret = serializers.CharField(read_only=True, help_text="Key of the HMAC; shown this once")


class WebhookInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    url = serializers.CharField(max_length=500, trim_whitespace=False)
    fleet = FleetField(required=False, allow_null=True)
    format = serializers.ChoiceField(choices=models.Webhook.Format.choices, required=False, default="json")
    actions = serializers.ListField(
        child=serializers.CharField(max_length=60),
        required=False,
        max_length=200,
        help_text="Actions of the audit trail; none: all",
    )


class WebhookChange(serializers.Serializer[Any]):
    url = serializers.CharField(max_length=500, trim_whitespace=False, required=False)
    actions = serializers.ListField(child=serializers.CharField(max_length=60), required=False, max_length=200)
    enabled = serializers.BooleanField(required=False)


class DeliverySerializer(serializers.ModelSerializer[models.WebhookDelivery]):
    action = serializers.CharField(source="event.action", read_only=True)

    class Meta:
        model = models.WebhookDelivery
        fields = "__all__"


class EmergencySerializer(serializers.ModelSerializer[models.BreakGlass]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    opened_by = serializers.CharField(source="opened_by.username", read_only=True)
    reviewed_by = serializers.CharField(source="reviewed_by.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.BreakGlass
        fields = "__all__"


class EmergencyInput(serializers.Serializer[Any]):
    fleet = FleetField()
    reason = serializers.CharField(max_length=4_000)


class ReviewInput(serializers.Serializer[Any]):
    review = serializers.CharField(max_length=4_000)


class CheckpointSerializer(serializers.ModelSerializer[models.AuditCheckpoint]):
    class Meta:
        model = models.AuditCheckpoint
        fields = ["id", "position", "digest", "document", "created_at"]


class WaitingSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField(help_text="approval, waiver, review, emergency, rollout or monitor")
    fleet = serializers.CharField()
    text = serializers.CharField()
    since = serializers.DateTimeField()
    path = serializers.CharField(help_text="Page to decide on")
    simulated = serializers.BooleanField()


class PolicyVersionSerializer(serializers.ModelSerializer[models.PolicyVersion]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    changed_by = serializers.CharField(source="changed_by.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.PolicyVersion
        fields = "__all__"
