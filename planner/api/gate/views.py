"""Endpoints of gate evaluations."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.viewsets import ReadViewSet
from planner.api.gate.serializers import GateSerializer
from planner.api.plans.serializers import PlanOnlyInput
from planner.models import GateEvaluation
from planner.services.gate import evaluations


class GateViewSet(ReadViewSet):
    """Evaluations of the checklist with their stored evidence."""

    queryset = (
        GateEvaluation.objects.select_related("plan__fleet", "created_by").prefetch_related("items").order_by("-id")
    )
    serializer_class = GateSerializer
    fleet_path = "plan__fleet"
    filterset_fields = {
        "plan": ["exact"],
        "passed": ["exact"],
        "plan__fleet__slug": ["exact"],
        "policy_version": ["exact"],
        "evidence_digest": ["exact"],
    }

    @extend_schema(request=PlanOnlyInput, responses={201: GateSerializer})
    def create(self, request: Request) -> Response:
        """Evaluate the checklist of a plan."""
        evaluation = evaluations.evaluate_gate(acting_user=self.person, **self.accept(PlanOnlyInput))
        return self.answer(evaluation, 201, Location=f"/api/v1/gates/{evaluation.pk}/")
