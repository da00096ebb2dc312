"""Endpoint of the versions of a fleet policy."""

from __future__ import annotations

from planner.api.core.viewsets import ReadViewSet
from planner.api.fleets.serializers import PolicyVersionSerializer
from planner.models import PolicyVersion


class PolicyVersionViewSet(ReadViewSet):
    """The policies that a fleet has had: plans were judged by one of them."""

    queryset = PolicyVersion.objects.select_related("fleet", "changed_by").order_by("-id")
    serializer_class = PolicyVersionSerializer
    filterset_fields = {"fleet__slug": ["exact"], "number": ["exact"]}
