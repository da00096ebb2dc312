"""Figures against the offered load with one line per policy, and capacities below the p99 latency."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10
from typing import Any

from dashboards.look import INK, LIMIT, colour_of, frame, look_of
from planner.analysis.verdict import LoadFigures
from planner.formatting import spaced_bounds
from planner.selectors.plans.page import ChartData
from planner.selectors.replays.policy_names import policy_name

Figure = dict[str, Any]
# Pixels of the p99 plot, of one row of capacities below it, and of the axis and the legend around both.
PLOT_HEIGHT, ROW_HEIGHT, EDGES = 230, 24, 130
# Pixels of the other charts, and of each legend row for policies beyond three on a phone.
HEIGHT, LEGEND_ROW, LEGEND_ROWS = 320, 22, 3
# Ratio of highest to lowest load above which the axis is logarithmic.
WIDE = 8.0


def _line(policy: str, rows: Sequence[LoadFigures], figure: str, theme: str, scale: float, unit: str) -> dict[str, Any]:
    look, colour = look_of(policy), colour_of(policy, theme)
    known = [(row.load_rps, mean) for row in rows if (mean := row.mean(figure))]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": policy_name(policy),
        "x": [load for load, _ in known],
        "y": [mean.mean * scale for _, mean in known],
        "line": {"color": colour, "dash": look.dash, "width": 2},
        "marker": {"symbol": look.marker, "size": 8, "color": colour},
        "error_y": {
            "type": "data",
            "array": [(mean.half or 0.0) * scale for _, mean in known],
            "thickness": 1.2,
            "width": 4,
            "color": colour,
        },
        "hovertemplate": f"%{{y:.3~g}} {unit} ± %{{error_y.array:.2~g}}",
    }


def _lines(data: ChartData, figure: str, theme: str, scale: float, unit: str) -> list[dict[str, Any]]:
    of = data.verdict.policies
    return [_line(p, of[p].loads, figure, theme, scale, unit) for p in reversed(data.policies)]


def _ends(loads: Sequence[float]) -> tuple[bool, float, float]:
    """Whether the axis is logarithmic, and positions below and above the tested loads."""
    low, high = loads[0], loads[-1]
    if high > WIDE * low:
        step = (high / low) ** 0.12
        return True, low / step, high * step
    step = 0.12 * (high - low) or 0.25 * low
    return False, max(low - step, low / 2), high + step


def _load_axis(layout: Figure, loads: Sequence[float]) -> None:
    log, left, right = _ends(loads)
    if log:
        layout["xaxis"] |= {"type": "log", "dtick": "D2", "range": [log10(left) - 0.05, log10(right) + 0.05]}
    else:
        pad = 0.04 * (right - left)
        layout["xaxis"]["range"] = [left - pad, right + pad]


def hit_rate(data: ChartData, theme: str, weighting: str = "hit_rate") -> Figure:
    """Hit rate against load, with 95% intervals over seeds; by tokens (`hit_rate`) or by requests.

    Parameters
    ----------
    data
        Data of the plan and the shown replay.
    theme
        `light` or `dark`.
    weighting
        `hit_rate` (by tokens) or `request_hit_rate`.

    Returns
    -------
    Figure
        The figure.
    """
    layout = frame(theme, x_title="offered load, requests/s", y_title="hit rate, %")
    layout["yaxis"]["range"] = [0, 103]
    _load_axis(layout, data.verdict.loads_rps)
    return {"data": _lines(data, weighting, theme, 100.0, "%"), "layout": layout}


def imbalance(data: ChartData, theme: str, figure: str = "imbalance") -> Figure:
    """Max/mean over destinations against load: of requests (`imbalance`) or of busy time (`busy_imbalance`).

    Parameters
    ----------
    data
        Data of the plan and the shown replay.
    theme
        `light` or `dark`.
    figure
        `imbalance` (of requests) or `busy_imbalance`.

    Returns
    -------
    Figure
        The figure.
    """
    layout = frame(theme, x_title="offered load, requests/s", y_title="max/mean")
    _load_axis(layout, data.verdict.loads_rps)
    lines = _lines(data, figure, theme, 1.0, "")
    top = max((y for line in lines for y in line["y"]), default=1.0)
    layout["yaxis"]["range"] = [0.95, max(1.1, 1 + 1.15 * (top - 1))]  # 1 is perfect balance and the minimum
    return {"data": lines, "layout": layout}


def height(data: ChartData) -> int:
    """Pixels of a chart with one line per policy."""
    return HEIGHT + LEGEND_ROW * max(0, len(data.policies) - LEGEND_ROWS)


def p99_height(data: ChartData) -> int:
    """Pixels of the chart of p99 and capacity."""
    return PLOT_HEIGHT + ROW_HEIGHT * len(data.policies) + EDGES + height(data) - HEIGHT


def p99(data: ChartData, theme: str) -> Figure:
    """p99 end-to-end latency against load with the SLO as a line; below it the capacity of each policy.

    The latency axis is logarithmic where it spans decades. A capacity below the lowest load is an open marker on the
    left; a capacity of at least the highest load is an arrow to the right. Both have a text.
    """
    verdict = data.verdict
    lines = _lines(data, "p99_s", theme, 1.0, "s")
    means = [y for line in lines for y in line["y"]] + [verdict.slo_p99_s]
    log = max(means) > 10 * min(means)
    layout = frame(theme, x_title="offered load, requests/s", y_title="p99 latency, s")
    _load_axis(layout, verdict.loads_rps)
    if log:
        layout["yaxis"] |= {"type": "log", "title": {"text": "p99 latency, s (log scale)"}, "dtick": "D2"}
        for line in lines:
            line["error_y"] |= _above_zero(line)
    else:
        layout["yaxis"]["rangemode"] = "tozero"
    slo, colour = verdict.slo_p99_s, LIMIT[theme]
    layout["shapes"] = [
        {
            "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": slo, "y1": slo,
            "line": {"color": colour, "width": 1.5, "dash": "dash"},
        }
    ]  # fmt: skip
    layout["annotations"] = [_label(f"SLO {slo:g} s", log10(slo) if log else slo, colour)]
    _add_capacities(data, theme, lines, layout)
    return {"data": lines, "layout": layout}


def _add_capacities(data: ChartData, theme: str, lines: list[dict[str, Any]], layout: Figure) -> None:
    """Add a row per policy below the p99 latency, on the same axis of loads."""
    policies = data.policies
    rows = ROW_HEIGHT * len(policies)
    share = rows / (rows + PLOT_HEIGHT)
    layout["yaxis2"] = {
        "domain": [0, share - 0.01], "range": [len(policies) - 0.5, -0.5], "showticklabels": False, "fixedrange": True,
        "showgrid": False, "zeroline": False, "title": {"text": ""},
    }  # fmt: skip
    layout["yaxis"] |= {"domain": [share + 0.14, 1]}
    layout["xaxis"] |= {"anchor": "y2"}
    layout["hovermode"] = "closest"
    layout["annotations"].append(
        {
            "text": f"<b>Capacity within {data.verdict.slo_p99_s:g} s, requests/s</b>", "xref": "paper", "x": 0,
            "xanchor": "left", "yref": "paper", "y": share, "yanchor": "bottom", "showarrow": False,
            "font": {"color": INK[theme], "size": 12},
        }
    )  # fmt: skip
    for at, policy in enumerate(policies):
        if policy in data.capacities:
            _add_capacity(at, policy, data, theme, lines, layout)


def _add_capacity(
    at: int, policy: str, data: ChartData, theme: str, lines: list[dict[str, Any]], layout: Figure
) -> None:
    found, colour, look = data.capacities[policy], colour_of(policy, theme), look_of(policy)
    log, left, right = _ends(data.verdict.loads_rps)
    low = left if found.left else found.low
    high = found.high if found.high is not None else left
    if low is None:  # not run
        return
    filled = look.marker.removesuffix("-open")
    known = not (found.left or found.right)
    half = (found.half or 0.0) if known else 0.0
    loads = data.verdict.loads_rps
    side = "left" if found.right or (found.low or left) > (loads[0] + loads[-1]) / 2 else "right"
    if known:
        places = [(found.mean, filled)]
    else:
        # If seeds differ, a line connects the lowest and the highest capacity.
        places = [(low, f"{filled}-open" if found.left else filled)]
        if high != low:
            places.append((high, filled))
    sizes, label_at = [12.0] * len(places), 0 if side == "left" else len(places) - 1
    if half and (end := found.mean + (half if side == "right" else -half)) > 0:
        # The text is beyond the interval, at a point without a marker.
        places.append((end, filled))
        sizes.append(0.0)
        label_at = 1
    x, symbols = zip(*places, strict=True)
    name, text = policy_name(policy), escape(spaced_bounds(found.text))
    lines.append(
        {
            "type": "scatter", "mode": "lines+markers+text", "x": list(x), "y": [at] * len(x), "yaxis": "y2",
            "name": name, "showlegend": False, "cliponaxis": False,
            "error_x": {"type": "data", "array": [half] + [0.0] * (len(x) - 1), "color": colour, "thickness": 1.2,
                        "width": 4},
            "line": {"color": colour, "width": 2}, "textfont": {"color": INK[theme], "size": 12},
            "marker": {"symbol": list(symbols), "size": sizes, "color": colour, "opacity": 1,
                       "line": {"color": colour, "width": 0 if known else 2}},
            "text": [f"\u00a0{name} {text}\u00a0" if i == label_at else "" for i in range(len(x))],
            "textposition": f"middle {side}",
            "hovertemplate": f"{escape(name)}: {text} requests/s<extra></extra>",
        }
    )  # fmt: skip
    if found.right:
        to, start = (log10(right), log10(high)) if log else (right, high)
        layout["annotations"].append(
            {
                "x": to, "y": at, "ax": start, "ay": at, "xref": "x", "yref": "y2", "axref": "x", "ayref": "y2",
                "text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1.2, "arrowwidth": 2, "arrowcolor": colour,
            }
        )  # fmt: skip


def _above_zero(line: dict[str, Any]) -> dict[str, Any]:
    """Lower ends of intervals for a logarithmic axis: at least a hundredth of the mean."""
    lower = [min(half, 0.99 * mean) for half, mean in zip(line["error_y"]["array"], line["y"], strict=True)]
    return {"symmetric": False, "arrayminus": lower}


def _label(text: str, y: float, colour: str) -> dict[str, Any]:
    return {
        "text": text, "xref": "paper", "x": 1, "xanchor": "right", "y": y, "yanchor": "bottom",
        "showarrow": False, "font": {"color": colour, "size": 12},
    }  # fmt: skip
