"""Endpoints of drift checks."""

from __future__ import annotations

from planner.api.core.viewsets import ReadViewSet
from planner.api.monitoring.serializers import DriftCheckSerializer
from planner.models import DriftCheck


class DriftCheckViewSet(ReadViewSet):
    """Drift checks of the monitor: recent telemetry compared with the validated range."""

    queryset = DriftCheck.objects.select_related("fleet", "plan").order_by("-id")
    serializer_class = DriftCheckSerializer
    fleet_path = "plan__fleet"
    filterset_fields = {
        "fleet__slug": ["exact"],
        "plan": ["exact"],
        "rollout": ["exact"],
        "verdict": ["exact", "in"],
        "simulated": ["exact"],
        "created_at": ["gte", "lt"],
    }
