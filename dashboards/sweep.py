"""The load sweep of a calibration as a Plotly dict: p50, p95 and p99 against load, knee and censored range."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log10
from typing import Any

from dashboards.look import INK, LIMIT, PolicyLook, frame
from planner.formatting import number

Figure = dict[str, Any]
Point = dict[str, Any]
LOOKS = {
    "p50_s": PolicyLook("#0f766e", "#3ecdbb", "dot", "square"),
    "p95_s": PolicyLook("#b45309", "#f0a04b", "dash", "diamond"),
    "p99_s": PolicyLook("#0b62c4", "#5aa9ff", "solid", "circle"),
}
# Decades below which the latency axis also has ticks at 2 and 5.
FEW_DECADES = 2.5


def known_points(points: Sequence[Point]) -> list[Point]:
    """Points with a load and a latency, by load; empty if there are fewer than two."""
    known = [p for p in points if _positive(p.get("load_rps")) and any(_positive(p.get(name)) for name in LOOKS)]
    return sorted(known, key=lambda p: p["load_rps"]) if len(known) > 1 else []


def sweep(points: list[Point], q_cap: float, censored: str, bound_s: float | None, theme: str) -> Figure:
    """Latency in seconds (logarithmic) against load in requests/s.

    The knee is a line at ``q_cap``. If it is censored, the range of possible loads is shaded.

    Parameters
    ----------
    points
        Known points, by load.
    q_cap
        Load at the knee, requests/s.
    censored
        `left`, `right` or empty.
    bound_s
        Limit of the latency at the knee, s, if the method has one.
    theme
        `light` or `dark`.

    Returns
    -------
    Figure
        The figure.
    """
    layout = frame(theme, x_title="load of one destination, requests/s", y_title="latency, s (log scale)")
    most = max(points[-1]["load_rps"], q_cap) * (1.06 if censored == "right" else 1.02)
    values = [p[name] for p in points for name in LOOKS if _positive(p.get(name))]
    limit = bound_s if _positive(bound_s) else None
    low, high = log10(min([*values, limit or values[0]])) - 0.05, log10(max([*values, limit or values[0]])) + 0.05
    layout["margin"] |= {"t": 58}
    layout["xaxis"] |= {"range": [0, most]}
    layout["yaxis"] |= {"type": "log", "range": [low, high], "dtick": "D2" if high - low < FEW_DECADES else 1}
    layout["shapes"], layout["annotations"] = [], []
    if censored:
        layout["shapes"].append(_shade(q_cap, censored, most, theme))
    if limit is not None:
        layout["shapes"].append(_line("x", limit, {"color": LIMIT[theme], "width": 1.2, "dash": "dot"}))
        layout["annotations"].append(
            {
                "text": f"{number(limit)} s", "xref": "paper", "x": 0.01, "xanchor": "left", "y": log10(limit),
                "yanchor": "bottom", "showarrow": False, "font": {"color": LIMIT[theme]},
            }
        )  # fmt: skip
    sign = {"left": "< ", "right": "≥ "}.get(censored, "")
    layout["shapes"].append(_line("y", q_cap, {"color": INK[theme], "width": 1.5}))
    layout["annotations"].append(
        {
            "text": f"<b>q_cap {sign.replace('<', '&lt;')}{number(q_cap, 4)} requests/s</b>", "x": q_cap,
            "yref": "paper", "y": 1, "yanchor": "bottom", "xanchor": "right" if q_cap > 0.6 * most else "left",
            "showarrow": False,
        }
    )  # fmt: skip
    return {"data": [_series(points, name, theme) for name in LOOKS if _has(points, name)], "layout": layout}


def in_words(points: list[Point], q_cap: float, censored: str) -> str:
    """The chart as a sentence.

    Parameters
    ----------
    points
        Known points, by load.
    q_cap
        Load at the knee, requests/s.
    censored
        `left`, `right` or empty.

    Returns
    -------
    str
        Number of loads, range of p99 latency, and knee.
    """
    knee = {"left": "below", "right": "at or above"}.get(censored, "at")
    first, last = points[0], points[-1]
    tail = ""
    if _positive(first.get("p99_s")) and _positive(last.get("p99_s")):
        tail = f" p99 latency goes from {number(first['p99_s'])} to {number(last['p99_s'])} s."
    return (
        f"{len(points)} loads from {number(first['load_rps'])} to {number(last['load_rps'])} requests/s."
        f"{tail} The knee lies {knee} {number(q_cap, 4)} requests/s."
    )


def _series(points: list[Point], name: str, theme: str) -> dict[str, Any]:
    look = LOOKS[name]
    colour = look.dark if theme == "dark" else look.light
    there = [p for p in points if _positive(p.get(name))]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name.removesuffix("_s"),
        "x": [p["load_rps"] for p in there],
        "y": [p[name] for p in there],
        "line": {"color": colour, "dash": look.dash, "width": 2},
        "marker": {"symbol": look.marker, "size": 7, "color": colour},
        "hovertemplate": "%{y:.3~g} s",
    }


def _line(along: str, at: float, line: dict[str, Any]) -> dict[str, Any]:
    """A straight line along one axis at a position of the other axis."""
    other = "y" if along == "x" else "x"
    return {
        "type": "line", f"{along}ref": "paper", f"{along}0": 0, f"{along}1": 1, f"{other}0": at, f"{other}1": at,
        "line": line,
    }  # fmt: skip


def _shade(q_cap: float, censored: str, most: float, theme: str) -> dict[str, Any]:
    start, end = (0.0, q_cap) if censored == "left" else (q_cap, most)
    colour = LOOKS["p95_s"].dark if theme == "dark" else LOOKS["p95_s"].light
    return {
        "type": "rect", "x0": start, "x1": end, "yref": "paper", "y0": 0, "y1": 1, "layer": "below",
        "fillcolor": colour, "opacity": 0.15, "line": {"width": 0},
    }  # fmt: skip


def _has(points: list[Point], name: str) -> bool:
    return any(_positive(p.get(name)) for p in points)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value) and value > 0
