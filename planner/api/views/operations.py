from __future__ import annotations

import datetime as dt

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api import replay_serializers, serializers
from planner.api.base import ReadViewSet
from planner.api.permissions import NEVER_BY_TOKEN
from planner.models import ApiToken, AuditEvent, Job
from planner.services.access import tokens
from planner.services.jobs.cancellation import cancel_job


class JobViewSet(ReadViewSet):
    """Long work and its progress."""

    queryset = Job.objects.select_related("fleet", "created_by").order_by("-id")
    serializer_class = replay_serializers.JobSerializer
    filterset_fields = {"fleet__slug": ["exact"], "kind": ["exact"], "state": ["exact", "in"]}

    @extend_schema(request=None, responses={200: replay_serializers.JobSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel it and what it was making."""
        job = cancel_job(acting_user=self.person, job=self.get_object())
        return self.answer(job)


class AuditEventViewSet(ReadViewSet):
    """The audit trail, newest first."""

    queryset = AuditEvent.objects.select_related("fleet").order_by("-id")
    serializer_class = serializers.AuditEventSerializer
    filterset_fields = {
        "fleet__slug": ["exact"],
        "action": ["exact"],
        "actor_name": ["exact"],
        "subject_type": ["exact"],
        "subject_id": ["exact"],
        "created_at": ["gte", "lt"],
    }


class TokenViewSet(ReadViewSet):
    """One's own API tokens. Made and revoked by a person, never by a token."""

    queryset = ApiToken.objects.select_related("fleet").order_by("-id")
    serializer_class = serializers.TokenSerializer
    fleet_path = ""  # one's own, of whichever fleet
    filterset_fields = {"revoked_at": ["isnull"]}
    secret_fields = ("token",)
    scopes = dict.fromkeys(("create", "destroy", "list", "retrieve", "rotate"), NEVER_BY_TOKEN)

    def get_queryset(self):  # type: ignore[no-untyped-def]
        """The user's own; an administrator sees all."""
        return super().get_queryset().filter(pk__in=tokens.tokens_of(self.person).values("pk"))

    @extend_schema(request=serializers.TokenInput, responses={201: serializers.NewTokenSerializer})
    def create(self, request: Request) -> Response:
        """Create a token. `token` in the answer is shown this once."""
        token, secret = tokens.create_token(acting_user=self.person, **self.accept(serializers.TokenInput))
        return Response({**serializers.TokenSerializer(token).data, "token": secret}, status=201)

    @extend_schema(request=serializers.RotateInput, responses={201: serializers.NewTokenSerializer})
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Another secret under the same name; the old one ends after `overlap_s` seconds, at once by default."""
        data = self.accept(serializers.RotateInput)
        token, secret = tokens.rotate_token(
            acting_user=self.person, token=self.get_object(), overlap=dt.timedelta(seconds=data["overlap_s"])
        )
        return Response({**serializers.TokenSerializer(token).data, "token": secret}, status=201)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Revoke it."""
        tokens.revoke_token(acting_user=self.person, token=self.get_object())
        return Response(status=204)
