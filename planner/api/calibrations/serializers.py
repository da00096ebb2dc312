"""Serializers of calibrations: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.core.fields import FiniteFloat
from planner.api.core.serializers import FleetField


class CalibrationSerializer(serializers.ModelSerializer[models.Calibration]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True)

    class Meta:
        model = models.Calibration
        fields = "__all__"


class CalibrationInput(serializers.Serializer[Any]):
    fleet = FleetField()
    q_cap = FiniteFloat()
    slots_measured = serializers.IntegerField(min_value=0, max_value=2**31 - 1)
    margin = FiniteFloat(required=False, default=0.8)
    q_cap_censored = serializers.ChoiceField(choices=["", "left", "right"], required=False, default="")
    knee_method = serializers.CharField(required=False, default="stated by the operator", max_length=120)
    points = serializers.ListField(
        child=serializers.DictField(child=FiniteFloat()),
        required=False,
        max_length=1000,
        help_text="The sweep: one object per load, such as load_rps and p99_s",
    )
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)
