"""Endpoints of replays."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.json_columns import Only
from planner.api.core.schema import Accepted
from planner.api.core.viewsets import ReadViewSet, accepted
from planner.api.replays import serializers
from planner.models import Replay
from planner.services.replays import orders as replay_orders


class ReplayViewSet(ReadViewSet):
    """Replays of plans."""

    queryset = Replay.objects.select_related("plan", "created_by").order_by("-id")
    serializer_class = serializers.ReplaySerializer
    fleet_path = "plan__fleet"
    filterset_fields = {"plan": ["exact"], "state": ["exact"], "plan__fleet__slug": ["exact"]}

    def get_queryset(self) -> QuerySet[Replay]:
        """Replays; lists omit the verdict except capacities, and cells omit it."""
        queryset = super().get_queryset()
        if self.action not in ("list", "cells"):
            return queryset
        return queryset.defer("verdict").annotate(short_verdict=Only("verdict", "capacity"))

    def get_serializer_class(self) -> type[serializers.ReplaySerializer]:
        """The short serializer for lists."""
        if self.action == "list":
            return serializers.ReplayRowSerializer
        return serializers.ReplaySerializer

    @extend_schema(request=serializers.ReplayInput, responses={202: Accepted})
    def create(self, request: Request) -> Response:
        """Order a replay of a built plan against Flat-LB. The checklist is evaluated after the last cell."""
        row, job = replay_orders.start_replay(acting_user=self.person, **self.accept(serializers.ReplayInput))
        return accepted(request, job, plan=row.plan_id, replay=row.pk)

    @extend_schema(responses={200: serializers.ReplayCellSerializer(many=True)}, filters=False)
    @action(detail=True, methods=["get"])
    def cells(self, request: Request, pk: str) -> Response:
        """Cells of a replay with their figures."""
        row: Any = self.get_object()
        page = self.paginate_queryset(row.cells.order_by("-id"))
        return self.get_paginated_response(serializers.ReplayCellSerializer(page, many=True).data)
