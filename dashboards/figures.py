"""Figures of the plan page, as plain Plotly dicts drawn from stored verdicts. They compute nothing new."""

from __future__ import annotations

from html import escape
from math import log10
from typing import Any

from dashboards.look import FAINT, INK, LIMIT, colour_of, frame, look_of
from planner.selectors.plan_page import policy_name

Figure = dict[str, Any]
# Pixels of one panel of the load bars: of all of it, of its title, and of what is left free below it.
PANEL_HEIGHT, TITLE_HEIGHT, GAP = 115, 22, 8
# Pixels of a whole chart of load bars beside its panels: the axis of destinations.
AXIS_HEIGHT = 60
WEIGHTINGS = {"hit_rate": "token-weighted", "request_hit_rate": "request-weighted"}


def _line(policy: str, rows: list[dict[str, Any]], figure: str, theme: str, scale: float, unit: str) -> dict[str, Any]:
    look, colour = look_of(policy), colour_of(policy, theme)
    halves = [row[figure]["half"] for row in rows]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": policy_name(policy),
        "x": [row["load_rps"] for row in rows],
        "y": [row[figure]["mean"] * scale for row in rows],
        "line": {"color": colour, "dash": look.dash, "width": 2},
        "marker": {"symbol": look.marker, "size": 8, "color": colour},
        "error_y": {
            "type": "data",
            "array": [(half or 0.0) * scale for half in halves],
            "thickness": 1.2,
            "width": 4,
            "color": colour,
        },
        "hovertemplate": f"%{{y:.3~g}} {unit} ± %{{error_y.array:.2~g}}",
    }


def hit_rate(data: dict[str, Any], theme: str, weighting: str = "hit_rate") -> Figure:
    """Hit rate against load, a line a policy, with 95% intervals over seeds."""
    verdict = data["verdict"]
    lines = [
        _line(p, verdict["policies"][p]["loads"], weighting, theme, 100.0, "%") for p in reversed(data["policies"])
    ]
    y_title = f"hit rate, {WEIGHTINGS[weighting]}, %"
    layout = frame(theme, x_title="offered load, requests/s", y_title=y_title)
    layout["yaxis"]["range"] = [0, 103]
    return {"data": lines, "layout": layout}


def p99(data: dict[str, Any], theme: str) -> Figure:
    """p99 end-to-end latency against load with the SLO as a line; logarithmic where it spans decades."""
    verdict = data["verdict"]
    lines = [_line(p, verdict["policies"][p]["loads"], "p99_s", theme, 1.0, "s") for p in reversed(data["policies"])]
    means = [y for line in lines for y in line["y"]] + [verdict["slo_p99_s"]]
    log = max(means) > 10 * min(means)
    layout = frame(theme, x_title="offered load, requests/s", y_title="p99 latency, s")
    if log:
        layout["yaxis"] |= {"type": "log", "title": {"text": "p99 latency, s (log scale)"}, "dtick": "D2"}
        for line in lines:
            line["error_y"] |= _above_zero(line)
    else:
        layout["yaxis"]["rangemode"] = "tozero"
    slo, colour = verdict["slo_p99_s"], LIMIT[theme]
    layout["shapes"] = [
        {
            "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": slo, "y1": slo,
            "line": {"color": colour, "width": 1.5, "dash": "dash"},
        }
    ]  # fmt: skip
    layout["annotations"] = [_label(f"SLO {slo:g} s", log10(slo) if log else slo, colour)]
    return {"data": lines, "layout": layout}


def _above_zero(line: dict[str, Any]) -> dict[str, Any]:
    """Lower ends of intervals that a logarithmic axis can show: never below a hundredth of the mean."""
    lower = [min(half, 0.99 * mean) for half, mean in zip(line["error_y"]["array"], line["y"], strict=True)]
    return {"symmetric": False, "arrayminus": lower}


