"""Endpoint of the open items of the signed-in user."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.viewsets import ConsoleViewSet
from planner.api.reviews.serializers import WaitingSerializer
from planner.models import ApiToken, Fleet
from planner.selectors.reviews.inbox import waiting_for_me


class WaitingViewSet(ConsoleViewSet):
    """Open items of the signed-in user."""

    queryset = Fleet.objects.none()
    fleet_path = ""
    serializer_class = WaitingSerializer
    pagination_class = None  # the list of one user is short

    @extend_schema(responses={200: WaitingSerializer(many=True)})
    def list(self, request: Request) -> Response:
        """Requested approvals and reviews, held rollouts, fleets out of range; oldest first."""
        token = request.auth
        mine = waiting_for_me(self.person)
        if isinstance(token, ApiToken) and token.fleet is not None:
            mine = [waiting for waiting in mine if waiting.fleet == token.fleet.slug]
        return Response(WaitingSerializer(mine, many=True).data)
