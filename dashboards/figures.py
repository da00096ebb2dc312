"""Figures of destination loads and of the chain of hit rates at one load, as plain Plotly dicts."""

from __future__ import annotations

from html import escape
from typing import Any

from dashboards.look import FAINT, INK, colour_of, frame
from planner.selectors.plans.page import ChartData
from planner.selectors.replays.policy_names import CANDIDATE, policy_name

Figure = dict[str, Any]
# Pixels of one panel of the load bars, of its title, and of the gap below it.
PANEL_HEIGHT, TITLE_HEIGHT, GAP = 115, 22, 8
# Pixels of the axis of destinations below the panels.
AXIS_HEIGHT = 60
# Pixels of one bar of the chain, and of the other parts of the chart.
BAR_HEIGHT, CHAIN_EDGES = 40, 70


def load_bars(data: ChartData, theme: str, load_rps: float | None) -> Figure:
    """Load of each destination as a multiple of the mean, planned and replayed under each policy.

    The mean is the load per unit of speed times the speed of the destination. Each series has its own panel above
    the same destinations, so that 30 destinations stay readable on a phone.

    Parameters
    ----------
    data
        Data of the plan and the shown replay.
    theme
        `light` or `dark`.
    load_rps
        The replayed load in requests/s; None without a replay.

    Returns
    -------
    Figure
        The figure.
    """
    capacity = data.capacity
    unequal = len(set(capacity)) > 1
    panels = [("planned", "cacheroute", data.planned, data.planned_imbalance)]
    if data.verdict is not None:
        for policy in data.policies:
            rows = data.verdict.policies[policy].loads
            row = next((r for r in rows if r.load_rps == load_rps), None)
            if row is None:  # not run at this load
                continue
            counts = list(row.requests_per_destination)
            # The stored max/mean ignores the speeds of destinations.
            imbalance = max(_to_mean(counts, capacity)) if unequal else row.imbalance.mean
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
        title = "Planned, CacheRoute" if series == "planned" else f"Replayed, {policy_name(policy)}"
        pattern = {"shape": "/"} if series == "planned" else {}
        bars.append(
            {
                "type": "bar", "name": title, "x": [escape(name) for name in data.destinations],
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
    """Each load relative to the mean load of a destination of the same speed."""
    mean = sum(values) / sum(capacity) if values else 0.0
    return [value / (mean * speed) if mean else 0.0 for value, speed in zip(values, capacity, strict=True)]


def chain(data: ChartData, theme: str, load_rps: float | None) -> Figure | None:
    """Available, planned and delivered hit rate at a load.

    The bars of the candidate come first, each with the change from the bar before. The bars of the other policies
    follow, each with the difference from the candidate on the same arrivals.

    Parameters
    ----------
    data
        Data of the plan and the shown replay.
    theme
        `light` or `dark`.
    load_rps
        The replayed load in requests/s; None without a replay.

    Returns
    -------
    Figure | None
        The figure; None if the cells have no such figures.
    """
    at = {}
    for policy in data.policies if data.verdict is not None else ():
        for row in data.verdict.policies[policy].loads:
            if row.load_rps == load_rps and row.available:
                at[policy] = row
    if CANDIDATE not in at:
        return None
    mine = at[CANDIDATE]
    available, planned, delivered = (
        100 * mean.mean if (mean := mine.mean(name)) else None for name in ("available", "planned", "delivered")
    )
    grey, colour = "#64748b" if theme == "dark" else "#aab4c1", colour_of(CANDIDATE, theme)
    bars = [("Available", available, grey, "", "one cache without eviction")]
    if planned is not None:
        bars.append(("Planned", planned, colour, "/", f"{_signed(planned - available)}: keys without a warm slot"))
    before = available if planned is None else planned
    change = delivered - before
    bars.append((policy_name(CANDIDATE), delivered, colour, "", f"{_signed(change)} during serving"))
    for policy in data.policies:
        if policy in at and policy != CANDIDATE:
            value = 100 * at[policy].delivered.mean
            bars.append((policy_name(policy), value, colour_of(policy, theme), "", _signed(value - delivered)))
    layout = frame(theme, x_title="share of prompt tokens, %", y_title="")
    layout |= {"showlegend": False, "hovermode": "closest", "bargap": 0.3}
    layout["xaxis"]["range"] = [0, 100]
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "showticklabels": False, "ticks": ""}
    layout["margin"] |= {"l": 12, "t": 12}
    # Texts are above their bars, because a phone has no space beside them.
    layout["annotations"] = [
        {
            "text": f"<b>{escape(name)} {value:.1f}%</b>  {escape(note)}", "xref": "paper", "x": 0, "xanchor": "left",
            "y": name, "yshift": 15, "showarrow": False, "font": {"color": INK[theme], "size": 12},
        }
        for name, value, _, _, note in bars
    ]  # fmt: skip
    drawn = {
        "type": "bar", "orientation": "h", "x": [bar[1] for bar in bars], "y": [bar[0] for bar in bars], "width": 0.38,
        "marker": {"color": [bar[2] for bar in bars], "pattern": {"shape": [bar[3] for bar in bars]},
                   "line": {"width": 0}},
        "hovertemplate": "%{y}: %{x:.1f}%<extra></extra>",
    }  # fmt: skip
    return {"data": [drawn], "layout": layout}


def chain_height(figure: Figure) -> int:
    """Pixels of a chart of the chain."""
    return BAR_HEIGHT * len(figure["data"][0]["x"]) + CHAIN_EDGES


def _signed(points: float) -> str:
    size = f"{abs(points):.1f}"
    sign = "±" if float(size) == 0 else "+" if points > 0 else "−"
    return f"{sign}{size} points"
