"""Errors as RFC 9457 problem documents, with a JSON pointer to the field."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, set_rollback

from planner.errors import Refused
from planner.ingest import ImportProblem

CONTENT_TYPE = "application/problem+json"
# Maximum number of errors in a response; a request can have thousands.
MAX_ERRORS = 20
# Maximum characters of a pointer or detail, which can contain names and values of the request.
MAX_CHARS = 1_000


def problem(status: int, code: str, detail: str, **more: Any) -> Response:
    """A problem response.

    Parameters
    ----------
    status
        HTTP status.
    code
        Stable word for the kind of problem.
    detail
        Sentence for a person.
    **more
        Further members, such as `errors`, a list of {pointer, detail}. None is left out.

    Returns
    -------
    Response
        The problem document.
    """
    body = {"type": "about:blank", "title": code.replace("-", " "), "status": status, "code": code, "detail": detail}
    body.update({k: v for k, v in more.items() if v is not None})
    return Response(body, status=status, content_type=CONTENT_TYPE)


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Exception handler of DRF: refusals, import errors and errors of DRF as problem documents."""
    if isinstance(error, Refused):
        response = problem(error.status, error.code, error.message, errors=_pointed(error.field, error.message))
    elif isinstance(error, ImportProblem):
        response = problem(
            400,
            error.code,
            str(error),
            file=error.file,
            row=error.row,
            field=error.field,
            value=error.value,
            errors=_pointed("file", str(error)),
        )
    elif isinstance(error, Http404):
        response = problem(404, "not-found", "Not found, or you have no access to it.")
    elif isinstance(error, PermissionDenied):
        response = problem(403, "not-allowed", str(error) or "Your account has no permission for this action.")
    elif isinstance(error, RequestDataTooBig):
        response = problem(413, "too-large", "The form fields are too large.")
    elif isinstance(error, SuspiciousOperation):  # too many fields or files, a name that is a path
        response = problem(400, "invalid", str(error))
    elif isinstance(error, exceptions.ValidationError):
        errors = _first(_flatten(error.detail))
        detail = "; ".join(f"{e['pointer'].lstrip('/') or 'request'}: {e['detail']}" for e in errors)
        response = problem(400, "invalid", detail, errors=errors)
    elif isinstance(error, exceptions.APIException):
        response = problem(error.status_code, error.default_code.replace("_", "-"), str(error.detail))
        if getattr(error, "auth_header", None):
            response["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
        if getattr(error, "wait", None):
            response["Retry-After"] = str(int(error.wait))  # type: ignore[attr-defined]
    else:
        return None
    set_rollback()
    return response


def _first(errors: list[dict[str, str]]) -> list[dict[str, str]]:
    """The first `MAX_ERRORS` errors and the number of further ones."""
    shown = [{name: _short(text) for name, text in error.items()} for error in errors[:MAX_ERRORS]]
    if (more := len(errors) - len(shown)) > 0:
        shown.append({"pointer": "", "detail": f"and {more:,} more."})
    return shown


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def _pointed(field: str | None, detail: str) -> list[dict[str, str]] | None:
    return [{"pointer": f"/{field}", "detail": detail}] if field else None


def _flatten(detail: Any, pointer: str = "") -> list[dict[str, str]]:
    if isinstance(detail, dict):
        return [
            e for k, v in detail.items() for e in _flatten(v, pointer if k == "non_field_errors" else f"{pointer}/{k}")
        ]
    if isinstance(detail, list):
        if all(not isinstance(v, (dict, list)) for v in detail):
            return [{"pointer": pointer, "detail": str(v)} for v in detail]
        return [e for i, v in enumerate(detail) for e in _flatten(v, f"{pointer}/{i}")]
    return [{"pointer": pointer, "detail": str(detail)}]


@extend_schema(exclude=True)
class NothingHere(APIView):
    """Answer unknown addresses under the API with a problem document."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Answer 404 after the checks of every request.

        Parameters
        ----------
        request
            The request.
        *args
            Further positional values.
        **kwargs
            Further named values.

        Raises
        ------
        Http404
            When the row does not exist or is not visible.
        """
        super().initial(request, *args, **kwargs)
        raise Http404
