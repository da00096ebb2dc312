"""The charts of the live page: each arm of a fleet over the last hour, refreshed every 30 s."""

from __future__ import annotations

import re
from typing import Any

from dash import ClientsideFunction, Input, Output, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards import arms
from dashboards.cards import card
from dashboards.mounting import embedded
from planner.models import Fleet
from planner.selectors.monitoring.live_page import live_data

PREFIX = "/charts/live/"
PAGE = re.compile(r"^/fleets/(?P<slug>[-\w]+)/live/?$")
EVERY_MS = 30_000

app = embedded("live_charts", PREFIX)

CHARTS = {"hit-rate": arms.hit_rate, "p99": arms.p99, "errors": arms.errors, "imbalance": arms.imbalance,
          "load": arms.load}  # fmt: skip

app.layout = html.Div(
    children=[
        dcc.Location(id="address", refresh=False),
        dcc.Store(id="theme"),
        dcc.Interval(id="clock", interval=EVERY_MS),
        html.P(id="none", className="note"),
        html.Div(
            id="charts",
            hidden=True,
            children=[
                html.Div(
                    className="charts",
                    children=[
                        card(
                            "hit-rate",
                            "Hit rate",
                            "Cached share of prompt tokens. Dotted lines: changes of the routing table.",
                        ),
                        card("p99", "p99 latency", "End-to-end latency per minute. Bars: 95% intervals."),
                        card("errors", "Failed requests", "Failed share of the requests of each arm."),
                        card(
                            "imbalance",
                            "Imbalance",
                            "Requests of the busiest destination over the mean, both arms. 1 is perfect balance.",
                        ),
                    ],
                ),
                html.Div(
                    className="charts one",
                    children=[card("load", "Load", "Requests/s reported by all routers.")],
                ),
            ],
        ),
    ]
)

# Defined in static/js/theme.js: returns the theme of the page.
app.clientside_callback(
    ClientsideFunction(namespace="console", function_name="theme"),
    Output("theme", "data"),
    Input("address", "pathname"),
)


@app.callback(
    *(Output(name, "figure") for name in CHARTS),
    *(Output(f"{name}-simulated", "children") for name in CHARTS),
    Output("charts", "hidden"),
    Output("none", "children"),
    Input("address", "pathname"),
    Input("theme", "data"),
    Input("clock", "n_intervals"),
)
def show(pathname: str | None, theme: str | None, _round: int | None) -> tuple[Any, ...]:
    """All charts, from the telemetry of the last hour.

    Parameters
    ----------
    pathname
        Path of the page.
    theme
        `light` or `dark`.
    _round
        Count of the refresh timer.

    Returns
    -------
    tuple[Any, ...]
        The outputs of the callback.

    Raises
    ------
    PreventUpdate
        When the page has no such charts or no theme yet.
    """
    found = PAGE.match(pathname or "")
    if found is None or theme is None:
        raise PreventUpdate
    fleet = Fleet.objects.filter(slug=found["slug"]).first()
    data = live_data(fleet) if fleet is not None else {"rows": []}
    if not data["rows"]:
        words = "No charts yet: no router telemetry in the last hour. Charts refresh every 30 s."
        return *[no_update] * (2 * len(CHARTS)), True, words
    look = "dark" if theme == "dark" else "light"
    label = "≈ simulated" if data["simulated"] else ""
    return *(draw(data, look) for draw in CHARTS.values()), *[label] * len(CHARTS), False, ""