def _label(text: str, y: float, colour: str) -> dict[str, Any]:
    return {
        "text": text, "xref": "paper", "x": 1, "xanchor": "right", "y": y, "yanchor": "bottom",
        "showarrow": False, "font": {"color": colour, "size": 12},
    }  # fmt: skip


def load_bars(data: dict[str, Any], theme: str, load_rps: float | None) -> Figure:
    """Load of each destination as a multiple of the mean: as planned, and as replayed under each policy.

    The mean is that of the load for each unit of speed, times the destination's speed: 1 is its fair part. One panel
    a series above the same destinations, so that thirty of them stay readable on a phone.
    """
    capacity = data["capacity"]
    unequal = len(set(capacity)) > 1
    panels = [("planned", "cacheroute", data["planned"], data["planned_imbalance"])]
    if data["verdict"] is not None:
        for policy in data["policies"]:
            rows = data["verdict"]["policies"][policy]["loads"]
            row = next((r for r in rows if r["load_rps"] == load_rps), rows[0])
            counts = row["requests_per_destination"]
            # The stored max/mean counts requests, as if all were equally fast.
            imbalance = max(_to_mean(counts, capacity)) if unequal else row["imbalance"]["mean"]
            panels.append((policy, policy, counts, imbalance))
    top = max(max(_to_mean(values, capacity), default=1.0) for _, _, values, _ in panels)
    layout = frame(theme, x_title="destination", y_title="")
    layout |= {"showlegend": False, "hovermode": "closest", "bargap": 0.15, "annotations": [], "shapes": []}
    y_axis, bars = layout.pop("yaxis"), []
    step = 1.0 / len(panels)
    title_share, gap_share = step * TITLE_HEIGHT / PANEL_HEIGHT, step * GAP / PANEL_HEIGHT
    for at, (series, policy, values, imbalance) in enumerate(panels):
        axis = "y" if at == 0 else f"y{at + 1}"
        high = 1.0 - at * step - title_share
        layout["yaxis" + axis[1:]] = {
            **y_axis, "domain": [max(0.0, high + title_share - step + gap_share), high],
            "range": [0, top * 1.08], "nticks": 4, "title": {"text": "× mean"},
        }  # fmt: skip
        title = "Planned (CacheRoute)" if series == "planned" else f"Replayed, {policy_name(policy)}"
        pattern = {"shape": "/"} if series == "planned" else {}
        bars.append(
            {
                "type": "bar", "name": title, "x": [escape(name) for name in data["destinations"]],
                "y": _to_mean(values, capacity), "yaxis": axis,
                "marker": {"color": colour_of(policy, theme), "pattern": pattern, "line": {"width": 0}},
                "customdata": values, "hovertemplate": "%{x}: %{y:.3f} × mean (%{customdata:,.4~g})<extra></extra>",
            }
        )  # fmt: skip
        layout["annotations"].append(
            {
                "text": f"<b>{title}</b>: max/mean {imbalance:.3f}", "xref": "paper", "x": 0, "xanchor": "left",
                "yref": "paper", "y": high, "yanchor": "bottom", "showarrow": False, "font": {"color": INK[theme]},
            }
        )  # fmt: skip
        layout["shapes"].append(
            {
                "type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": axis, "y0": 1, "y1": 1,
                "line": {"color": FAINT[theme] if theme == "light" else "#5b6675", "width": 1}, "layer": "below",
            }
        )  # fmt: skip
    layout["xaxis"] |= {"type": "category", "anchor": f"y{len(panels)}" if len(panels) > 1 else "y"}
    layout["margin"]["t"] = 4
    return {"data": bars, "layout": layout}


def _to_mean(values: list[float], capacity: list[float]) -> list[float]:
    """Each load over its destination's fair part of all of it, which is in proportion to its speed."""
    mean = sum(values) / sum(capacity) if values else 0.0
    return [value / (mean * speed) if mean else 0.0 for value, speed in zip(values, capacity, strict=True)]
