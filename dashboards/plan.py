"""The charts of a plan. They show; every change is a form of the page around them."""

from __future__ import annotations

import re
from typing import Any

import dash_bootstrap_components as dbc
from dash import ClientsideFunction, Input, Output, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards import figures
from dashboards.mounting import EmbeddedDash
from planner.selectors.plan_page import chart_data

PREFIX = "/charts/plan/"
PAGE = re.compile(r"^/fleets/(?P<slug>[-\w]+)/plans/(?P<number>\d+)/?$")
GRAPH: Any = {"displayModeBar": False, "responsive": True}

app = EmbeddedDash(
    "plan_charts",
    requests_pathname_prefix=PREFIX,
    routes_pathname_prefix=PREFIX,
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


def _card(identifier: str, title: str, note: str, *controls: Any) -> html.Section:
    return html.Section(
        className="panel chart",
        children=[
            html.Div(
                className="panel-head",
                children=[
                    html.H3([title, html.Span(className="tag tag-warn simulated-tag", id=f"{identifier}-simulated")]),
                    *controls,
                ],
            ),
            html.P(note, className="note"),
            dcc.Graph(id=identifier, config=GRAPH, figure={"data": [], "layout": {}}, style={"height": "320px"}),
        ],
    )


def _select(identifier: str, label: str, options: list[dict[str, Any]], value: Any) -> html.Div:
    return html.Div(
        id=f"{identifier}-control",
        className="chart-control",
        children=[
            html.Label(label, htmlFor=identifier),
            dbc.Select(id=identifier, options=options, value=value, size="sm"),
        ],
    )


app.layout = html.Div(
    children=[
        dcc.Location(id="address", refresh=False),
        dcc.Store(id="theme"),
        html.P(id="none", className="note"),
        html.Div(
            id="charts",
            className="charts",
            hidden=True,
            children=[
                _card(
                    "hit-rate",
                    "Hit rate against load",
                    "Cached prompt tokens as a share of prompt tokens; bars are 95% intervals over paired seeds.",
                    _select(
                        "weighting",
                        "Weighted by",
                        [{"label": "tokens", "value": "hit_rate"}, {"label": "requests", "value": "request_hit_rate"}],
                        "hit_rate",
                    ),
                ),
                _card(
                    "p99",
                    "p99 latency against load",
                    "End to end; bars are 95% intervals over paired seeds. The dashed line is the fleet's SLO.",
                ),
            ],
        ),
        html.Div(
            id="bars",
            className="charts one",
            hidden=True,
            children=[
                _card(
                    "load-bars",
                    "Load of each destination",
                    "As a multiple of the mean, which goes by the destination's speed: requests/s as planned, "
                    "requests as replayed (mean over seeds).",
                    _select("load", "At load", [], None),
                ),
            ],
        ),
    ]
)

# In static/js/console.js: the theme of the page, now and whenever it is switched.
app.clientside_callback(
    ClientsideFunction(namespace="console", function_name="theme"),
    Output("theme", "data"),
    Input("address", "pathname"),
)


def _data(pathname: str | None) -> dict[str, Any] | None:
    found = PAGE.match(pathname or "")
    if found is None:
        raise PreventUpdate
    return chart_data(found["slug"], int(found["number"]))


@app.callback(
    Output("hit-rate", "figure"),
    Output("p99", "figure"),
    Output("charts", "hidden"),
    Output("none", "children"),
    Output("hit-rate-simulated", "children"),
    Output("p99-simulated", "children"),
    Input("address", "pathname"),
    Input("theme", "data"),
    Input("weighting", "value"),
)
def show_lines(pathname: str | None, theme: str | None, weighting: str | None) -> tuple[Any, ...]:
    """Hit rate and p99 of the shown replay."""
    if theme is None:
        raise PreventUpdate
    data = _data(pathname)
    if data is None or data["verdict"] is None:
        return no_update, no_update, True, "Charts appear here when a replay has finished.", "", ""
    chosen = weighting if weighting in figures.WEIGHTINGS else "hit_rate"
    label = _simulated(data)
    return figures.hit_rate(data, _theme(theme), chosen), figures.p99(data, _theme(theme)), False, "", label, label


@app.callback(
    Output("load-bars", "figure"),
    Output("load-bars", "style"),
    Output("load", "options"),
    Output("load", "value"),
    Output("load-control", "hidden"),
    Output("bars", "hidden"),
    Output("load-bars-simulated", "children"),
    Input("address", "pathname"),
    Input("theme", "data"),
    Input("load", "value"),
)
def show_bars(pathname: str | None, theme: str | None, load: str | None) -> tuple[Any, ...]:
    """Load of each destination, at one of the replayed loads."""
    if theme is None:
        raise PreventUpdate
    data = _data(pathname)
    if data is None:
        return no_update, no_update, [], None, True, True, ""
    loads = data["verdict"]["loads_rps"] if data["verdict"] else []
    options = [{"label": f"{at:g} requests/s", "value": f"{at:g}"} for at in loads]
    known = [option["value"] for option in options]
    chosen = load if load in known else (known[len(known) // 2] if known else None)
    at = loads[known.index(chosen)] if chosen in known else None
    figure = figures.load_bars(data, _theme(theme), at)
    # A responsive chart takes the height of its box.
    height = {"height": f"{figures.PANEL_HEIGHT * len(figure['data']) + figures.AXIS_HEIGHT}px"}
    return figure, height, options, chosen, not options, False, _simulated(data)


def _simulated(data: dict[str, Any]) -> str:
    """The label of every figure here; the sentence on top of the page says which parts."""
    return "≈ simulated" if data["simulated"] else ""


def _theme(theme: str) -> str:
    return "dark" if theme == "dark" else "light"
