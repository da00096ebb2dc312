"""Endpoints of fleets and destinations, with the long poll of the routing table."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import connection
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.etags import known_etags, names, version_tag
from planner.api.core.schema import CHANGED, IF_MATCH
from planner.api.core.viewsets import ReadViewSet
from planner.api.fleets.serializers import (
    AddDestinationInput,
    DestinationInput,
    DestinationSerializer,
    FleetInput,
    FleetSerializer,
    PolicyInput,
    ServingProfileInput,
)
from planner.api.rollouts.fleet_actions import FleetRollouts
from planner.api.telemetry.serializers import TelemetryAnswer, TelemetryInput
from planner.errors import Invalid, Refused
from planner.models import ApiToken, Destination, Fleet
from planner.selectors.fleets.routing_tables import published
from planner.services.fleets import fleets
from planner.services.fleets.destinations import add_destinations, change_destination
from planner.services.fleets.policy import POLICY_FIELDS
from planner.services.telemetry import windows

# Seconds between the checks of a long poll for a new version; each check costs one indexed query.
POLL_S = 0.5
MAX_WAIT_S = 30
# Maximum waiting routers per web process. A waiting request uses one of its 8 threads (see WEB in
# cacheroute_web/run/supervisor.py); the other threads stay free for pages and fallbacks.
MAX_WAITING = 4
_waiting = threading.BoundedSemaphore(MAX_WAITING)


class FleetViewSet(FleetRollouts):
    """Fleets, their routing table, and the fallback to Flat-LB."""

    queryset = Fleet.objects.select_related("serving_profile").order_by("-id")
    serializer_class = FleetSerializer
    lookup_field = "slug"
    fleet_path = "id"
    filterset_fields = ["slug", "accept_simulated"]
    scopes = {
        "routing_table": "route",
        "telemetry": "ingest",
        **FleetRollouts.rollout_scopes,
        "serving_profile": "deploy",
        "create": "deploy",
        "partial_update": "deploy",
    }

    @extend_schema(request=FleetInput, responses={201: FleetSerializer})
    def create(self, request: Request) -> Response:
        """Create a fleet. Flat-LB is live at once."""
        if isinstance(request.auth, ApiToken) and request.auth.fleet_id is not None:
            raise PermissionDenied("This token is for another fleet.")
        data = self.accept(FleetInput)
        destinations = [(d["name"], d["url"], d["weight"]) for d in data.pop("destinations")]
        fleet = fleets.create_fleet(acting_user=self.person, destinations=destinations, **data)
        return self.answer(fleet, 201, Location=f"/api/v1/fleets/{fleet.slug}/")

    @extend_schema(request=PolicyInput, responses=CHANGED(FleetSerializer), parameters=[IF_MATCH])
    def partial_update(self, request: Request, slug: str) -> Response:
        """Change the policy of a fleet. Evidence under the old policy becomes stale."""
        fleet = self.get_object()
        data = self.accept(PolicyInput, partial=True)
        if not data:
            raise Invalid(f"the request has no field to change; send one or more of {', '.join(POLICY_FIELDS)}")
        version = self.expected_version(fleet)
        fleets.change_policy(acting_user=self.person, fleet=fleet, expected_version=version, **data)
        return self.answer(fleet)

    @extend_schema(request=ServingProfileInput, responses=CHANGED(FleetSerializer), parameters=[IF_MATCH])
    @action(detail=True, methods=["post"], url_path="serving-profile")
    def serving_profile(self, request: Request, slug: str) -> Response:
        """Change the serving profile. Earlier calibrations, replays and approvals become stale."""
        fleet = self.get_object()
        data = self.accept(ServingProfileInput)
        fleets.change_serving_profile(
            acting_user=self.person, fleet=fleet, expected_version=self.expected_version(fleet), **data
        )
        return self.answer(fleet)

    @extend_schema(request=TelemetryInput, responses={201: TelemetryAnswer, 200: TelemetryAnswer})
    @action(detail=True, methods=["post"])
    def telemetry(self, request: Request, slug: str) -> Response:
        """Report a telemetry window of a router. A repeated window with the same figures counts once."""
        found = windows.record_windows(
            acting_user=self.person, fleet=self.get_object(), payload=self.accept(TelemetryInput)
        )
        return Response(found.as_dict(), status=200 if found.duplicate else 201)

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "wait", int, description="Seconds to wait for a version other than If-None-Match, at most 30"
            ),
            OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER),
        ],
        responses={200: OpenApiTypes.OBJECT, 304: OpenApiResponse(description="The table of the router is current")},
    )
    @action(detail=True, methods=["get"], url_path="routing-table")
    def routing_table(self, request: Request, slug: str) -> HttpResponse:
        """The table that routers follow (`cacheroute.table/1`), with ETag, 304 and long poll."""
        fleet = self.get_object()
        known = known_etags(request)
        deadline = time.monotonic() + _seconds(request.query_params.get("wait"))
        if names(known, table_tag(fleet)) and not _wait_for_news(fleet, known, deadline):
            return Response(status=304, headers={"ETag": table_tag(fleet)})
        table = published(fleet.pk)
        packs = "gzip" in request.headers.get("Accept-Encoding", "")
        response = HttpResponse(table.packed if packs else table.plain, content_type="application/json")
        if packs:
            response["Content-Encoding"] = "gzip"
        response["ETag"], response["Cache-Control"] = version_tag(table.version), "no-cache"
        response["Vary"] = "Accept-Encoding"
        return response


class DestinationViewSet(ReadViewSet):
    """Destinations of all fleets."""

    queryset = Destination.objects.select_related("fleet").order_by("-id")
    serializer_class = DestinationSerializer
    filterset_fields = {"fleet__slug": ["exact"], "state": ["exact"]}
    scopes = {"create": "deploy", "partial_update": "deploy"}

    @extend_schema(request=AddDestinationInput, responses={201: DestinationSerializer})
    def create(self, request: Request) -> Response:
        """Add a destination to a fleet. Flat-LB uses it at once; new plans can use it."""
        data = self.accept(AddDestinationInput)
        row = (data["name"], data["url"], data["weight"])
        try:
            (added,) = add_destinations(acting_user=self.person, fleet=data["fleet"], destinations=[row])
        except Refused as refusal:
            # The service names a field in a list; this request has the fields at the top level.
            refusal.field = refusal.field.rpartition("/")[2] if refusal.field else None
            raise
        return self.answer(added, 201, Location=f"/api/v1/destinations/{added.pk}/")

    @extend_schema(
        request=DestinationInput,
        responses=CHANGED(DestinationSerializer),
        parameters=[IF_MATCH],
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the state (up, draining, down) or the speed of a destination."""
        destination: Any = self.get_object()
        data = self.accept(DestinationInput)
        version = self.expected_version(destination)
        change_destination(acting_user=self.person, destination=destination, expected_version=version, **data)
        return self.answer(destination)


def table_tag(fleet: Fleet) -> str:
    """Strong ETag of the published table."""
    return version_tag(fleet.table_version)


def _wait_for_news(fleet: Fleet, known: list[str], deadline: float) -> bool:
    """Wait for a table that the router does not have; False at the deadline, or at once when too many routers wait."""
    if time.monotonic() + POLL_S > deadline or not _waiting.acquire(blocking=False):
        return False
    try:
        while time.monotonic() + POLL_S <= deadline:
            connection.close()  # a sleeping router holds no database connection
            time.sleep(POLL_S)
            fleet.refresh_from_db(fields=["table_version", "table_issued_at"])
            if not names(known, table_tag(fleet)):
                return True
        return False
    finally:
        _waiting.release()


def _seconds(text: str | None) -> float:
    if not text:
        return 0.0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValidationError({"wait": [f"Write whole seconds, at most {MAX_WAIT_S}."]})
    return float(min(int(text), MAX_WAIT_S))
