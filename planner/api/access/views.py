"""Endpoints of tokens and break-glass."""

from __future__ import annotations

import datetime as dt

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.access.serializers import (
    BreakGlassInput,
    BreakGlassReviewInput,
    BreakGlassSerializer,
    NewTokenSerializer,
    RotateInput,
    TokenInput,
    TokenSerializer,
)
from planner.api.core.permissions import NEVER_BY_TOKEN
from planner.api.core.viewsets import ReadViewSet
from planner.models import ApiToken, BreakGlass
from planner.services.access import tokens
from planner.services.access.break_glass import close_break_glass, open_break_glass, review_break_glass


class BreakGlassViewSet(ReadViewSet):
    """Break-glass. A user opens, closes and reviews it; a token cannot."""

    queryset = BreakGlass.objects.select_related("fleet", "opened_by", "reviewed_by").order_by("-id")
    serializer_class = BreakGlassSerializer
    filterset_fields = {"fleet__slug": ["exact"], "reviewed_at": ["isnull"], "closed_at": ["isnull"]}
    scopes = dict.fromkeys(("create", "close", "review"), NEVER_BY_TOKEN)

    @extend_schema(request=BreakGlassInput, responses={201: BreakGlassSerializer})
    def create(self, request: Request) -> Response:
        """Open break-glass of the signed-in user for one hour."""
        row = open_break_glass(acting_user=self.person, **self.accept(BreakGlassInput))
        return self.answer(row, 201, Location=f"/api/v1/break-glass/{row.pk}/")

    @extend_schema(request=None, responses={200: BreakGlassSerializer})
    @action(detail=True, methods=["post"])
    def close(self, request: Request, pk: str) -> Response:
        """Close break-glass before it expires."""
        return self.answer(close_break_glass(acting_user=self.person, break_glass=self.get_object()))

    @extend_schema(request=BreakGlassReviewInput, responses={200: BreakGlassSerializer})
    @action(detail=True, methods=["post"])
    def review(self, request: Request, pk: str) -> Response:
        """Record the findings of another person."""
        row = self.get_object()
        data = self.accept(BreakGlassReviewInput)
        return self.answer(review_break_glass(acting_user=self.person, break_glass=row, **data))


class TokenViewSet(ReadViewSet):
    """API tokens of the signed-in user. A token cannot create or revoke tokens."""

    queryset = ApiToken.objects.select_related("fleet").order_by("-id")
    serializer_class = TokenSerializer
    fleet_path = ""  # tokens of the user, of any fleet
    filterset_fields = {"revoked_at": ["isnull"]}
    secret_fields = ("token",)
    scopes = dict.fromkeys(("create", "destroy", "list", "retrieve", "rotate"), NEVER_BY_TOKEN)

    def get_queryset(self):  # type: ignore[no-untyped-def]  # the base class has no types
        """Tokens of the user; an administrator sees all tokens."""
        return super().get_queryset().filter(pk__in=tokens.tokens_of(self.person).values("pk"))

    @extend_schema(request=TokenInput, responses={201: NewTokenSerializer})
    def create(self, request: Request) -> Response:
        """Create a token. Only this response has the secret, in `token`."""
        token, secret = tokens.create_token(acting_user=self.person, **self.accept(TokenInput))
        return Response({**TokenSerializer(token).data, "token": secret}, status=201)

    @extend_schema(request=RotateInput, responses={201: NewTokenSerializer})
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Replace the secret. The old secret ends after `overlap_s` seconds, by default at once."""
        data = self.accept(RotateInput)
        token, secret = tokens.rotate_token(
            acting_user=self.person, token=self.get_object(), overlap=dt.timedelta(seconds=data["overlap_s"])
        )
        return Response({**TokenSerializer(token).data, "token": secret}, status=201)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Revoke a token."""
        tokens.revoke_token(acting_user=self.person, token=self.get_object())
        return Response(status=204)
