"""Serializers of plans: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from planner import models
from planner.api.core.fields import FiniteFloat
from planner.api.core.serializers import FleetField
from planner.api.plans.tenant_slots import SlotsOfTenants, refuse_strays
from planner.api.replays.serializers import ReplayOptions
from planner.routing.admission import ADMISSIONS
from planner.services.plans.options import MAX_TOKENS


class PlanSerializer(serializers.ModelSerializer[models.Plan]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    author = serializers.CharField(source="author.username", read_only=True, allow_null=True, default=None)
    submitted_by = serializers.CharField(source="submitted_by.username", read_only=True, allow_null=True, default=None)
    table_digest = serializers.CharField(source="table.digest", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.Plan
        exclude = ["table"]


class PlanRowSerializer(PlanSerializer):
    """A plan in a list, without values per tenant, key and destination."""

    parameters = serializers.JSONField(
        source="short_parameters", read_only=True, help_text="Without tenant_quota and tenant_floor"
    )
    summary = serializers.JSONField(
        source="short_summary", read_only=True, help_text="Without load, after_loss, top_keys and tenants"
    )


class PlanInput(serializers.Serializer[Any]):
    fleet = FleetField()
    workload = serializers.PrimaryKeyRelatedField(queryset=models.Workload.objects.all())
    calibration = serializers.PrimaryKeyRelatedField(queryset=models.Calibration.objects.all())
    admission = serializers.ChoiceField(
        choices=ADMISSIONS,
        required=False,
        default="top_rate",
        help_text="By rate, by saved prefill tokens per unit of budget, or the best set that fits",
    )
    balance_target = FiniteFloat(required=False, allow_null=True, min_value=1, max_value=1e6)
    slots_per_destination = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=2**31 - 1)
    tokens_per_destination = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MAX_TOKENS,
        help_text="Maximum warm KV tokens per destination; the workload must have prefix lengths",
    )
    tenant_quota = SlotsOfTenants(help_text="Maximum warm slots per tenant: {name: slots}")
    tenant_floor = SlotsOfTenants(help_text="Reserved warm slots per tenant, up to its demand: {name: slots}")
    incumbent = serializers.PrimaryKeyRelatedField(
        queryset=models.Plan.objects.all(),
        required=False,
        allow_null=True,
        help_text="Replan: keep the warm keys of this plan where the balance allows; null: new plan",
    )
    max_imbalance_factor = FiniteFloat(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=1e6,
        help_text="Replan: maximum imbalance relative to a new plan (default 1.02)",
    )
    max_moved_share = FiniteFloat(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=1,
        help_text="Replan: maximum share of the admitted rate that moves for balance",
    )
    replay = ReplayOptions(required=False, allow_null=True)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)

    def to_internal_value(self, data: Any) -> Any:
        """The validated input. A misspelt field of tenant slots is refused."""
        refuse_strays(data)
        return super().to_internal_value(data)


class PlanOnlyInput(serializers.Serializer[Any]):
    plan = serializers.PrimaryKeyRelatedField(queryset=models.Plan.objects.all())
