"""Endpoints of plans."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.json_columns import Without
from planner.api.core.permissions import NEVER_BY_TOKEN
from planner.api.core.schema import CHANGED, IF_MATCH, Accepted
from planner.api.core.serializers import ReasonInput
from planner.api.core.viewsets import ReadViewSet, accepted
from planner.api.plans.serializers import PlanInput, PlanRowSerializer, PlanSerializer
from planner.api.reviews import serializers
from planner.models import Plan
from planner.services.plans.orders import order_plan
from planner.services.reviews import comments
from planner.services.reviews.approvals import approve_plan, reject_plan
from planner.services.reviews.submissions import retire_plan, submit_plan, withdraw_plan


class PlanViewSet(ReadViewSet):
    """Candidate plans and their review."""

    queryset = Plan.objects.select_related("fleet", "author", "submitted_by", "table").order_by("-id")
    serializer_class = PlanSerializer
    filterset_fields = {"fleet__slug": ["exact"], "state": ["exact", "in"], "kind": ["exact"], "number": ["exact"]}
    scopes = {"approve": NEVER_BY_TOKEN, "reject": NEVER_BY_TOKEN}

    def get_queryset(self) -> QuerySet[Plan]:
        """Plans; a list omits long columns in the query."""
        queryset = super().get_queryset()
        if self.action != "list":
            return queryset
        return queryset.defer("parameters", "summary").annotate(
            short_parameters=Without("parameters", "tenant_quota", "tenant_floor"),
            short_summary=Without("summary", "load", "after_loss", "top_keys", "tenants"),
        )

    def get_serializer_class(self) -> type[PlanSerializer]:
        """The short serializer for lists."""
        return PlanRowSerializer if self.action == "list" else PlanSerializer

    @extend_schema(request=PlanInput, responses={202: Accepted})
    def create(self, request: Request) -> Response:
        """Order a new plan or a replan of `incumbent`. With `replay`, a replay follows the build."""
        data = self.accept(PlanInput)
        if data.get("replay") is not None:
            data["replay"] = dict(data["replay"])
        plan, job = order_plan(acting_user=self.person, **data)
        return accepted(request, job, plan=plan.pk)

    @extend_schema(request=None, responses=CHANGED(PlanSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def submit(self, request: Request, pk: str) -> Response:
        """Submit a plan for review."""
        plan = self.get_object()
        submit_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version(plan))
        return self.answer(plan)

    @extend_schema(request=None, responses=CHANGED(PlanSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """Withdraw a plan from review."""
        plan = self.get_object()
        withdraw_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version(plan))
        return self.answer(plan)

    @extend_schema(request=ReasonInput, responses=CHANGED(PlanSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def retire(self, request: Request, pk: str) -> Response:
        """Archive a plan."""
        plan = self.get_object()
        data = self.accept(ReasonInput)
        retire_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version(plan), **data)
        return self.answer(plan)

    @extend_schema(request=serializers.ApproveInput, responses=CHANGED(PlanSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Approve a plan on the evidence of `evidence_digest`. Not by its author or submitter, and not by a token."""
        plan = self.get_object()
        data = self.accept(serializers.ApproveInput)
        data["evidence_digest"] = data["evidence_digest"].removeprefix("sha256:")
        approve_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version(plan), **data)
        return self.answer(plan)

    @extend_schema(request=serializers.RejectInput, responses=CHANGED(PlanSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: str) -> Response:
        """Reject a plan with a reason."""
        plan = self.get_object()
        data = self.accept(serializers.RejectInput)
        reject_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version(plan), **data)
        return self.answer(plan)

    @extend_schema(responses={200: serializers.CommentSerializer(many=True)}, filters=False)
    @action(detail=True, methods=["get"])
    def comments(self, request: Request, pk: str) -> Response:
        """Comments on a plan, newest first."""
        row: Any = self.get_object()
        page = self.paginate_queryset(row.comments.select_related("author").order_by("-id"))
        return self.get_paginated_response(serializers.CommentSerializer(page, many=True).data)

    @extend_schema(request=serializers.CommentInput, responses={201: serializers.CommentSerializer}, filters=False)
    @comments.mapping.post
    def comment(self, request: Request, pk: str) -> Response:
        """Comment on a plan. Comments are never deleted."""
        plan: Any = self.get_object()
        row = comments.comment_plan(acting_user=self.person, plan=plan, **self.accept(serializers.CommentInput))
        return Response(serializers.CommentSerializer(row).data, status=201)
