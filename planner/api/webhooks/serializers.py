"""Serializers of webhooks and their deliveries: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.core.serializers import FleetField


class WebhookSerializer(serializers.ModelSerializer[models.Webhook]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True, allow_null=True, default=None)
    created_by = serializers.CharField(source="created_by.username", read_only=True)

    class Meta:
        model = models.Webhook
        exclude = ["secret"]


class NewWebhookSerializer(WebhookSerializer):
    signing_secret = serializers.CharField(read_only=True, help_text="Key of the HMAC; in this response only")


class WebhookInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    url = serializers.CharField(max_length=500, trim_whitespace=False)
    fleet = FleetField(required=False, allow_null=True)
    format = serializers.ChoiceField(choices=models.Webhook.Format.choices, required=False, default="json")
    actions = serializers.ListField(
        child=serializers.CharField(max_length=60),
        required=False,
        max_length=200,
        help_text="Actions of the audit trail; empty: all actions",
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
