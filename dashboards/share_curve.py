"""The share of requests of the busiest keys, as a Plotly dict."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

from dashboards.look import colour_of, frame

Figure = dict[str, Any]
Points = Sequence[tuple[int, float]]


def share_curve(points: Points, theme: str) -> Figure:
    """Cumulative share of requests (percent) against the rank of the key (logarithmic), busiest key first."""
    layout = frame(theme, x_title="busiest keys, by rank (log scale)", y_title="share of requests, %")
    layout["margin"] |= {"t": 12}
    layout["xaxis"] |= {"type": "log", "dtick": 1, "tickformat": ",d", "range": [0, log10(max(points[-1][0], 2))]}
    layout["yaxis"] |= {"range": [0, 102], "dtick": 25, "ticksuffix": "%"}
    line = {
        "type": "scatter",
        "mode": "lines" if len(points) > 1 else "markers",
        "x": [rank for rank, _ in points],
        "y": [100 * share for _, share in points],
        "line": {"color": colour_of("cacheroute", theme), "width": 2},
        "hovertemplate": "%{y:.3~g}%<extra></extra>",
    }
    return {"data": [line], "layout": layout}


def in_words(points: Points) -> str:
    """The chart as a sentence."""
    half = next((rank for rank, share in points if share >= 0.5), points[-1][0])
    return f"The busiest {half:,} of {points[-1][0]:,} keys carry half of the requests."
