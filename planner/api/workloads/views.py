"""Endpoints of workloads."""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.viewsets import ReadViewSet
from planner.api.workloads.serializers import WorkloadInput, WorkloadSerializer
from planner.errors import Invalid
from planner.models import Workload
from planner.services.workloads import imports


class WorkloadViewSet(ReadViewSet):
    """Workloads: measured rates, with requests where a trace was imported."""

    queryset = Workload.objects.select_related("fleet", "created_by", "rates", "trace").order_by("-id")
    serializer_class = WorkloadSerializer
    filterset_fields = {"fleet__slug": ["exact"], "name": ["exact"], "format": ["exact"], "simulated": ["exact"]}
    parser_classes = [MultiPartParser, FormParser]
    scopes = {"create": "ingest"}

    @extend_schema(request={"multipart/form-data": WorkloadInput}, responses={201: WorkloadSerializer})
    def create(self, request: Request) -> Response:
        """Import a file. If it has an error, nothing is stored and the response names file, row and field."""
        _ = request.data  # reading it streams the upload
        if getattr(request._request, "upload_too_large", False):
            limit = settings.UPLOAD_MAX_BYTES // 2**20
            raise Invalid(f"the file is larger than {limit} MiB; use the command import_workload", field="file")
        data = self.accept(WorkloadInput)
        file = data.pop("file")
        measured_at: dt.datetime | None = data.pop("measured_at", None)
        workload = imports.import_workload(
            acting_user=self.person, file=file, file_name=file.name, measured_at=measured_at, **data
        )
        return self.answer(workload, 201, Location=f"/api/v1/workloads/{workload.pk}/")
