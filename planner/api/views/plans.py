from __future__ import annotations

from typing import Any

from django.db.models import Func, JSONField, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api import replay_serializers, review_serializers, serializers
from planner.api.base import ReadViewSet, accepted
from planner.api.permissions import NEVER_BY_TOKEN
from planner.api.schema import CHANGED, IF_MATCH, Accepted
from planner.models import Plan, Replay
from planner.services.plans.orders import order_plan
from planner.services.replays import orders as replay_orders
from planner.services.reviews import comments
from planner.services.reviews.approvals import approve_plan, reject_plan
from planner.services.reviews.submissions import retire_plan, submit_plan, withdraw_plan


class Without(Func):
    """A JSON column without some of its names (constants of ours: they stand in the SQL)."""

    def __init__(self, column: str, *names: str) -> None:
        template = "(%(expressions)s - '{" + ",".join(names) + "}'::text[])"
        super().__init__(column, template=template, output_field=JSONField())


class Only(Func):
    """A JSON column with one of its names and no other, or with none where it lacks it (constants of ours)."""

    def __init__(self, column: str, name: str) -> None:
        template = f"jsonb_strip_nulls(jsonb_build_object('{name}', %(expressions)s -> '{name}'))"
        super().__init__(column, template=template, output_field=JSONField())


class PlanViewSet(ReadViewSet):
    """Candidate plans and their review."""

    queryset = Plan.objects.select_related("fleet", "author", "submitted_by", "table").order_by("-id")
    serializer_class = serializers.PlanSerializer
    filterset_fields = {"fleet__slug": ["exact"], "state": ["exact", "in"], "kind": ["exact"], "number": ["exact"]}
    scopes = {"approve": NEVER_BY_TOKEN, "reject": NEVER_BY_TOKEN}

    def get_queryset(self) -> QuerySet[Plan]:
        """A list leaves out what is long: in the database, so that it is not even read."""
        queryset = super().get_queryset()
        if self.action != "list":
            return queryset
        return queryset.defer("parameters", "summary").annotate(
            short_parameters=Without("parameters", "tenant_quota", "tenant_floor"),
            short_summary=Without("summary", "load", "after_loss", "top_keys", "tenants"),
        )

    def get_serializer_class(self) -> type[serializers.PlanSerializer]:
        """Rows of a list are shorter than a plan of its own."""
        return serializers.PlanRowSerializer if self.action == "list" else serializers.PlanSerializer

    @extend_schema(request=serializers.PlanInput, responses={202: Accepted})
    def create(self, request: Request) -> Response:
        """Order a plan, from scratch or as a replan of `incumbent`; with `replay` a replay follows the build."""
        data = self.accept(serializers.PlanInput)
        if data.get("replay") is not None:
            data["replay"] = dict(data["replay"])
        plan, job = order_plan(acting_user=self.person, **data)
        return accepted(request, job, plan=plan.pk)

    @extend_schema(request=None, responses=CHANGED(serializers.PlanSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def submit(self, request: Request, pk: str) -> Response:
        """Submit for review."""
        plan = self.get_object()
        submit_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version())
        return self.answer(plan)

    @extend_schema(request=None, responses=CHANGED(serializers.PlanSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """Take the plan back from review."""
        plan = self.get_object()
        withdraw_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version())
        return self.answer(plan)

    @extend_schema(
        request=serializers.ReasonInput, responses=CHANGED(serializers.PlanSerializer), parameters=[IF_MATCH]
    )
    @action(detail=True, methods=["post"])
    def retire(self, request: Request, pk: str) -> Response:
        """Put the plan away for good."""
        plan = self.get_object()
        data = self.accept(serializers.ReasonInput)
        retire_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version(), **data)
        return self.answer(plan)

    @extend_schema(
        request=review_serializers.ApproveInput, responses=CHANGED(serializers.PlanSerializer), parameters=[IF_MATCH]
    )
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Approve on the evidence that was read. Another person than the author and submitter; never a token."""
        plan = self.get_object()
        data = self.accept(review_serializers.ApproveInput)
        data["evidence_digest"] = data["evidence_digest"].removeprefix("sha256:")
        approve_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version(), **data)
        return self.answer(plan)

    @extend_schema(
        request=review_serializers.RejectInput, responses=CHANGED(serializers.PlanSerializer), parameters=[IF_MATCH]
    )
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: str) -> Response:
        """Reject with a reason."""
        plan = self.get_object()
        data = self.accept(review_serializers.RejectInput)
        reject_plan(acting_user=self.person, plan=plan, expected_version=self.expected_version(), **data)
        return self.answer(plan)

    @extend_schema(responses={200: review_serializers.CommentSerializer(many=True)}, filters=False)
    @action(detail=True, methods=["get"])
    def comments(self, request: Request, pk: str) -> Response:
        """What people said about the plan, the newest first."""
        row: Any = self.get_object()
        page = self.paginate_queryset(row.comments.select_related("author").order_by("-id"))
        return self.get_paginated_response(review_serializers.CommentSerializer(page, many=True).data)

    @extend_schema(
        request=review_serializers.CommentInput, responses={201: review_serializers.CommentSerializer}, filters=False
    )
    @comments.mapping.post
    def comment(self, request: Request, pk: str) -> Response:
        """Say something about the plan; it is kept for ever."""
        plan: Any = self.get_object()
        row = comments.comment_plan(acting_user=self.person, plan=plan, **self.accept(review_serializers.CommentInput))
        return Response(review_serializers.CommentSerializer(row).data, status=201)


class ReplayViewSet(ReadViewSet):
    """Shadow replays."""

    queryset = Replay.objects.select_related("plan", "created_by").order_by("-id")
    serializer_class = replay_serializers.ReplaySerializer
    fleet_path = "plan__fleet"
    filterset_fields = {"plan": ["exact"], "state": ["exact"], "plan__fleet__slug": ["exact"]}

    def get_queryset(self) -> QuerySet[Replay]:
        """A list leaves out the verdict but for its capacities, and cells need none: it is not even read."""
        queryset = super().get_queryset()
        if self.action not in ("list", "cells"):
            return queryset
        return queryset.defer("verdict").annotate(short_verdict=Only("verdict", "capacity"))

    def get_serializer_class(self) -> type[replay_serializers.ReplaySerializer]:
        """Rows of a list are shorter than a replay of its own."""
        if self.action == "list":
            return replay_serializers.ReplayRowSerializer
        return replay_serializers.ReplaySerializer

    @extend_schema(request=replay_serializers.ReplayInput, responses={202: Accepted})
    def create(self, request: Request) -> Response:
        """Replay a built plan against Flat-LB; the checklist is evaluated when the last cell is in."""
        row, job = replay_orders.start_replay(acting_user=self.person, **self.accept(replay_serializers.ReplayInput))
        return accepted(request, job, plan=row.plan_id, replay=row.pk)

    @extend_schema(responses={200: replay_serializers.ReplayCellSerializer(many=True)}, filters=False)
    @action(detail=True, methods=["get"])
    def cells(self, request: Request, pk: str) -> Response:
        """Every cell with its figures."""
        row: Any = self.get_object()
        page = self.paginate_queryset(row.cells.order_by("-id"))
        return self.get_paginated_response(replay_serializers.ReplayCellSerializer(page, many=True).data)
