"""Serializers of telemetry: reports of routers and stored windows."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from planner import models
from planner.analysis.latency import FIRST, FORMAT, LARGEST_S, LAST
from planner.api.core.fields import FiniteFloat
from planner.api.core.serializers import Strict
from planner.services.telemetry.payload import MAX_SOURCE_CHARS, MOST

MAX_DESTINATIONS = 10_000
MAX_SAMPLES = 100_000


class TelemetryWindowSerializer(serializers.ModelSerializer[models.TelemetryWindow]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True)

    class Meta:
        model = models.TelemetryWindow
        exclude = ["payload_digest"]


class TelemetryRowSerializer(TelemetryWindowSerializer):
    """A window in a list, without key counts, sketch and figures of destinations."""

    figures = serializers.JSONField(source="short_figures", read_only=True)


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": MOST},
        "description": "Requests by key name; prompt text is never sent",
    }
)
class KeyCounts(serializers.Field[Any, Any, Any, Any]):
    """{key: requests}; validated in one pass, because there can be many."""

    def to_internal_value(self, data: Any) -> dict[str, int]:
        """The counts; the service validates their values."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("An object: {key: requests}.")
        return data

    def to_representation(self, value: Any) -> Any:
        """The counts unchanged."""
        return value


@extend_schema_field(
    {
        "type": "object",
        "required": ["format"],
        "additionalProperties": False,
        "properties": {
            "format": {"type": "string", "enum": [FORMAT]},
            "zero": {"type": "integer", "minimum": 0, "maximum": MOST},
            "buckets": {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 0, "maximum": MOST},
                "description": f"Bucket i, {FIRST} to {LAST}, counts latencies in (1.02^(i-1), 1.02^i] seconds",
            },
        },
    }
)
class SketchField(serializers.Field[Any, Any, Any, Any]):
    """A latency sketch; the service parses it."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """The object of the request."""
        if not isinstance(data, dict):
            raise serializers.ValidationError("A sketch: an object with format, zero and buckets.")
        return data

    def to_representation(self, value: Any) -> Any:
        """The sketch unchanged."""
        return value


class DestinationReport(Strict):
    name = serializers.CharField(required=False, max_length=120, trim_whitespace=False)
    index = serializers.IntegerField(
        required=False, min_value=0, max_value=2**31 - 1, help_text="Index in the routing table; alternative to name"
    )
    requests = serializers.IntegerField(min_value=0, max_value=MOST)
    prompt_tokens = serializers.IntegerField(min_value=0, max_value=MOST, required=False, default=0)
    cached_tokens = serializers.IntegerField(min_value=0, max_value=MOST, required=False, default=0)
    # Names of the contract, which shadow properties of the serializer class.
    errors = serializers.IntegerField(min_value=0, max_value=MOST, required=False, default=0)  # type: ignore[assignment]  # the name of the contract, which DRF uses otherwise
    latency = SketchField(required=False, help_text="End-to-end latency of the answered requests")
    sample_s = serializers.ListField(
        child=FiniteFloat(min_value=0, max_value=LARGEST_S),
        required=False,
        max_length=MAX_SAMPLES,
        help_text="Latencies in seconds; alternative to the sketch",
    )


class ArmReport(Strict):
    name = serializers.CharField(max_length=12, help_text="Name in the routing table: incumbent or canary")
    destinations = DestinationReport(many=True, max_length=MAX_DESTINATIONS)  # type: ignore[call-arg]  # of the list


class TelemetryInput(Strict):
    source = serializers.CharField(  # type: ignore[assignment]  # the name of the contract, which DRF uses otherwise
        max_length=MAX_SOURCE_CHARS, trim_whitespace=False, help_text="Constant name of the router"
    )
    table_version = serializers.IntegerField(
        min_value=0, max_value=2**63 - 1, help_text="Version of the routing table in this window"
    )
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()
    simulated = serializers.BooleanField(required=False, default=False)
    arms = ArmReport(many=True, max_length=2)  # type: ignore[call-arg]  # of the list
    keys = KeyCounts(required=False)


class TelemetryAnswer(serializers.Serializer[Any]):
    windows = serializers.ListField(child=serializers.IntegerField(), help_text="Ids, one per arm")
    recorded = serializers.IntegerField()
    duplicates = serializers.IntegerField(help_text="Arms of a window that was already stored with the same figures")
    late = serializers.BooleanField(help_text="The window arrived after the monitor had judged its time")
    dropped_keys = serializers.IntegerField(help_text="Keys beyond the busiest 2,000; only their number is stored")
