"""Thin: what is shown and what is accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from planner import models
from planner.api.fields import FiniteFloat
from planner.api.replay_serializers import ReplayOptions
from planner.api.tenant_slots import SlotsOfTenants, refuse_strays
from planner.models.fleet import MAX_WEIGHT, MIN_WEIGHT
from planner.routing.admission import ADMISSIONS
from planner.selectors.access import rights
from planner.services.fleets.destination_rules import MAX_NAME_CHARS, MAX_URL_CHARS
from planner.services.fleets.policy import POLICY_FIELDS
from planner.services.plans.options import MOST_TOKENS


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


class WorkloadSerializer(serializers.ModelSerializer[models.Workload]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True)
    rates_digest = serializers.CharField(source="rates.digest", read_only=True)
    trace_digest = serializers.CharField(source="trace.digest", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.Workload
        exclude = ["rates", "trace"]


class CalibrationSerializer(serializers.ModelSerializer[models.Calibration]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True)

    class Meta:
        model = models.Calibration
        fields = "__all__"


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


class AuditEventSerializer(serializers.ModelSerializer[models.AuditEvent]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True, allow_null=True, default=None)

    actor_id = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Of the account; null where the console itself acted"
    )

    class Meta:
        model = models.AuditEvent
        exclude = ["actor"]


class TokenSerializer(serializers.ModelSerializer[models.ApiToken]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.ApiToken
        exclude = ["digest", "user"]


class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(read_only=True, help_text="The secret; shown this once")


# --- What is accepted ---------------------------------------------------------------------------------
class FleetField(serializers.SlugRelatedField[models.Fleet]):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(slug_field="slug", queryset=models.Fleet.objects.all(), **kwargs)

    def get_queryset(self) -> QuerySet[models.Fleet]:
        """The fleets that the person may see: of others not even the name is confirmed."""
        request = self.context.get("request")
        return models.Fleet.objects.all() if request is None else rights.visible_fleets(request.user)


class Speed(FiniteFloat):
    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("help_text", "Relative speed; 1 is the destination that q_cap was measured on")
        super().__init__(min_value=MIN_WEIGHT, max_value=MAX_WEIGHT, required=False, **kwargs)


class NewDestination(serializers.Serializer[Any]):
    # Trimmed they would differ from what was sent: the service refuses blanks.
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
        child=FiniteFloat(), required=False, max_length=20, help_text="Seconds: one for all steps, or one for each"
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


class WorkloadInput(serializers.Serializer[Any]):
    fleet = FleetField()
    file = serializers.FileField(allow_empty_file=True, use_url=False)
    name = serializers.CharField(required=False, allow_blank=True, max_length=120)
    format = serializers.CharField(required=False, default="auto", max_length=40)
    key_depth = serializers.IntegerField(required=False, default=2, min_value=1, max_value=1_000_000)
    block_tokens = serializers.IntegerField(required=False, default=512, min_value=1, max_value=1_000_000)
    strict = serializers.BooleanField(required=False, default=False)
    measured_at = serializers.DateTimeField(required=False)


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
        help_text="The sweep: at each load its figures, such as load_rps and p99_s",
    )
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)


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
        max_value=MOST_TOKENS,
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


class ReasonInput(serializers.Serializer[Any]):
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=4000)


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
        help_text="CIDR, such as 10.0.0.0/8; none: any address",
    )


class RotateInput(serializers.Serializer[Any]):
    overlap_s = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=2_592_000, help_text="Seconds that the old secret works on"
    )
