"""Where each request comes from, for the audit trail."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse

from planner import context


class OriginMiddleware:
    """Keep the request id and client address while the request is served. Stands after django-structlog's."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Serve the request with its origin known."""
        bound = structlog.contextvars.get_contextvars()
        here = context.Origin(
            request_id=str(bound.get("request_id", ""))[:64], ip_address=request.META.get("REMOTE_ADDR") or None
        )
        with context.origin(here):
            return self.get_response(request)
