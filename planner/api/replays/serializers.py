"""Serializers of replays: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from planner import models
from planner.api.core.fields import FiniteFloat
from planner.api.core.serializers import Strict
from planner.routing import POLICIES
from planner.services.replays.events import KINDS, MAX_FACTOR
from planner.services.replays.options import ARRIVALS, MAX_LOAD_RPS, MAX_ROUNDS, MIN_LOAD_RPS
from planner.services.replays.policy_parameters import known_parameters

SHARE = "share of the arrival span, 0 the first and 1 the last arrival; the same at every load"


def _described(name: str) -> str:
    known = known_parameters(name)
    return f"{name} ({', '.join(f'{k} {v}' for k, v in known.items())})" if known else f"{name} (none)"


class FaultInput(Strict):
    kind = serializers.ChoiceField(
        choices=KINDS,
        help_text="down: stops and restarts cold; drain: takes no new requests, keeps its cache; slow: its steps take "
        "`factor` times as long",
    )
    destination = serializers.CharField(max_length=200, help_text="Name of a destination of the plan")
    start = FiniteFloat(min_value=0, max_value=1, help_text=f"Start: {SHARE}")
    end = FiniteFloat(
        required=False, allow_null=True, min_value=0, max_value=1, help_text=f"End: {SHARE}. null: no end"
    )
    factor = FiniteFloat(required=False, allow_null=True, max_value=MAX_FACTOR, help_text="Factor of slow; default 2")


class SwitchInput(Strict):
    from_plan = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, help_text="Number in its fleet of the built plan that is live until `at`"
    )
    at = FiniteFloat(min_value=0, max_value=1, help_text=f"Time of the switch to this plan: {SHARE}")


@extend_schema_field(
    {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": True}, "default": {}}
)
class ParametersOfPolicies(serializers.JSONField):
    """{policy: {parameter: value}}; forms have no such field."""

    def to_internal_value(self, data: Any) -> Any:
        """An object of objects. The service checks the parameters."""
        data = super().to_internal_value(data)
        if not isinstance(data, dict):
            raise serializers.ValidationError("An object: {policy: {parameter: value}}.")
        return data


class ReplayOptions(Strict):
    policies = serializers.ListField(
        child=serializers.ChoiceField(choices=list(POLICIES)),
        required=False,
        max_length=20,
        help_text="Flat-LB and CacheRoute are always included",
    )
    policy_parameters = ParametersOfPolicies(
        required=False,
        help_text="Changed parameters, {policy: {parameter: value}}. Parameters with defaults: "
        + "; ".join(_described(name) for name in POLICIES),
    )
    loads_rps = serializers.ListField(
        child=FiniteFloat(min_value=MIN_LOAD_RPS, max_value=MAX_LOAD_RPS), required=False, max_length=100
    )
    seeds = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=2**31 - 1), required=False, max_length=100
    )
    arrivals = serializers.ChoiceField(choices=ARRIVALS, required=False, default="poisson")
    cv = FiniteFloat(
        required=False, min_value=0.01, max_value=100, help_text="Coefficient of variation of gamma arrivals"
    )
    run_length = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=5_000_000,
        help_text="Gaps per run of bootstrap arrivals; default: the cube root of the number of gaps",
    )
    requests = serializers.IntegerField(required=False, default=20_000, min_value=100, max_value=5_000_000)
    warmup = FiniteFloat(required=False, default=0.2, min_value=0, max_value=0.99)
    faults = FaultInput(many=True, required=False, help_text="Makes the replay a what-if replay")
    switch = SwitchInput(
        required=False, allow_null=True, help_text="Another plan is live first. Makes the replay a what-if replay"
    )
    also = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**31 - 1),
        required=False,
        max_length=20,
        help_text="Numbers in the fleet of other built plans to replay, shown as cacheroute@<number>",
    )
    refine = serializers.IntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=MAX_ROUNDS,
        help_text="Rounds of bisection between the highest passed and the lowest failed load of each policy",
    )
    extend = serializers.BooleanField(
        required=False, default=False, help_text="Rounds also extend beyond the lowest and highest load"
    )


class ReplayInput(ReplayOptions):
    plan = serializers.PrimaryKeyRelatedField(queryset=models.Plan.objects.all())


class ReplayCellSerializer(serializers.ModelSerializer[models.ReplayCell]):
    class Meta:
        model = models.ReplayCell
        exclude = ["replay", "attempt"]


class ReplaySerializer(serializers.ModelSerializer[models.Replay]):
    created_by = serializers.CharField(source="created_by.username", read_only=True)

    class Meta:
        model = models.Replay
        fields = "__all__"


class ReplayRowSerializer(ReplaySerializer):
    """A replay in a list, without values per policy, load, seed and tenant."""

    verdict = serializers.JSONField(
        source="short_verdict", read_only=True, help_text="Only the capacity of each policy"
    )
