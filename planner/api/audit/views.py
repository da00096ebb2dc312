"""Endpoints of the audit trail."""

from __future__ import annotations

from django.db.models import QuerySet
from django_filters import CharFilter, FilterSet
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.audit.serializers import AuditEventSerializer, CheckpointSerializer
from planner.api.core.permissions import NEVER_BY_TOKEN
from planner.api.core.viewsets import ReadViewSet
from planner.models import AuditCheckpoint, AuditEvent
from planner.models.audit import names_of
from planner.services.audit import chain


class AuditEventFilter(FilterSet):
    """Filters of audit events. An action also matches its names in earlier releases."""

    action = CharFilter(method="filter_action")

    class Meta:
        model = AuditEvent
        fields = {
            "fleet__slug": ["exact"],
            "actor_name": ["exact"],
            "subject_type": ["exact"],
            "subject_id": ["exact"],
            "created_at": ["gte", "lt"],
        }

    def filter_action(self, events: QuerySet[AuditEvent], _name: str, action: str) -> QuerySet[AuditEvent]:
        """Events of an action, under current and earlier names.

        Parameters
        ----------
        events
            The events to filter.
        _name
            Name of the filter.
        action
            The action, under a current or earlier name.

        Returns
        -------
        QuerySet[AuditEvent]
            The matching events.
        """
        return events.filter(action__in=names_of(action))


class CheckpointViewSet(ReadViewSet):
    """Signed heads of the audit chain, for storage outside the console."""

    queryset = AuditCheckpoint.objects.order_by("-id")
    serializer_class = CheckpointSerializer
    fleet_path = ""
    filterset_fields = {"position": ["exact", "gte"]}
    scopes = {"create": NEVER_BY_TOKEN}

    @extend_schema(request=None, responses={201: CheckpointSerializer})
    def create(self, request: Request) -> Response:
        """Sign the head of the chain now."""
        row = chain.sign_checkpoint(acting_user=self.person)
        return self.answer(row, 201, Location=f"/api/v1/audit-checkpoints/{row.pk}/")


class AuditEventViewSet(ReadViewSet):
    """The audit trail, newest first."""

    queryset = AuditEvent.objects.select_related("fleet").order_by("-id")
    serializer_class = AuditEventSerializer
    filterset_class = AuditEventFilter
