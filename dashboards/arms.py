"""Figures of the arms of a fleet over time, as plain Plotly dicts, with table changes and validated limits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, NamedTuple

from dashboards.look import FAINT, INK, LIMIT, frame

Figure = dict[str, Any]


class ArmLook(NamedTuple):
    """Colour on light and dark ground, dash and marker. Colour is never the only difference."""

    light: str
    dark: str
    dash: str
    marker: str


LOOKS = {
    "incumbent": ArmLook("#5b6675", "#a9b4c2", "dash", "square"),
    "canary": ArmLook("#0b62c4", "#5aa9ff", "solid", "circle"),
    "fleet": ArmLook("#0f766e", "#3ecdbb", "solid", "diamond"),
}
MAX_CHANGES = 8
NAMES = {"incumbent": "incumbent", "canary": "canary", "fleet": "whole fleet"}


def hit_rate(data: dict[str, Any], theme: str) -> Figure:
    """Token-weighted hit rate of each arm."""
    layout = _layout(data, theme, "hit rate, %")
    layout["yaxis"]["range"] = [0, 103]
    return {"data": _lines(data, theme, lambda r: _times(r["hit_rate"], 100), "%{y:.1f}%"), "layout": layout}


def p99(data: dict[str, Any], theme: str) -> Figure:
    """p99 latency of each arm with its 95% interval, and the validated limit."""
    layout = _layout(data, theme, "p99 latency, s")
    lines = _lines(data, theme, lambda r: r["p99"] and r["p99"]["value"], "%{y:.3~g} s")
    for line in lines:
        rows = [row for row in data["rows"] if row["arm"] == line["meta"]]
        found = [row["p99"] or {"value": None, "low": None, "high": None} for row in rows]
        line["error_y"] = {
            "type": "data", "symmetric": False, "thickness": 1, "width": 3,
            "array": [_gap(p["high"], p["value"]) for p in found],
            "arrayminus": [_gap(p["value"], p["low"]) for p in found],
        }  # fmt: skip
    _limit(layout, data, "p99_limit_s", theme, "validated: ≤ {:g} s")
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": lines, "layout": layout}


def errors(data: dict[str, Any], theme: str) -> Figure:
    """Share of the requests of each arm that failed."""
    layout = _layout(data, theme, "failed requests, %")
    lines = _lines(data, theme, lambda r: _times(r["error_rate"], 100), "%{y:.3~g}%")
    limit = (data["envelope"] or {}).get("max_error_rate")
    _limit(
        layout, {"envelope": {"limit": 100 * limit}} if limit is not None else data, "limit", theme, "limit: ≤ {:g}%"
    )
    top = max([y for line in lines for y in line["y"] if y is not None] + [1.2 * 100 * (limit or 0.01)])
    layout["yaxis"]["range"] = [-0.03 * top, 1.1 * top]
    return {"data": lines, "layout": layout}


def imbalance(data: dict[str, Any], theme: str) -> Figure:
    """Max/mean of requests over the destinations that are up, for both arms together."""
    layout = _layout(data, theme, "max/mean of requests")
    lines = _lines(data, theme, lambda r: r["imbalance"], "%{y:.3f}", ("fleet",))
    limit = (data["envelope"] or {}).get("max_imbalance")
    _limit(layout, data, "max_imbalance", theme, "validated: ≤ {:.3g}")
    top = max([y for line in lines for y in line["y"] if y is not None] + [limit or 1.1])
    layout["yaxis"]["range"] = [0.97, 1 + 1.12 * (top - 1)]
    return {"data": lines, "layout": layout}


def load(data: dict[str, Any], theme: str) -> Figure:
    """Requests/s of each arm and of the fleet, and the highest validated load."""
    layout = _layout(data, theme, "load, requests/s")
    lines = _lines(data, theme, lambda r: r["rps"], "%{y:.4~g} requests/s", ("incumbent", "canary", "fleet"))
    _limit(layout, data, "load_high_rps", theme, "validated: ≤ {:g} requests/s")
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": lines, "layout": layout}


def _lines(
    data: dict[str, Any],
    theme: str,
    value: Callable[[dict[str, Any]], Any],
    hover: str,
    arms: tuple[str, ...] = ("incumbent", "canary"),
) -> list[dict[str, Any]]:
    found = []
    for arm in arms:
        rows = [row for row in data["rows"] if row["arm"] == arm]
        look = LOOKS[arm]
        colour = look.dark if theme == "dark" else look.light
        if not rows:
            continue
        found.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": NAMES[arm], "meta": arm,
                "x": [row["minute"].isoformat() for row in rows], "y": [value(row) for row in rows],
                "line": {"color": colour, "dash": look.dash, "width": 2},
                "marker": {"symbol": look.marker, "size": 6, "color": colour},
                "customdata": [_plans(row) for row in rows],
                "hovertemplate": hover + "%{customdata}",
            }
        )  # fmt: skip
    return found


def _plans(row: dict[str, Any]) -> str:
    names = ", ".join("Flat-LB" if number == 0 else f"plan {number}" for number in row["plans"])
    return f" ({names})" if names else ""


def _layout(data: dict[str, Any], theme: str, y_title: str) -> Figure:
    """A layout with a time axis, and a line at each change of the published table."""
    layout = frame(theme, x_title="time, UTC", y_title=y_title)
    # The last hour, or the part with data, but at least ten minutes.
    first = min((row["minute"] for row in data["rows"]), default=data["since"])
    since = max(data["since"], min(first - dt.timedelta(minutes=1), data["until"] - dt.timedelta(minutes=10)))
    layout["xaxis"] |= {"type": "date", "range": [since.isoformat(), data["until"].isoformat()], "nticks": 6}
    layout["showlegend"] = True
    layout["shapes"] = [
        {
            "type": "line", "x0": at.isoformat(), "x1": at.isoformat(), "yref": "paper", "y0": 0, "y1": 1,
            "line": {"color": FAINT[theme] if theme == "light" else "#5b6675", "width": 1.5, "dash": "dot"},
        }
        for at, _ in _changes(data, since)
    ]  # fmt: skip
    layout["annotations"] = [
        {
            "text": f"v{version}", "x": at.isoformat(), "xanchor": "left", "yref": "paper", "y": 1, "yanchor": "top",
            "showarrow": False, "font": {"color": INK[theme], "size": 11},
        }
        for at, version in _changes(data, since)
    ]  # fmt: skip
    return layout


def _changes(data: dict[str, Any], since: dt.datetime) -> list[tuple[dt.datetime, int]]:
    """The newest changes of the table within the axis; more names would overlap."""
    return [(at, version) for at, version in data["changes"] if at > since][-MAX_CHANGES:]


def _limit(layout: Figure, data: dict[str, Any], name: str, theme: str, words: str) -> None:
    value = (data["envelope"] or {}).get(name)
    if value is None:
        return
    layout["shapes"].append(
        {
            "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value,
            "line": {"color": LIMIT[theme], "width": 1.5, "dash": "dash"},
        }
    )  # fmt: skip
    layout["annotations"].append(
        {
            "text": words.format(value), "xref": "paper", "x": 0, "xanchor": "left", "y": value, "yanchor": "bottom",
            "showarrow": False, "font": {"color": LIMIT[theme], "size": 12},
        }
    )  # fmt: skip


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _gap(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else max(0.0, high - low)
