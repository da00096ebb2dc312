"""The box of a chart: a title with room for the label "simulated", a note, and the graph."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

GRAPH: Any = {"displayModeBar": False, "responsive": True}


def card(identifier: str, title: str, note: str, **box: Any) -> html.Section:
    """A chart named `identifier`, in a section `identifier`-card."""
    return html.Section(
        id=f"{identifier}-card",
        className="panel chart",
        children=[
            html.Div(
                className="panel-head",
                children=[
                    html.H3([title, html.Span(className="tag tag-warn simulated-tag", id=f"{identifier}-simulated")])
                ],
            ),
            html.P(note, className="note", id=f"{identifier}-note"),
            dcc.Graph(id=identifier, config=GRAPH, figure={"data": [], "layout": {}}, style={"height": "320px"}),
        ],
        **box,
    )
