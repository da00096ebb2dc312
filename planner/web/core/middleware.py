"""What happens to every request: health checks, the client's address, and where a change comes from."""

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


class ClientMiddleware:
    """Put right what a client says about itself.

    Behind trusted proxies, REMOTE_ADDR becomes the last address that no trusted proxy vouches for. Cookies that no
    database can look up (a NUL) are dropped.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.trusted = [ip_network(text) for text in settings.TRUSTED_PROXIES]

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """What an untrusted client says about itself is not believed."""
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
    """Refuse a body whose declared length is over the limit, before anything takes it apart.

    It is read to its end and dropped (a client that is still sending would not see the answer): seconds for
    gigabytes, where a multipart parser takes minutes. Stands before the CSRF check, which would start the parser.
    """

    FORM_BYTES = 1_000_000  # what the other fields of a form with a file may take

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Nothing here: sessions and messages are there only when the view is known."""
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_view: Any) -> HttpResponse | None:
        """Answer what is too large; None lets the rest pass."""
        upload = (request.content_type or "").startswith("multipart/")
        limit = settings.UPLOAD_MAX_BYTES + self.FORM_BYTES if upload else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not length.isdigit() or int(length) <= limit:
            return None
        while request.read(2**20):
            pass
        if request.path.startswith("/api/") and request.path.endswith("/fall-back/"):
            request._body = b""  # nothing in a body keeps a fleet from falling back
            return None
        why = f"the file is larger than {settings.UPLOAD_MAX_BYTES // 2**20} MiB; use the command import_workload"
        if not request.path.startswith("/api/"):
            if not upload:
                return None  # Django's own limit answers forms
            messages.error(request, f"{why[0].upper()}{why[1:]}.")
            return redirect(request.path)
        body: dict[str, Any] = {"type": "about:blank"}
        if upload:
            body |= {"title": "invalid", "status": 400, "code": "invalid", "detail": why}
            body["errors"] = [{"pointer": "/file", "detail": why}]
        else:
            body |= {"title": "too large", "status": 413, "code": "too-large"}
            body["detail"] = "The body is larger than a request may be; only uploaded files may be large."
        return JsonResponse(body, status=body["status"], content_type="application/problem+json")


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


class FleetDoorMiddleware:
    """Answer 404 for the pages of a fleet to whoever has no role on it: as if there was none of that name.

    One place for all pages of fleets, so that a new one cannot forget it; the API narrows its querysets
    (`planner.api.core.viewsets`), the charts are asked in `dashboards.mounting`.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Nothing here: which fleet it is about is known with the view."""
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Refuse what the person may not see; those who are not signed in are sent to sign in by the view."""
        slug = kwargs.get("slug")
        if slug is None or request.path.startswith("/api/") or not request.user.is_authenticated:
            return
        if rights.sees_all(request.user):
            return
        if not rights.visible_fleets(request.user).filter(slug=slug).exists():
            raise Http404("No fleet of that name.")


def _address(request: HttpRequest) -> str | None:
    try:
        return str(ip_address(request.META.get("REMOTE_ADDR", "")))
    except ValueError:
        return None
