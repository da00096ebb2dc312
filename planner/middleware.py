"""What happens to every request: health checks, the client's address, and where a change comes from."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse

from planner import context


class HealthMiddleware:
    """`/healthz/`: 200 when the database answers, else 503.

    Stands first: whoever checks the health of a container asks by address, in plain HTTP, under any host name.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer health checks; pass everything else on."""
        if request.path != "/healthz/":
            return self.get_response(request)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except DatabaseError:
            return HttpResponse("the database does not answer\n", status=503, content_type="text/plain")
        return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})


class ClientAddressMiddleware:
    """Behind trusted proxies, REMOTE_ADDR becomes the last address that no trusted proxy vouches for."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.trusted = [ip_network(text) for text in settings.TRUSTED_PROXIES]

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Put the client's address right; what an untrusted client says about itself is not believed."""
        if self.trusted:
            hops = [*request.META.get("HTTP_X_FORWARDED_FOR", "").split(","), request.META.get("REMOTE_ADDR", "")]
            for hop in reversed([hop.strip() for hop in hops if hop.strip()]):
                request.META["REMOTE_ADDR"] = hop
                if not self._is_trusted(hop):
                    break
        return self.get_response(request)

    def _is_trusted(self, hop: str) -> bool:
        try:
            address = ip_address(hop)
        except ValueError:
            return False
        return any(address in network for network in self.trusted)


class OriginMiddleware:
    """Keep the request id and client address while the request is served. Stands after django-structlog's."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Serve the request with its origin known."""
        bound = structlog.contextvars.get_contextvars()
        here = context.Origin(request_id=str(bound.get("request_id", ""))[:64], ip_address=_address(request))
        with context.origin(here):
            return self.get_response(request)


def _address(request: HttpRequest) -> str | None:
    try:
        return str(ip_address(request.META.get("REMOTE_ADDR", "")))
    except ValueError:
        return None
