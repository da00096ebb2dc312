from __future__ import annotations

from django.db.models import QuerySet

from planner.api import telemetry_serializers
from planner.api.base import ReadViewSet
from planner.api.views.plans import Without
from planner.models import DriftCheck, TelemetryWindow


class TelemetryWindowViewSet(ReadViewSet):
    """What routers reported. It is sent to the fleet: `POST /fleets/{slug}/telemetry/`."""

    queryset = TelemetryWindow.objects.select_related("fleet").order_by("-id")
    serializer_class = telemetry_serializers.TelemetryWindowSerializer
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
        """A list leaves out what is long: in the database, so that it is not even read."""
        queryset = super().get_queryset()
        if self.action != "list":
            return queryset
        return queryset.defer("figures").annotate(
            short_figures=Without("figures", "keys", "latency", "destinations"),
        )

    def get_serializer_class(self) -> type[telemetry_serializers.TelemetryWindowSerializer]:
        """Rows of a list are shorter than a window of its own."""
        if self.action == "list":
            return telemetry_serializers.TelemetryRowSerializer
        return telemetry_serializers.TelemetryWindowSerializer


class DriftCheckViewSet(ReadViewSet):
    """The monitor's checks: what was validated against what is measured now."""

    queryset = DriftCheck.objects.select_related("fleet", "plan").order_by("-id")
    serializer_class = telemetry_serializers.DriftCheckSerializer
    fleet_path = "plan__fleet"
    filterset_fields = {
        "fleet__slug": ["exact"],
        "plan": ["exact"],
        "rollout": ["exact"],
        "verdict": ["exact", "in"],
        "simulated": ["exact"],
        "created_at": ["gte", "lt"],
    }
