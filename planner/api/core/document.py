"""The OpenAPI document as it is served."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

FORMATS = ("json", "yaml", "openapi", "openapi-json")


class Document(SpectacularAPIView):
    """Of this one version, in one language; of what may be asked for, only the format."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The document. What else stands in the address would end in a header of the answer."""
        if unknown := set(request.query_params) - {"format"}:
            raise ValidationError(dict.fromkeys(sorted(unknown), "There is no such parameter here; known: format."))
        if request.query_params.get("format", "json") not in FORMATS:
            raise ValidationError({"format": [f"Choose among {', '.join(FORMATS)}."]})
        response: Response = super().get(request, *args, **kwargs)
        return response
