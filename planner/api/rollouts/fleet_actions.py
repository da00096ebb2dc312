"""Actions on all rollouts of a fleet: `/fleets/{slug}/`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.etags import with_etag
from planner.api.core.parsers import AnyBody
from planner.api.core.schema import CHANGED
from planner.api.core.serializers import ReasonInput
from planner.api.core.viewsets import ReadViewSet
from planner.api.rollouts import serializers
from planner.models import Rollout
from planner.selectors.rollouts.queries import rollouts_with_state
from planner.services.rollouts import fallback, freezes, rollback

RolloutSerializer = serializers.RolloutSerializer


class FleetRollouts(ReadViewSet):
    """Fall back, roll back, freeze and unfreeze."""

    rollout_scopes = {"fall_back": "deploy", "roll_back": "deploy", "freeze": "deploy", "unfreeze": "deploy"}

    def get_parsers(self) -> list[BaseParser]:
        """The default parsers. For a fallback, a parser that accepts every body."""
        return [AnyBody()] if self._falls_back else super().get_parsers()

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Answer a fallback in JSON, whatever Accept says."""
        return super().perform_content_negotiation(request, force=force or self._falls_back)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """The default checks. For a fallback, invalid values are ignored.

        Parameters
        ----------
        request
            The request.
        *args
            Further positional values.
        **kwargs
            Further named values.
        """
        try:
            super().initial(request, *args, **kwargs)
        except ValidationError:
            if not self._falls_back:
                raise

    def takes_keys(self) -> bool:
        """False for a fallback: every repeat acts, because the state may differ from the first request."""
        return not self._falls_back

    @property
    def _falls_back(self) -> bool:
        # The action is known only after parsers and renderers are chosen.
        return "fall_back" in (getattr(self, "action_map", None) or {}).values()

    @extend_schema(request={"application/json": ReasonInput}, responses={200: RolloutSerializer})
    @action(detail=True, methods=["post"], url_path="fall-back")
    def fall_back(self, request: Request, slug: str) -> Response:
        """Route all keys by Flat-LB at once. Safe to repeat. Needs no worker and no broker, and ignores freezes.

        An unreadable reason is repaired or omitted.
        """
        rollout = fallback.fall_back(acting_user=self.person, fleet=self.get_object(), reason=_reason(request))
        return _shown(rollout)

    @extend_schema(request=serializers.RollBackInput, responses={200: RolloutSerializer})
    @action(detail=True, methods=["post"], url_path="roll-back")
    def roll_back(self, request: Request, slug: str) -> Response:
        """Make an earlier active plan active again, at once and without a new replay."""
        fleet = self.get_object()
        data = self.accept(serializers.RollBackInput)
        return _shown(rollback.roll_back(acting_user=self.person, fleet=fleet, **data))

    @extend_schema(request=serializers.NeededReasonInput, responses={201: serializers.FreezeSerializer})
    @action(detail=True, methods=["post"])
    def freeze(self, request: Request, slug: str) -> Response:
        """Freeze the rollouts of a fleet. Only actions that take a plan off traffic remain possible."""
        fleet = self.get_object()
        data = self.accept(serializers.NeededReasonInput)
        made = freezes.freeze(acting_user=self.person, fleet=fleet, **data)
        answer = serializers.FreezeSerializer(made).data
        return Response(answer, status=201, headers={"Location": f"/api/v1/freezes/{made.pk}/"})

    @extend_schema(request=ReasonInput, responses=CHANGED(serializers.FreezeSerializer))
    @action(detail=True, methods=["post"])
    def unfreeze(self, request: Request, slug: str) -> Response:
        """Lift the freeze of this fleet; a freeze of all fleets stays."""
        fleet = self.get_object()
        lifted = freezes.unfreeze(acting_user=self.person, fleet=fleet, **self.accept(ReasonInput))
        return Response(serializers.FreezeSerializer(lifted).data)


def _shown(rollout: Rollout) -> Response:
    row = rollouts_with_state().get(pk=rollout.pk)
    return with_etag(Response(RolloutSerializer(row).data), row)


def _reason(request: Request) -> str:
    """The reason of the request; empty if it is missing or no text."""
    sent: Any = request.data
    value = sent.get("reason") if hasattr(sent, "get") else None
    return value if isinstance(value, str) else ""
