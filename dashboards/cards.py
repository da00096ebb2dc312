"""The panel of a chart: title, label "simulated", note and graph."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

GRAPH: Any = {"displayModeBar": False, "responsive": True}


def card(identifier: str, title: str, note: str, **box: Any) -> html.Section:
    """The panel of a chart.

    Parameters
    ----------
    identifier
        Id of the graph; the section has the id `identifier`-card.
    title
        Heading.
    note
        Text below the heading.
    **box
        Further properties of the section.

    Returns
    -------
    html.Section
        The panel.
    """
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
