"""Responses to internal errors: a page, or a problem document under `/api/`."""

from __future__ import annotations

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string


def server_error(request: HttpRequest) -> HttpResponse:
    """503 while the database does not respond, else 500. Neither response needs the database."""
    away = isinstance(sys.exc_info()[1], (OperationalError, InterfaceError))
    status = 503 if away else 500
    if request.path.startswith("/api/"):
        detail = (
            "The database does not respond. Try again in a few seconds."
            if away
            else "Internal error. The log has it under the request id."
        )
        code = "database-away" if away else "internal-error"
        body = {
            "type": "about:blank",
            "title": code.replace("-", " "),
            "status": status,
            "code": code,
            "detail": detail,
        }
        response: HttpResponse = JsonResponse(body, status=status, content_type="application/problem+json")
    else:
        response = HttpResponse(render_to_string("500.html", {"away": away}), status=status)
    if away:
        response["Retry-After"] = "5"
    return response
