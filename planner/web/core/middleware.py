"""Middleware of every request: health checks, client address, body limit, origin of changes, access to fleets."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import structlog
from django.conf import settings
from django.contrib import messages
from django.db import DatabaseError, connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect

from planner import context
from planner.selectors.access import rights


class HealthMiddleware:
    """`/healthz/`: 200 if the database responds, else 503.

    It must be first: health checks of containers use the address, plain HTTP and any host name.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer health checks. Pass on all other requests."""
        if request.path != "/healthz/":
            return self.get_response(request)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except DatabaseError:
            return HttpResponse("the database does not respond\n", status=503, content_type="text/plain")
        return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})


class ClientMiddleware:
    """Correct the client address and cookies of a request.

    Behind trusted proxies, REMOTE_ADDR becomes the last address that is not a trusted proxy. Cookies with a NUL
    character are dropped, because the database cannot look them up.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.trusted = [ip_network(text) for text in settings.TRUSTED_PROXIES]

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Ignore addresses that an untrusted client claims."""
        if any("\0" in value for value in request.COOKIES.values()):
            request.COOKIES = {name: value for name, value in request.COOKIES.items() if "\0" not in value}
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


class BodyLimitMiddleware:
    """Refuse a body whose declared length is over the limit, before it is parsed.

    The body is read to its end and dropped, because a client that is still sending does not see the response. This
    takes seconds for gigabytes; a multipart parser takes minutes. It must be before the CSRF check, which parses.
    """

    FORM_BYTES = 1_000_000  # limit of the other fields of a form with a file

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Do nothing: sessions and messages exist only in `process_view`."""
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_view: Any) -> HttpResponse | None:
        """Answer a request that is too large; None for all others."""
        upload = (request.content_type or "").startswith("multipart/")
        limit = settings.UPLOAD_MAX_BYTES + self.FORM_BYTES if upload else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not length.isdigit() or int(length) <= limit:
            return None
        while request.read(2**20):
            pass
        if request.path.startswith("/api/") and request.path.endswith("/fall-back/"):
            request._body = b""  # a body never prevents a fallback
            return None
        why = f"the file is larger than {settings.UPLOAD_MAX_BYTES // 2**20} MiB; use the command import_workload"
        if not request.path.startswith("/api/"):
            if not upload:
                return None  # Django's own limit applies to forms
            messages.error(request, f"{why[0].upper()}{why[1:]}.")
            return redirect(request.path)
        body: dict[str, Any] = {"type": "about:blank"}
        if upload:
            body |= {"title": "invalid", "status": 400, "code": "invalid", "detail": why}
            body["errors"] = [{"pointer": "/file", "detail": why}]
        else:
            body |= {"title": "too large", "status": 413, "code": "too-large"}
            body["detail"] = "The body is too large. Only uploaded files may be large."
        return JsonResponse(body, status=body["status"], content_type="application/problem+json")


class OriginMiddleware:
    """Keep the request id and client address while the request is served. It must be after django-structlog's."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Serve the request with its origin in the context."""
        bound = structlog.contextvars.get_contextvars()
        here = context.Origin(request_id=str(bound.get("request_id", ""))[:64], ip_address=_address(request))
        with context.origin(here):
            return self.get_response(request)


class FleetDoorMiddleware:
    """Answer 404 for the pages of a fleet to a user without a role on it.

    It covers all pages of fleets, including new ones. The API filters its querysets
    (`planner.api.core.viewsets`); `dashboards.mounting` checks the charts.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Do nothing: the fleet is known only in `process_view`."""
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Refuse a fleet that the user may not see. The view redirects anonymous users to sign in.

        Parameters
        ----------
        request
            The request.
        view
            The view.
        args
            Positional values of the address.
        kwargs
            Named values of the address.

        Raises
        ------
        Http404
            When the row does not exist or is not visible.
        """
        slug = kwargs.get("slug")
        if slug is None or request.path.startswith("/api/") or not request.user.is_authenticated:
            return
        if rights.sees_all(request.user):
            return
        if not rights.visible_fleets(request.user).filter(slug=slug).exists():
            raise Http404("No fleet with this name.")


def _address(request: HttpRequest) -> str | None:
    try:
        return str(ip_address(request.META.get("REMOTE_ADDR", "")))
    except ValueError:
        return None
