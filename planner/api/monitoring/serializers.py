"""Serializers of drift checks: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from rest_framework import serializers

from planner import models


class DriftCheckSerializer(serializers.ModelSerializer[models.DriftCheck]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.DriftCheck
        fields = "__all__"
