"""How a Dash app lives inside Django: its page is a Django template, its requests pass through one Django view.

All middleware applies (sessions, CSRF, CSP, request ids), callbacks share the request's database connection,
and nothing is served to people who are not signed in.
"""

from __future__ import annotations

import io
import json
import re

from dash import Dash
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.safestring import SafeString, mark_safe
from werkzeug.test import EnvironBuilder, run_wsgi_app

from planner.services import rights

# What Dash asks for under its prefix. Anything else is not ours.
PATHS = ("_dash-layout", "_dash-dependencies", "_dash-update-component", "_dash-component-suites/")
PARTS = ("css", "app_entry", "config", "scripts", "renderer")
BETWEEN = "\n<!-- next part -->\n"


class EmbeddedDash(Dash):
    """A Dash app whose index is a list of parts, for a Django template to place."""

    def interpolate_index(
        self,
        metas: str = "",
        title: str = "",
        css: str = "",
        config: str = "",
        scripts: str = "",
        app_entry: str = "",
        favicon: str = "",
        renderer: str = "",
    ) -> str:
        """The parts one after the other, instead of a page."""
        return BETWEEN.join((css, app_entry, config, scripts, renderer))

    def parts(self, nonce: str) -> dict[str, SafeString]:
        """HTML of the app's parts, its scripts carrying the request's CSP nonce."""
        with self.server.test_request_context(self.config.requests_pathname_prefix):
            found: list[str] = self.index().split(BETWEEN)
        # Written by Dash from its own configuration: no text of a person is in it.
        return {
            name: mark_safe(part.replace("<script", f'<script nonce="{nonce}"'))  # noqa: S308
            for name, part in zip(PARTS, found, strict=True)
        }


def serve(request: HttpRequest, app: Dash, path: str) -> HttpResponse:
    """Hand the request to the Dash app: 401 without sign-in, 404 for what Dash never asks for."""
    if not request.user.is_authenticated:
        return JsonResponse({"detail": "Sign in first."}, status=401)
    if not path.startswith(PATHS):
        return JsonResponse({"detail": "No such path."}, status=404)
    if request.method == "POST" and not _is_callback(request.body, app):
        return JsonResponse({"detail": "Not a request of this app."}, status=400)
    if request.method == "POST" and not _may_see(request):
        return JsonResponse({"detail": "No such fleet."}, status=404)
    environ = EnvironBuilder(
        path=request.path,
        query_string=request.META.get("QUERY_STRING", ""),
        method=request.method or "GET",
        base_url=f"{request.scheme}://{request.get_host()}/",
        headers=[(k, v) for k, v in request.headers.items() if k.lower() not in ("content-length", "content-type")],
        content_type=request.content_type or None,
        input_stream=io.BytesIO(request.body),
    ).get_environ()
    body, status, headers = run_wsgi_app(app.server.wsgi_app, environ, buffered=True)
    response = HttpResponse(b"".join(body), status=int(status.split(" ", 1)[0]))
    for name, value in headers.items():
        if name.lower() not in ("content-length", "set-cookie"):
            response[name] = value
    return response


def _may_see(request: HttpRequest) -> bool:
    """Whether the person may see every fleet whose page the callback says that it is on."""
    if rights.sees_all(request.user):
        return True
    named = set(re.findall(r"/fleets/([-\w]+)", request.body.decode(errors="replace")))
    return rights.visible_fleets(request.user).filter(slug__in=named).count() == len(named)


def _is_callback(body: bytes, app: Dash) -> bool:
    """Whether this is what Dash's own script sends: a known output, and inputs with plain ids."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(asked, dict) or asked.get("output") not in app.callback_map:
        return False
    inputs = asked.get("inputs")
    return (
        isinstance(inputs, list)
        and all(isinstance(i, dict) and isinstance(i.get("id"), str) and "property" in i for i in inputs)
        and all(i.get("value") is None or isinstance(i["value"], str | float | int) for i in inputs)
    )
