"""Serializers of workloads: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.core.serializers import FleetField


class WorkloadSerializer(serializers.ModelSerializer[models.Workload]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True)
    rates_digest = serializers.CharField(source="rates.digest", read_only=True)
    trace_digest = serializers.CharField(source="trace.digest", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.Workload
        exclude = ["rates", "trace"]


class WorkloadInput(serializers.Serializer[Any]):
    fleet = FleetField()
    file = serializers.FileField(allow_empty_file=True, use_url=False)
    name = serializers.CharField(required=False, allow_blank=True, max_length=120)
    format = serializers.CharField(required=False, default="auto", max_length=40)
    key_depth = serializers.IntegerField(required=False, default=2, min_value=1, max_value=1_000_000)
    block_tokens = serializers.IntegerField(required=False, default=512, min_value=1, max_value=1_000_000)
    strict = serializers.BooleanField(required=False, default=False)
    measured_at = serializers.DateTimeField(required=False)
