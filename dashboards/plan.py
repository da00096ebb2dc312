"""The charts of a plan."""

from __future__ import annotations

import re
from typing import Any

from dash import ClientsideFunction, Input, Output, dcc, html, no_update
from dash.exceptions import PreventUpdate

from dashboards import figures, ladder, recovery
from dashboards.cards import card
from dashboards.mounting import embedded
from planner.selectors.plans.page import ChartData, chart_data
from planner.selectors.replays.policy_names import CANDIDATE

PREFIX = "/charts/plan/"
PAGE = re.compile(r"^/fleets/(?P<slug>[-\w]+)/plans/(?P<number>\d+)/?$")
REPLAY = re.compile(r"[?&]replay=(?P<pk>\d{1,9})(?:&|$)")

app = embedded("plan_charts", PREFIX)
# Charts over all loads, and charts at one of them.
OVER_LOADS = ("hit-rate", "request-hit-rate", "p99", "imbalance", "busy-imbalance")
AT_LOAD = ("chain", "recovery", "load-bars")

app.layout = html.Div(
    children=[
        dcc.Location(id="address", refresh=False),
        dcc.Store(id="theme"),
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
                            "Hit rate, token-weighted",
                            "Cached share of prompt tokens. Bars: 95% intervals over seeds.",
                        ),
                        card(
                            "request-hit-rate",
                            "Hit rate, request-weighted",
                            "Share of requests with at least one cached prompt token. Bars: 95% intervals over seeds.",
                        ),
                    ],
                ),
                html.Div(
                    className="charts one",
                    children=[
                        card(
                            "p99",
                            "p99 latency and capacity",
                            "End-to-end latency. Bars: 95% intervals over paired seeds. Dashed line: SLO. Below: "
                            "capacity; an open marker is below the lowest tested load, an arrow at least the highest "
                            "tested load.",
                        ),
                    ],
                ),
                html.Div(
                    className="charts",
                    children=[
                        card(
                            "imbalance",
                            "Imbalance of requests",
                            "Requests of the busiest destination over the mean. 1 is perfect balance.",
                        ),
                        card(
                            "busy-imbalance",
                            "Imbalance of busy time",
                            "Busy time of the busiest destination over the mean. 1 is perfect balance.",
                        ),
                    ],
                ),
            ],
        ),
        html.Div(
            id="bars",
            hidden=True,
            children=[
                html.Div(
                    id="load-control",
                    className="panel chart-control",
                    # The button of the list is named by its value alone: the group says what the value is.
                    role="group",
                    **{"aria-labelledby": "load-label"},
                    children=[
                        html.Label("Load", id="load-label", htmlFor="load"),
                        dcc.Dropdown(id="load", options=[], value=None, clearable=False, searchable=False),
                    ],
                ),
                card(
                    "chain",
                    "Available, planned and delivered hit rate",
                    "Hit rate of one cache without eviction, the part on keys of the routing table, and the hit rate "
                    "of each policy with its difference from CacheRoute. Shares of prompt tokens, means over seeds.",
                    hidden=True,
                ),
                card("recovery", "Hit rate over time", "", hidden=True),
                card(
                    "load-bars",
                    "Load of each destination",
                    "Multiple of the mean for the speed of the destination. Planned: requests/s. Replayed: requests, "
                    "means over seeds.",
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


def _data(pathname: str | None, search: str | None) -> ChartData | None:
    found = PAGE.match(pathname or "")
    if found is None:
        raise PreventUpdate
    asked = REPLAY.search(search or "")
    return chart_data(found["slug"], int(found["number"]), int(asked["pk"]) if asked else None)


@app.callback(
    *(Output(name, "figure") for name in OVER_LOADS),
    *(Output(name, "style") for name in OVER_LOADS),
    Output("charts", "hidden"),
    Output("none", "children"),
    *(Output(f"{name}-simulated", "children") for name in OVER_LOADS),
    Input("address", "pathname"),
    Input("address", "search"),
    Input("theme", "data"),
)
def show_lines(pathname: str | None, search: str | None, theme: str | None) -> tuple[Any, ...]:
    """Hit rates, p99 latency with capacity, and imbalances of the shown replay against the load.

    Parameters
    ----------
    pathname
        Path of the page.
    search
        Query of the page.
    theme
        `light` or `dark`.

    Returns
    -------
    tuple[Any, ...]
        The outputs of the callback.

    Raises
    ------
    PreventUpdate
        When the page has no such charts or no theme yet.
    """
    if theme is None:
        raise PreventUpdate
    data, look = _data(pathname, search), _theme(theme)
    if data is None or data.verdict is None:
        nothing = [no_update] * (2 * len(OVER_LOADS))
        return *nothing, True, "No charts yet. Charts appear after the first replay.", *[""] * len(OVER_LOADS)
    return (
        ladder.hit_rate(data, look, "hit_rate"),
        ladder.hit_rate(data, look, "request_hit_rate"),
        ladder.p99(data, look),
        ladder.imbalance(data, look, "imbalance"),
        ladder.imbalance(data, look, "busy_imbalance"),
        *({"height": f"{ladder.p99_height(data) if name == 'p99' else ladder.height(data)}px"} for name in OVER_LOADS),
        False,
        "",
        *[_simulated(data)] * len(OVER_LOADS),
    )


@app.callback(
    Output("load-bars", "figure"),
    Output("load-bars", "style"),
    Output("load", "options"),
    Output("load", "value"),
    Output("load-control", "hidden"),
    Output("bars", "hidden"),
    Output("chain", "figure"),
    Output("chain", "style"),
    Output("chain-card", "hidden"),
    Output("recovery", "figure"),
    Output("recovery", "style"),
    Output("recovery-card", "hidden"),
    Output("recovery-note", "children"),
    *(Output(f"{name}-simulated", "children") for name in AT_LOAD),
    Input("address", "pathname"),
    Input("address", "search"),
    Input("theme", "data"),
    Input("load", "value"),
)
def show_at_load(pathname: str | None, search: str | None, theme: str | None, load: str | None) -> tuple[Any, ...]:
    """The chain of hit rates, the hit rate over time and the load of each destination, at one replayed load.

    Parameters
    ----------
    pathname
        Path of the page.
    search
        Query of the page.
    theme
        `light` or `dark`.
    load
        The chosen load, requests/s.

    Returns
    -------
    tuple[Any, ...]
        The outputs of the callback.

    Raises
    ------
    PreventUpdate
        When the page has no such charts or no theme yet.
    """
    if theme is None:
        raise PreventUpdate
    data, look = _data(pathname, search), _theme(theme)
    if data is None:
        labels = [""] * len(AT_LOAD)
        return no_update, no_update, [], None, True, True, *[no_update] * 2, True, *[no_update] * 2, True, "", *labels
    loads = _common_loads(data)
    options = [{"label": f"{at:g} requests/s", "value": f"{at:g}"} for at in loads]
    known = [option["value"] for option in options]
    at = loads[known.index(load)] if load in known else data.first_shown
    chosen = None if at is None else f"{at:g}"
    bars = figures.load_bars(data, look, at)
    steps = figures.chain(data, look, at)
    over_time = recovery.recovery(data, look, at)
    # A responsive chart has the height of its container.
    return (
        bars,
        {"height": f"{figures.PANEL_HEIGHT * len(bars['data']) + figures.AXIS_HEIGHT}px"},
        options,
        chosen,
        not options,
        False,
        steps or no_update,
        {"height": f"{figures.chain_height(steps)}px"} if steps else no_update,
        steps is None,
        over_time or no_update,
        {"height": f"{ladder.height(data)}px"},
        over_time is None,
        _recovery_note(data, at),
        *[_simulated(data)] * len(AT_LOAD),
    )


def _common_loads(data: ChartData) -> list[float]:
    """Loads of the candidate; bisection adds other loads for other policies."""
    if data.verdict is None:
        return []
    return [row.load_rps for row in data.verdict.policies[CANDIDATE].loads]


def _recovery_note(data: ChartData, load: float | None) -> str:
    happened = [f"{n}: {label} at {at:.3g} s" for n, (at, label) in enumerate(recovery.moments(data, load), start=1)]
    return f"Token-weighted, by arrival time, all seeds together. {'; '.join(happened)}."


def _simulated(data: ChartData) -> str:
    """The label of every figure; the headline of the page names the simulated parts."""
    return "≈ simulated" if data.simulated else ""


def _theme(theme: str) -> str:
    return "dark" if theme == "dark" else "light"
