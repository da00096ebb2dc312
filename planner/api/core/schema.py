"""Parts of the OpenAPI document for every route: problem document, ETag, Idempotency-Key."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    required=False,
    description="ETag of the last read; 428 if missing, 412 if stale",
)


class ProblemError(serializers.Serializer[Any]):
    pointer = serializers.CharField()
    detail = serializers.CharField()


class Problem(serializers.Serializer[Any]):
    """RFC 9457 problem document."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="Stable word for the kind of problem")
    detail = serializers.CharField()
    errors = ProblemError(many=True, required=False)  # type: ignore[assignment]  # RFC name, shadows a property


PROBLEMS = {
    400: "A value is invalid",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Only JSON responses are available",
    409: "Conflict with the current state",
    412: "Changed after the last read",
    413: "The body is too large",
    415: "Unsupported type of the body",
    422: "Idempotency-Key was used for another request",
    428: "If-Match is missing",
}


def problems(*codes: int) -> dict[Any, Any]:
    """Problem responses by status."""
    return {(code, "application/problem+json"): OpenApiResponse(Problem, description=PROBLEMS[code]) for code in codes}


def CHANGED(serializer: Any, status: int = 200) -> dict[Any, Any]:
    """Responses of a change."""
    return {status: serializer}


class Accepted(serializers.Serializer[Any]):
    """Response of an accepted order."""

    job = serializers.IntegerField()
    job_url = serializers.CharField()
    plan = serializers.IntegerField(required=False)
    replay = serializers.IntegerField(required=False)


class TokenScheme(OpenApiAuthenticationExtension):
    """`Authorization: Token crt_...` in the document."""

    target_class = "planner.api.core.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """An API key in the header Authorization."""
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "The word Token, a space, and an API token: `Token crt_...`",
        }


class ConsoleSchema(AutoSchema):
    """Adds the common parameters and responses to every operation."""

    def get_override_parameters(self) -> list[Any]:
        """Add Idempotency-Key to POST."""
        found = list(super().get_override_parameters())
        if self.method == "POST":
            found.append(
                OpenApiParameter(
                    "Idempotency-Key",
                    str,
                    OpenApiParameter.HEADER,
                    description="A repeated request with the same key gets the first response",
                )
            )
        return found

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        codes = [400, 401, 403, 404, 405, 406]
        if self.method != "GET":
            codes += [409, 412, 413, 415, 422, 428]
        for code in codes:
            if str(code) not in bodies:
                bodies[str(code)] = self._get_response_for_code(
                    OpenApiResponse(Problem, description=PROBLEMS[code]),
                    str(code),
                    ["application/problem+json"],
                    direction,
                )
        return bodies
