"""The endpoint of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

FORMATS = ("json", "yaml", "openapi", "openapi-json")


class Document(SpectacularAPIView):
    """The OpenAPI document. The only parameter is the format."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The document. Unknown parameters are refused, because they would appear in a response header.

        Parameters
        ----------
        request
            The request.
        *args
            Further positional values.
        **kwargs
            Further named values.

        Returns
        -------
        Response
            The document.

        Raises
        ------
        ValidationError
            When a parameter is unknown or the format is not available.
        """
        if unknown := set(request.query_params) - {"format"}:
            raise ValidationError(dict.fromkeys(sorted(unknown), "Unknown parameter; known: format."))
        if request.query_params.get("format", "json") not in FORMATS:
            raise ValidationError({"format": [f"Unknown format; known: {', '.join(FORMATS)}."]})
        response: Response = super().get(request, *args, **kwargs)
        return response
