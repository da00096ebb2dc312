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
    """A plan in a list, without what grows with the number of tenants, keys and destinations."""

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
        help_text="By rate, by prefill tokens saved per unit of budget, or the best set that fits",
    )
    balance_target = FiniteFloat(required=False, allow_null=True, min_value=1, max_value=1e6)
    slots_per_destination = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=2**31 - 1)
    tokens_per_destination = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MAX_TOKENS,
        help_text="KV tokens that each destination may keep warm; the workload must know prefix lengths",
    )
    tenant_quota = SlotsOfTenants(help_text="Most warm slots of a tenant: {name: slots}")
    tenant_floor = SlotsOfTenants(help_text="Warm slots reserved for a tenant, as far as it has demand: {name: slots}")
    incumbent = serializers.PrimaryKeyRelatedField(
        queryset=models.Plan.objects.all(),
        required=False,
        allow_null=True,
        help_text="Replan: keep what this plan holds warm as far as the balance allows; none: from scratch",
    )
    max_imbalance_factor = FiniteFloat(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=1e6,
        help_text="Replan: how far the imbalance may exceed a fresh plan's (1.02 when not given)",
    )
    max_moved_share = FiniteFloat(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=1,
        help_text="Replan: most of the admitted rate that may move for the sake of balance",
    )
    replay = ReplayOptions(required=False, allow_null=True)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)

    def to_internal_value(self, data: Any) -> Any:
        """What is accepted; a field that only looks like slots of tenants is refused, not dropped."""
        refuse_strays(data)
        return super().to_internal_value(data)


class PlanOnlyInput(serializers.Serializer[Any]):
    plan = serializers.PrimaryKeyRelatedField(queryset=models.Plan.objects.all())
