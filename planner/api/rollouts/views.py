"""Endpoints of rollouts, freezes and blast radius."""

from __future__ import annotations

from typing import Any

from django.db import models
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.schema import CHANGED, IF_MATCH
from planner.api.core.serializers import ReasonInput
from planner.api.core.viewsets import ConsoleViewSet, ReadViewSet
from planner.api.rollouts import serializers
from planner.models import ApiToken, Freeze, Plan
from planner.selectors.access import rights
from planner.selectors.rollouts.blast_radius import blast_radius
from planner.selectors.rollouts.queries import open_freezes, rollouts_with_state
from planner.services.rollouts import freezes
from planner.services.rollouts.freezes import lift_freeze
from planner.services.rollouts.starts import reschedule_rollout, start_rollout
from planner.services.rollouts.steps import (
    abort_rollout,
    advance_rollout,
    pause_rollout,
    promote_rollout,
    resume_rollout,
)

RolloutSerializer = serializers.RolloutSerializer


class RolloutViewSet(ReadViewSet):
    """Rollouts: scheduled, canary, active and ended."""

    queryset = rollouts_with_state()
    serializer_class = RolloutSerializer
    filterset_fields = {"fleet__slug": ["exact"], "state": ["exact", "in"], "plan": ["exact"], "kind": ["exact"]}
    scopes = dict.fromkeys(
        ("create", "advance", "promote", "pause", "resume", "abort", "reschedule"), ApiToken.Scope.DEPLOY.value
    )

    def get_serializer_context(self) -> dict[str, Any]:
        """The context with the open freezes, read once for all rows."""
        return {**super().get_serializer_context(), "freezes": list(open_freezes())}

    @extend_schema(request=serializers.RolloutInput, responses={201: RolloutSerializer})
    def create(self, request: Request) -> Response:
        """Start the canary of an approved plan, now or at `scheduled_for`."""
        rollout = start_rollout(acting_user=self.person, **self.accept(serializers.RolloutInput))
        return self.answer(rollout, 201, Location=f"/api/v1/rollouts/{rollout.pk}/")

    @extend_schema(request=None, responses=CHANGED(RolloutSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def advance(self, request: Request, pk: str) -> Response:
        """Advance a canary to its next weight; after the last weight the plan is active. 409 `held` names the holds."""
        return self._changed(advance_rollout)

    @extend_schema(request=serializers.NeededReasonInput, responses=CHANGED(RolloutSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def promote(self, request: Request, pk: str) -> Response:
        """Promote a canary: skip the remaining steps and holds. The latest analysis must have passed."""
        return self._changed(promote_rollout, **self.accept(serializers.NeededReasonInput))

    @extend_schema(request=ReasonInput, responses=CHANGED(RolloutSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Pause a canary until it is resumed."""
        return self._changed(pause_rollout, **self.accept(ReasonInput))

    @extend_schema(request=None, responses=CHANGED(RolloutSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Resume a paused canary. It does not advance it."""
        return self._changed(resume_rollout)

    @extend_schema(request=ReasonInput, responses=CHANGED(RolloutSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def abort(self, request: Request, pk: str) -> Response:
        """Abort a canary, or cancel a scheduled rollout."""
        return self._changed(abort_rollout, **self.accept(ReasonInput))

    @extend_schema(request=serializers.RescheduleInput, responses=CHANGED(RolloutSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"])
    def reschedule(self, request: Request, pk: str) -> Response:
        """Change the start time of a scheduled canary."""
        return self._changed(reschedule_rollout, **self.accept(serializers.RescheduleInput))

    @extend_schema(
        responses={200: serializers.RolloutAnalysisSerializer(many=True)},
        filters=False,
    )
    @action(detail=True, methods=["get"])
    def analyses(self, request: Request, pk: str) -> Response:
        """Analyses of a rollout, newest first."""
        row: Any = self.get_object()
        page = self.paginate_queryset(row.analyses.order_by("-id"))
        return self.get_paginated_response(serializers.RolloutAnalysisSerializer(page, many=True).data)

    def _changed(self, change: Any, **values: Any) -> Response:
        rollout = self.get_object()
        change(acting_user=self.person, rollout=rollout, expected_version=self.expected_version(rollout), **values)
        return self.answer(rollout)


class FreezeViewSet(ReadViewSet):
    """Freezes of one fleet or of all fleets. During a freeze no rollout moves."""

    queryset = Freeze.objects.select_related("fleet", "frozen_by", "lifted_by").order_by("-id")
    serializer_class = serializers.FreezeSerializer
    # All users see the freezes of all fleets, because these affect every fleet.
    fleet_path = ""
    filterset_fields = {"fleet__slug": ["exact"], "lifted_at": ["isnull"]}
    scopes = {"create": "deploy", "lift": "deploy"}

    def get_queryset(self) -> models.QuerySet[Freeze]:
        """Freezes of visible fleets, and freezes of all fleets."""
        seen = rights.visible_fleets(self.request.user)
        token = self.request.auth
        if isinstance(token, ApiToken) and token.fleet_id is not None:
            seen = seen.filter(pk=token.fleet_id)
        return super().get_queryset().filter(models.Q(fleet=None) | models.Q(fleet__in=seen))

    @extend_schema(request=serializers.FreezeInput, responses={201: serializers.FreezeSerializer})
    def create(self, request: Request) -> Response:
        """Freeze the rollouts of one fleet or of all fleets."""
        data = self.accept(serializers.FreezeInput)
        fleet = data.get("fleet")
        self._not_beyond_the_token(fleet)
        freeze = freezes.freeze(acting_user=self.person, fleet=fleet, reason=data["reason"])
        return self.answer(freeze, 201, Location=f"/api/v1/freezes/{freeze.pk}/")

    @extend_schema(request=ReasonInput, responses=CHANGED(serializers.FreezeSerializer))
    @action(detail=True, methods=["post"])
    def lift(self, request: Request, pk: str) -> Response:
        """Lift a freeze. It advances no rollout."""
        freeze: Any = self.get_object()
        self._not_beyond_the_token(freeze.fleet)
        lift_freeze(acting_user=self.person, freeze=freeze, **self.accept(ReasonInput))
        return self.answer(freeze)

    def _not_beyond_the_token(self, fleet: Any) -> None:
        token = self.request.auth
        if fleet is None and isinstance(token, ApiToken) and token.fleet_id is not None:
            raise PermissionDenied("This token is for one fleet. It cannot freeze or unfreeze all fleets.")


class BlastRadiusViewSet(ConsoleViewSet):
    """Blast radius of plans."""

    queryset = Plan.objects.select_related("fleet", "workload__rates", "table")
    serializer_class = serializers.BlastRadiusSerializer
    pagination_class = None

    @extend_schema(responses={200: serializers.BlastRadiusSerializer}, filters=False)
    def blast_radius(self, request: Request, pk: str) -> Response:
        """Estimate the keys, tenants, rate and tokens that a plan would change."""
        return Response(blast_radius(self.get_object()).to_json())
