"""Endpoints of calibrations."""

from __future__ import annotations

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.calibrations.input_serializers import FitInput, FittedProfileSerializer, SimulateInput, SweepInput
from planner.api.calibrations.serializers import CalibrationInput, CalibrationSerializer
from planner.api.core.schema import Accepted
from planner.api.core.viewsets import ReadViewSet, accepted
from planner.errors import Invalid
from planner.models import Calibration, ServingProfile
from planner.services.calibrations import calibrations, fits, sweep_imports


class CalibrationViewSet(ReadViewSet):
    """Measured or simulated limits of one destination."""

    queryset = Calibration.objects.select_related("fleet", "created_by").order_by("-id")
    serializer_class = CalibrationSerializer
    filterset_fields = {"fleet__slug": ["exact"], "source": ["exact"]}

    @extend_schema(request=CalibrationInput, responses={201: CalibrationSerializer})
    def create(self, request: Request) -> Response:
        """Record figures measured on a real engine."""
        calibration = calibrations.record_calibration(acting_user=self.person, **self.accept(CalibrationInput))
        return self.answer(calibration, 201, Location=f"/api/v1/calibrations/{calibration.pk}/")

    @extend_schema(request=SimulateInput, responses={202: Accepted})
    @action(detail=False, methods=["post"])
    def simulate(self, request: Request) -> Response:
        """Order a sweep of one simulated replica of the fleet's engine profile.

        `result.calibration` of the job names the calibration, which is labelled simulated.
        """
        return accepted(request, calibrations.order_calibration(acting_user=self.person, **self.accept(SimulateInput)))

    @extend_schema(request={"multipart/form-data": SweepInput}, responses={201: CalibrationSerializer})
    @action(detail=False, methods=["post"], url_path="import", parser_classes=[MultiPartParser, FormParser])
    def import_sweep(self, request: Request) -> Response:
        """Import a load sweep measured on a real engine, as CSV. An error names file, row and field."""
        _ = request.data  # reading it streams the upload
        if getattr(request._request, "upload_too_large", False):
            raise Invalid(
                f"the file is larger than {settings.UPLOAD_MAX_BYTES // 2**20} MiB; send a smaller file", field="file"
            )
        data = self.accept(SweepInput)
        file = data.pop("file")
        calibration = sweep_imports.import_sweep(acting_user=self.person, file=file, file_name=file.name, **data)
        return self.answer(calibration, 201, Location=f"/api/v1/calibrations/{calibration.pk}/")

    @extend_schema(request=FitInput, responses={202: Accepted})
    @action(detail=True, methods=["post"])
    def fit(self, request: Request, pk: str) -> Response:
        """Order a fit of engine constants to a measured calibration.

        `result.serving_profile` of the job names the new serving profile.
        """
        job = fits.order_fit(acting_user=self.person, calibration=self.get_object(), **self.accept(FitInput))
        return accepted(request, job)

    @extend_schema(responses={200: FittedProfileSerializer(many=True)}, filters=False)
    @fit.mapping.get
    def fitted(self, request: Request, pk: str) -> Response:
        """Serving profiles fitted to this calibration, newest first."""
        rows = ServingProfile.objects.filter(fit__calibration=self.get_object().pk).order_by("-id")
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(FittedProfileSerializer(page, many=True).data)
