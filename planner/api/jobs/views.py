"""Endpoints of jobs."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.viewsets import ReadViewSet
from planner.api.jobs.serializers import JobSerializer
from planner.models import Job
from planner.services.jobs.cancellation import cancel_job


class JobViewSet(ReadViewSet):
    """Long work and its progress."""

    queryset = Job.objects.select_related("fleet", "created_by").order_by("-id")
    serializer_class = JobSerializer
    filterset_fields = {"fleet__slug": ["exact"], "kind": ["exact"], "state": ["exact", "in"]}

    @extend_schema(request=None, responses={200: JobSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel a job and its result."""
        job = cancel_job(acting_user=self.person, job=self.get_object())
        return self.answer(job)
