"""Endpoints of webhooks and their deliveries."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.etags import with_etag
from planner.api.core.permissions import NEVER_BY_TOKEN
from planner.api.core.schema import CHANGED, IF_MATCH
from planner.api.core.viewsets import ReadViewSet
from planner.api.webhooks.serializers import (
    DeliverySerializer,
    NewWebhookSerializer,
    WebhookChange,
    WebhookInput,
    WebhookSerializer,
)
from planner.models import Webhook, WebhookDelivery
from planner.services.webhooks import webhooks


class WebhookViewSet(ReadViewSet):
    """Webhooks. A token cannot create or change them."""

    queryset = Webhook.objects.select_related("fleet", "created_by").order_by("-id")
    serializer_class = WebhookSerializer
    filterset_fields = {"fleet__slug": ["exact"], "enabled": ["exact"]}
    secret_fields = ("signing_secret",)
    scopes = dict.fromkeys(("create", "partial_update", "destroy"), NEVER_BY_TOKEN)

    def get_queryset(self) -> QuerySet[Webhook]:
        """Webhooks that the user manages; an address can be a credential."""
        return super().get_queryset().filter(pk__in=webhooks.managed_webhooks(self.person).values("pk"))

    @extend_schema(request=WebhookInput, responses={201: NewWebhookSerializer})
    def create(self, request: Request) -> Response:
        """Create a webhook. Only this response has `signing_secret`."""
        data = self.accept(WebhookInput)
        row, secret = webhooks.create_webhook(acting_user=self.person, **data)
        body = {**WebhookSerializer(row).data, "signing_secret": secret}
        return with_etag(Response(body, status=201, headers={"Location": f"/api/v1/webhooks/{row.pk}/"}), row)

    @extend_schema(request=WebhookChange, responses=CHANGED(WebhookSerializer), parameters=[IF_MATCH])
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the address or actions of a webhook, or enable or disable it."""
        row = self.get_object()
        data = self.accept(WebhookChange, partial=True)
        version = self.expected_version(row)
        webhooks.change_webhook(acting_user=self.person, webhook=row, expected_version=version, **data)
        return self.answer(row)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Remove a webhook with its deliveries."""
        webhooks.delete_webhook(acting_user=self.person, webhook=self.get_object())
        return Response(status=204)


class DeliveryViewSet(ReadViewSet):
    """Deliveries of webhooks with their responses, stored for 30 days."""

    queryset = WebhookDelivery.objects.select_related("event").order_by("-id")
    serializer_class = DeliverySerializer
    fleet_path = "webhook__fleet"
    filterset_fields = {"webhook": ["exact"], "state": ["exact", "in"]}
    scopes = {"send_again": NEVER_BY_TOKEN}

    def get_queryset(self) -> QuerySet[WebhookDelivery]:
        """Deliveries of webhooks that the user manages."""
        return super().get_queryset().filter(webhook__in=webhooks.managed_webhooks(self.person).values("pk"))

    @extend_schema(request=None, responses={200: DeliverySerializer})
    @action(detail=True, methods=["post"], url_path="send-again")
    def send_again(self, request: Request, pk: str) -> Response:
        """Send a delivery again with the same id."""
        return self.answer(webhooks.send_again(acting_user=self.person, delivery=self.get_object()))
