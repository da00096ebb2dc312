"""Serializers of tokens and break-glass: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.core.serializers import FleetField


class BreakGlassSerializer(serializers.ModelSerializer[models.BreakGlass]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    opened_by = serializers.CharField(source="opened_by.username", read_only=True)
    reviewed_by = serializers.CharField(source="reviewed_by.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.BreakGlass
        fields = "__all__"


class BreakGlassInput(serializers.Serializer[Any]):
    fleet = FleetField()
    reason = serializers.CharField(max_length=4_000)


class BreakGlassReviewInput(serializers.Serializer[Any]):
    review = serializers.CharField(max_length=4_000)


class TokenSerializer(serializers.ModelSerializer[models.ApiToken]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.ApiToken
        exclude = ["digest", "user"]


class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(read_only=True, help_text="The secret; in this response only")


class TokenInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=models.ApiToken.Scope.choices), min_length=1, max_length=5
    )
    fleet = FleetField(required=False, allow_null=True)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)
    allowed_networks = serializers.ListField(
        child=serializers.CharField(max_length=60),
        required=False,
        max_length=50,
        help_text="CIDR, such as 10.0.0.0/8; empty: any address",
    )


class RotateInput(serializers.Serializer[Any]):
    overlap_s = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=2_592_000, help_text="Seconds until the old secret ends"
    )
