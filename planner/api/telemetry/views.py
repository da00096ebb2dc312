"""Endpoints of telemetry windows."""

from __future__ import annotations

from django.db.models import QuerySet

from planner.api.core.json_columns import Without
from planner.api.core.viewsets import ReadViewSet
from planner.api.telemetry import serializers
from planner.models import TelemetryWindow


class TelemetryWindowViewSet(ReadViewSet):
    """Stored telemetry windows. Routers send them to `POST /fleets/{slug}/telemetry/`."""

    queryset = TelemetryWindow.objects.select_related("fleet").order_by("-id")
    serializer_class = serializers.TelemetryWindowSerializer
    filterset_fields = {
        "fleet__slug": ["exact"],
        "plan": ["exact"],
        "arm": ["exact"],
        "source": ["exact"],
        "simulated": ["exact"],
        "late": ["exact"],
        "ended_at": ["gte", "lt"],
    }

    def get_queryset(self) -> QuerySet[TelemetryWindow]:
        """Windows; a list omits long columns in the query."""
        queryset = super().get_queryset()
        if self.action != "list":
            return queryset
        return queryset.defer("figures").annotate(
            short_figures=Without("figures", "keys", "latency", "destinations"),
        )

    def get_serializer_class(self) -> type[serializers.TelemetryWindowSerializer]:
        """The short serializer for lists."""
        if self.action == "list":
            return serializers.TelemetryRowSerializer
        return serializers.TelemetryWindowSerializer
