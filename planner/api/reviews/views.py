"""Endpoints of reviews."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.permissions import NEVER_BY_TOKEN
from planner.api.core.viewsets import ReadViewSet
from planner.api.reviews import serializers
from planner.models import Approval, Waiver
from planner.services.reviews import waivers
from planner.services.reviews.approvals import withdraw_approval


class ApprovalViewSet(ReadViewSet):
    """Approvals and rejections, each bound to its evidence."""

    queryset = Approval.objects.select_related("plan__fleet", "approver", "author", "submitter").order_by("-id")
    serializer_class = serializers.ApprovalSerializer
    fleet_path = "plan__fleet"
    filterset_fields = {
        "plan": ["exact"],
        "decision": ["exact"],
        "plan__fleet__slug": ["exact"],
        "evidence_digest": ["exact"],
        "withdrawn_at": ["isnull"],
    }
    scopes = {"withdraw": NEVER_BY_TOKEN}

    @extend_schema(request=serializers.WithdrawInput, responses={200: serializers.ApprovalSerializer}, filters=False)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """Withdraw an approval of the signed-in user; not by a token."""
        row: Any = self.get_object()
        data = self.accept(serializers.WithdrawInput)
        return self.answer(withdraw_approval(acting_user=self.person, approval=row, **data))


class WaiverViewSet(ReadViewSet):
    """Permissions to continue although a check does not pass. A second person grants them for at most 30 days."""

    queryset = Waiver.objects.select_related("plan__fleet", "requested_by", "granted_by", "ended_by").order_by("-id")
    serializer_class = serializers.WaiverSerializer
    fleet_path = "plan__fleet"
    filterset_fields = {
        "plan": ["exact"],
        "check_name": ["exact"],
        "plan__fleet__slug": ["exact"],
        "granted_at": ["isnull"],
        "ended_at": ["isnull"],
    }
    scopes = {"grant": NEVER_BY_TOKEN, "refuse": NEVER_BY_TOKEN, "revoke": NEVER_BY_TOKEN}

    @extend_schema(request=serializers.WaiverInput, responses={201: serializers.WaiverSerializer})
    def create(self, request: Request) -> Response:
        """Request a waiver of a check that does not pass."""
        row = waivers.request_waiver(acting_user=self.person, **self.accept(serializers.WaiverInput))
        return self.answer(row, 201, Location=f"/api/v1/waivers/{row.pk}/")

    @extend_schema(request=None, responses={200: serializers.WaiverSerializer}, filters=False)
    @action(detail=True, methods=["post"])
    def grant(self, request: Request, pk: str) -> Response:
        """Grant a waiver. Not by its requester, the author or submitter of the plan, or a token."""
        row: Any = self.get_object()
        return self.answer(waivers.grant_waiver(acting_user=self.person, waiver=row))

    @extend_schema(request=serializers.WithdrawInput, responses={200: serializers.WaiverSerializer}, filters=False)
    @action(detail=True, methods=["post"])
    def refuse(self, request: Request, pk: str) -> Response:
        """Refuse a requested waiver, or withdraw an own request."""
        row: Any = self.get_object()
        data = self.accept(serializers.WithdrawInput)
        return self.answer(waivers.refuse_waiver(acting_user=self.person, waiver=row, **data))

    @extend_schema(request=serializers.WithdrawInput, responses={200: serializers.WaiverSerializer}, filters=False)
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Revoke a granted waiver."""
        row: Any = self.get_object()
        data = self.accept(serializers.WithdrawInput)
        return self.answer(waivers.revoke_waiver(acting_user=self.person, waiver=row, **data))
