"""Input of calibrations. Rules live in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.core.fields import FiniteFloat
from planner.api.core.serializers import FleetField
from planner.services.calibrations.fits import MAX_NAME_CHARS
from planner.simulation.knee import KNEES


class FittedProfileSerializer(serializers.ModelSerializer[models.ServingProfile]):
    """A serving profile with fitted constants. `fit` has the calibration and the error of the fit."""

    class Meta:
        model = models.ServingProfile
        fields = "__all__"


class KneeOptions(serializers.Serializer[Any]):
    knee = serializers.ChoiceField(
        choices=list(KNEES),
        required=False,
        default="factor",
        help_text="; ".join(f"{name}: {what}" for name, what in KNEES.items()),
    )
    knee_factor = FiniteFloat(
        required=False,
        default=2.0,
        min_value=1,
        max_value=1000,
        help_text="Multiple of p99 at the lowest load; methods factor and chord",
    )
    slo_s = FiniteFloat(
        required=False,
        allow_null=True,
        min_value=0.001,
        max_value=86_400,
        help_text="Method slo; default: the SLO of the fleet",
    )


class SimulateInput(KneeOptions):
    fleet = FleetField()
    workload = serializers.PrimaryKeyRelatedField(queryset=models.Workload.objects.all())
    margin = FiniteFloat(required=False, default=0.8)
    loads = serializers.ListField(
        child=FiniteFloat(min_value=1e-6, max_value=1e6),
        required=False,
        max_length=50,
        help_text="Requests/s of one destination; default: 10% to 110% of the load that saturates it",
    )


class SweepInput(KneeOptions):
    fleet = FleetField()
    file = serializers.FileField(allow_empty_file=True, use_url=False)
    slots_measured = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**31 - 1,
        help_text="Warm prefixes kept; required unless the file has trials of W (prefixes, kept_share)",
    )
    keep_share = FiniteFloat(
        required=False,
        default=0.95,
        min_value=1e-6,
        max_value=1,
        help_text="Minimum share of warm tokens that stays cached in a trial of W",
    )
    margin = FiniteFloat(required=False, default=0.8)
    strict = serializers.BooleanField(required=False, default=False)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)


class FitInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME_CHARS, help_text="Name of the new serving profile")
    workload = serializers.PrimaryKeyRelatedField(
        queryset=models.Workload.objects.all(),
        required=False,
        allow_null=True,
        help_text="Workload of the sweep; required if the points have no mean iteration",
    )
