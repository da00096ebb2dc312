from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api import governance_serializers as serializers
from planner.api.base import ConsoleViewSet, ReadViewSet
from planner.api.permissions import NEVER_BY_TOKEN
from planner.models import ApiToken, AuditCheckpoint, BreakGlass, Fleet, PolicyVersion
from planner.selectors.reviews.inbox import waiting_for_me
from planner.services.access.break_glass import close_break_glass, open_break_glass, review_break_glass
from planner.services.audit import chain


class EmergencyViewSet(ReadViewSet):
    """Break-glass: opened, closed and reviewed by people, never by tokens."""

    queryset = BreakGlass.objects.select_related("fleet", "opened_by", "reviewed_by").order_by("-id")
    serializer_class = serializers.EmergencySerializer
    filterset_fields = {"fleet__slug": ["exact"], "reviewed_at": ["isnull"], "closed_at": ["isnull"]}
    scopes = dict.fromkeys(("create", "close", "review"), NEVER_BY_TOKEN)

    @extend_schema(request=serializers.EmergencyInput, responses={201: serializers.EmergencySerializer})
    def create(self, request: Request) -> Response:
        """Open an emergency of one's own for an hour."""
        row = open_break_glass(acting_user=self.person, **self.accept(serializers.EmergencyInput))
        return self.answer(row, 201, Location=f"/api/v1/emergencies/{row.pk}/")

    @extend_schema(request=None, responses={200: serializers.EmergencySerializer})
    @action(detail=True, methods=["post"])
    def close(self, request: Request, pk: str) -> Response:
        """End it before its time."""
        return self.answer(close_break_glass(acting_user=self.person, emergency=self.get_object()))

    @extend_schema(request=serializers.ReviewInput, responses={200: serializers.EmergencySerializer})
    @action(detail=True, methods=["post"])
    def review(self, request: Request, pk: str) -> Response:
        """Record what somebody else has found."""
        row = self.get_object()
        data = self.accept(serializers.ReviewInput)
        return self.answer(review_break_glass(acting_user=self.person, emergency=row, **data))


class PolicyVersionViewSet(ReadViewSet):
    """The policies that a fleet has had: plans were judged by one of them."""

    queryset = PolicyVersion.objects.select_related("fleet", "changed_by").order_by("-id")
    serializer_class = serializers.PolicyVersionSerializer
    filterset_fields = {"fleet__slug": ["exact"], "number": ["exact"]}


class CheckpointViewSet(ReadViewSet):
    """Signed heads of the audit chain, to be kept elsewhere."""

    queryset = AuditCheckpoint.objects.order_by("-id")
    serializer_class = serializers.CheckpointSerializer
    fleet_path = ""
    filterset_fields = {"position": ["exact", "gte"]}
    scopes = {"create": NEVER_BY_TOKEN}

    @extend_schema(request=None, responses={201: serializers.CheckpointSerializer})
    def create(self, request: Request) -> Response:
        """Sign the head of the chain now."""
        row = chain.sign_checkpoint(acting_user=self.person)
        return self.answer(row, 201, Location=f"/api/v1/audit-checkpoints/{row.pk}/")


class WaitingViewSet(ConsoleViewSet):
    """What waits for the person who asks."""

    queryset = Fleet.objects.none()
    fleet_path = ""
    serializer_class = serializers.WaitingSerializer
    pagination_class = None  # as long as what waits for one person

    @extend_schema(responses={200: serializers.WaitingSerializer(many=True)})
    def list(self, request: Request) -> Response:
        """Approvals and reviews asked for, rollouts held, fleets outside their range; the oldest first."""
        token = request.auth
        mine = waiting_for_me(self.person)
        if isinstance(token, ApiToken) and token.fleet is not None:
            mine = [waiting for waiting in mine if waiting.fleet == token.fleet.slug]
        return Response(serializers.WaitingSerializer(mine, many=True).data)
