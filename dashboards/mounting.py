"""Dash apps inside Django: the page is a Django template, requests pass through one Django view.

All middleware applies (sessions, CSRF, CSP, request ids), callbacks share the database connection of the request,
and anonymous users get 401.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

from dash import Dash
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.safestring import SafeString, mark_safe
from werkzeug.test import EnvironBuilder, run_wsgi_app

from planner.selectors.access import rights

# Paths that Dash requests under its prefix; other paths get 404.
PATHS = ("_dash-layout", "_dash-dependencies", "_dash-update-component", "_dash-component-suites/")
PARTS = ("css", "app_entry", "config", "scripts", "renderer")
BETWEEN = "\n<!-- next part -->\n"
FLEET = re.compile(r"/fleets/([^/?#]+)")


class EmbeddedDash(Dash):
    """A Dash app whose index is a list of parts, which a Django template places."""

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
        """Return the parts, separated, instead of a page."""
        return BETWEEN.join((css, app_entry, config, scripts, renderer))

    def parts(self, nonce: str) -> dict[str, SafeString]:
        """HTML of the parts of the app, with the CSP nonce of the request in its scripts."""
        with self.server.test_request_context(self.config.requests_pathname_prefix):
            found: list[str] = self.index().split(BETWEEN)
        # Dash makes the HTML from its configuration, without user input.
        return {
            name: mark_safe(part.replace("<script", f'<script nonce="{nonce}"'))  # noqa: S308
            for name, part in zip(PARTS, found, strict=True)
        }


def embedded(name: str, prefix: str) -> EmbeddedDash:
    """A Dash app with its addresses under `prefix`."""
    app = EmbeddedDash(
        name,
        requests_pathname_prefix=prefix,
        routes_pathname_prefix=prefix,
        csrf_token_name="csrftoken",  # noqa: S106 - the name of a cookie
        csrf_header_name="X-CSRFToken",
        serve_locally=True,
        include_assets_files=False,
        update_title="",
        add_log_handler=False,
        use_async=False,  # callbacks use the ORM, which refuses to run inside an event loop
    )
    # Django logs and answers errors of callbacks.
    app.server.config["PROPAGATE_EXCEPTIONS"] = True
    return app


def serve(request: HttpRequest, app: Dash, path: str) -> HttpResponse:
    """Pass a request to a Dash app.

    Parameters
    ----------
    request
        The request.
    app
        The Dash app.
    path
        Path under the prefix of the app.

    Returns
    -------
    HttpResponse
        The response of the app; 401 without sign-in, 404 for unknown paths and invisible fleets, 400 for other
        bodies.
    """
    if not request.user.is_authenticated:
        return JsonResponse({"detail": "Sign in first."}, status=401)
    if not path.startswith(PATHS):
        return JsonResponse({"detail": "No such path."}, status=404)
    if request.method == "POST":
        asked = _callback(request.body, app)
        if asked is None:
            return JsonResponse({"detail": "Not a request of this app."}, status=400)
        if not _may_see(request, asked):
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


def _may_see(request: HttpRequest, asked: dict[str, Any]) -> bool:
    """Whether the user may see every fleet that the callback names.

    Uses the parsed body, because one text has many JSON forms. Charts know a fleet only by the address of the page.
    """
    if rights.sees_all(request.user):
        return True
    values = [given.get("value") for given in (*asked["inputs"], *asked.get("state", ()))]
    named = {slug for value in values if isinstance(value, str) for slug in FLEET.findall(value)}
    return bool(named) and rights.visible_fleets(request.user).filter(slug__in=named).count() == len(named)


def _callback(body: bytes, app: Dash) -> dict[str, Any] | None:
    """The body of a callback with a known output and plain inputs and state; None for all other bodies."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, dict) or "callback" not in app.callback_map.get(_text(asked.get("output")), {}):
        return None
    given = [*_rows(asked.get("inputs")), *_rows(asked.get("state", []))]
    if not isinstance(asked.get("inputs"), list) or not all(_plain(row) for row in given):
        return None
    changed = asked.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(isinstance(name, str) for name in changed):
        return None
    return asked if _names(asked.get("outputs")) == asked["output"].strip(".").split("...") else None


def _names(outputs: Any) -> list[str] | None:
    """The outputs as a list of names; None if the value is no list of outputs."""
    rows = outputs if isinstance(outputs, list) else [outputs]
    if not all(isinstance(row, dict) for row in rows):
        return None
    return [f"{row.get('id')}.{row.get('property')}" for row in rows]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def _plain(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or "property" not in row:
        return False
    if row["property"] in ("pathname", "search", "href", "hash"):
        return row.get("value") is None or isinstance(row["value"], str)
    return row.get("value") is None or isinstance(row["value"], str | float | int)
