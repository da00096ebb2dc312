"""Schema of explanations and studies. Selectors make the responses."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers

from planner.models import Study


class NullableFloat(serializers.FloatField):
    """A number; null if unknown or not finite."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, **options)


class PlacementSerializer(serializers.Serializer[Any]):
    destination = serializers.CharField()
    share = serializers.FloatField(help_text="Requests/s that the key adds")
    cold = serializers.FloatField(help_text="Requests/s of cold keys")
    heavier_keys = serializers.IntegerField(help_text="Keys of higher rate on the same destination")
    heavier_load = serializers.FloatField(help_text="Requests/s of the heavier keys")
    load_before = serializers.FloatField()
    load_after = serializers.FloatField()
    rank = serializers.IntegerField(help_text="1: the least loaded destination at the time of placement")
    among = serializers.IntegerField(help_text="Possible destinations")
    capacity = serializers.FloatField(help_text="Relative speed of the destination")
    level = serializers.FloatField(help_text="load_after / capacity, the criterion if speeds differ")
    kept = serializers.BooleanField(help_text="The key was warm there in the incumbent")


class KeyExplanationSerializer(serializers.Serializer[Any]):
    plan = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=["key"])
    name = serializers.CharField()
    sentence = serializers.CharField(help_text="The explanation in words")
    index = serializers.IntegerField()
    keys = serializers.IntegerField(help_text="Keys of the workload")
    rate = serializers.FloatField(help_text="Requests/s")
    share_of_total = serializers.FloatField()
    rank = serializers.IntegerField(help_text="1: the busiest key")
    wanted = serializers.IntegerField(help_text="Destinations by rate / q_cap, not clamped")
    planned = serializers.IntegerField()
    cannot_fit = serializers.BooleanField()
    admitted = serializers.BooleanField()
    reason = serializers.CharField(
        help_text="admitted, slots_gone, slots_short, tokens_short, no_room, quota_full, preferred_others or not_told"
    )
    figures = serializers.DictField(help_text="Figures behind the reason")
    members = PlacementSerializer(many=True)
    next_destination = serializers.CharField(allow_null=True)
    next_load = NullableFloat(help_text="Load of the next best destination, requests/s")
    next_level = NullableFloat(help_text="Its load after the placement, per unit of speed")
    uneven = serializers.BooleanField(help_text="The destinations differ in speed")
    backup = serializers.CharField(allow_null=True, help_text="Destination while all its destinations are down")
    tenant = serializers.CharField(allow_null=True)
    incumbent = serializers.IntegerField(allow_null=True, help_text="Number of the incumbent of a replan")
    was = serializers.ListField(child=serializers.CharField(), allow_null=True)
    lost = serializers.ListField(child=serializers.CharField(), allow_null=True)
    gained = serializers.ListField(child=serializers.CharField(), allow_null=True)


class HeldKeySerializer(serializers.Serializer[Any]):
    key = serializers.CharField()
    rate = serializers.FloatField()
    share = serializers.FloatField()
    replicas = serializers.IntegerField()


class ReceiverSerializer(serializers.Serializer[Any]):
    destination = serializers.CharField()
    backup_keys = serializers.IntegerField()
    backup_rate = serializers.FloatField()
    member_keys = serializers.IntegerField()
    member_rate = serializers.FloatField()
    cold_rate = serializers.FloatField()
    load_after = serializers.FloatField()


class DestinationExplanationSerializer(serializers.Serializer[Any]):
    plan = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=["destination"])
    name = serializers.CharField()
    sentence = serializers.CharField(help_text="The explanation in words")
    index = serializers.IntegerField(help_text="Index of the destination in its fleet")
    available = serializers.BooleanField()
    capacity = serializers.FloatField()
    load = serializers.FloatField(help_text="Planned requests/s, cold traffic included")
    cold = serializers.FloatField()
    keys = serializers.IntegerField(help_text="Warm keys; each takes one slot")
    slots_of_all = serializers.IntegerField()
    warm_tokens = NullableFloat(help_text="KV tokens of its warm keys")
    relative_load = serializers.FloatField(help_text="Load / capacity over that of the fleet")
    busiest = HeldKeySerializer(many=True)
    imbalance_after = NullableFloat(help_text="Max/mean of the others after its loss")
    receivers = ReceiverSerializer(many=True, help_text="The 100 destinations with the largest increase")
    receiver_count = serializers.IntegerField(help_text="Number of destinations with an increase")


EXPLANATION = PolymorphicProxySerializer(
    component_name="Explanation",
    serializers={"key": KeyExplanationSerializer, "destination": DestinationExplanationSerializer},
    resource_type_field_name="kind",
)


class StudySerializer(serializers.ModelSerializer[Study]):
    created_by = serializers.CharField(source="created_by.username")

    class Meta:
        model = Study
        fields = (
            "id", "plan", "kind", "parameters", "results", "inputs_digest", "code_version", "created_by", "created_at",
        )  # fmt: skip
