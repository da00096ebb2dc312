"""Endpoint of the versions of a fleet policy."""

from __future__ import annotations

from planner.api.core.viewsets import ReadViewSet
from planner.api.fleets.serializers import PolicyVersionSerializer
from planner.models import PolicyVersion


class PolicyVersionViewSet(ReadViewSet):
    """Versions of the policy of a fleet. Each evaluation names its version."""

    queryset = PolicyVersion.objects.select_related("fleet", "changed_by").order_by("-id")
    serializer_class = PolicyVersionSerializer
    filterset_fields = {"fleet__slug": ["exact"], "number": ["exact"]}
