"""How a Dash app lives inside Django: its page is a Django template, its requests pass through one Django view.

All middleware applies (sessions, CSRF, CSP, request ids), callbacks share the request's database connection,
and nothing is served to people who are not signed in.
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

# What Dash asks for under its prefix. Anything else is not ours.
PATHS = ("_dash-layout", "_dash-dependencies", "_dash-update-component", "_dash-component-suites/")
PARTS = ("css", "app_entry", "config", "scripts", "renderer")
BETWEEN = "\n<!-- next part -->\n"
FLEET = re.compile(r"/fleets/([^/?#]+)")


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


def embedded(name: str, prefix: str) -> EmbeddedDash:
    """An app whose requests come to addresses that begin with `prefix`."""
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
        use_async=False,  # callbacks read by the ORM, which refuses to run inside an event loop
    )
    # An error of a callback is Django's to log and answer, as any other.
    app.server.config["PROPAGATE_EXCEPTIONS"] = True
    return app


def serve(request: HttpRequest, app: Dash, path: str) -> HttpResponse:
    """Hand the request to the Dash app: 401 without sign-in, 404 for what Dash never asks for."""
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
    """Whether the person may see the fleet of every page that the callback says it is on.

    Read from what Dash will read, not from the bytes: one text has many ways to be written in JSON. Charts know no
    fleet but by the address of their page.
    """
    if rights.sees_all(request.user):
        return True
    values = [given.get("value") for given in (*asked["inputs"], *asked.get("state", ()))]
    named = {slug for value in values if isinstance(value, str) for slug in FLEET.findall(value)}
    return bool(named) and rights.visible_fleets(request.user).filter(slug__in=named).count() == len(named)


def _callback(body: bytes, app: Dash) -> dict[str, Any] | None:
    """What Dash's own script sends: an output that is computed here, and inputs and state with plain ids; else None."""
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
    """The outputs one by one, as they stand joined in `output`; None when they are no outputs."""
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
