"""Endpoints of explanations and studies."""

from __future__ import annotations

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.schema import Accepted
from planner.api.core.viewsets import ConsoleViewSet, accepted
from planner.api.plans.explanation_serializers import EXPLANATION, StudySerializer
from planner.models import Plan, Study
from planner.selectors.plans import explanations
from planner.services.plans import studies


class ExplanationViewSet(ConsoleViewSet):
    """Explanations of placements, and sensitivity studies."""

    queryset = Plan.objects.select_related("fleet", "workload__rates", "table", "incumbent__table")
    serializer_class = StudySerializer
    pagination_class = None

    @extend_schema(
        parameters=[
            OpenApiParameter("key", str, description="Name of a key of the plan's workload"),
            OpenApiParameter("destination", str, description="Name of a destination of the plan"),
        ],
        responses={200: EXPLANATION},
        filters=False,
    )
    def explain(self, request: Request, pk: str) -> Response:
        """Explain one key or one destination of a plan (exactly one): figures and a sentence."""
        asked = {name: request.query_params.get(name) for name in ("key", "destination")}
        return Response(explanations.explain(self.get_object(), **asked))

    @extend_schema(responses={200: StudySerializer}, filters=False)
    def sensitivity(self, request: Request, pk: str) -> Response:
        """The latest study of other slots, q_cap and skew; 404 without a study."""
        found = self.get_object().studies.filter(kind=Study.Kind.SENSITIVITY).select_related("created_by").first()
        if found is None:
            raise Http404
        return Response(self.get_serializer(found).data)

    @extend_schema(request=None, responses={202: Accepted})
    def order_sensitivity(self, request: Request, pk: str) -> Response:
        """Order a study: 125 new plans, built in the background."""
        plan = self.get_object()
        job = studies.order_study(acting_user=self.person, plan=plan)
        return accepted(request, job, plan=plan.pk)
