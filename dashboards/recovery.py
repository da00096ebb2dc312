"""Hit rate over the time of a replay, with its faults and switches."""

from __future__ import annotations

from html import escape
from typing import Any

from dashboards.look import FAINT, INK, LIMIT, colour_of, frame, look_of
from planner.analysis.verdict import Curve, EventsAtLoad
from planner.selectors.plans.page import ChartData
from planner.selectors.replays.policy_names import policy_name

Figure = dict[str, Any]


def recovery(data: ChartData, theme: str, load_rps: float | None) -> Figure | None:
    """Token-weighted hit rate over time at a load, all seeds together.

    Events are dashed lines with a number, which the note explains. The warm-up is shaded.

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
        The figure; None without a fault or switch.
    """
    rows = {p: row for p in data.policies for row in _events(data, p, load_rps)}
    if not rows:
        return None
    layout = frame(theme, x_title="time of arrival, s", y_title="hit rate, %")
    layout["yaxis"]["range"] = [0, 103]
    lines = [_curve(policy, row.curve, theme) for policy, row in reversed(rows.items())]
    warm = max(row.curve.warmup_s for row in rows.values())
    layout["shapes"] = [
        {
            "type": "rect", "x0": 0, "x1": warm, "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0},
            "fillcolor": FAINT[theme], "opacity": 0.45, "layer": "below",
        }
    ]  # fmt: skip
    layout["annotations"] = []
    if warm:
        layout["annotations"].append(_note("warm-up", 0, theme) | {"xanchor": "left"})
    for number, (at_s, _) in enumerate(moments(data, load_rps), start=1):
        layout["shapes"].append(
            {
                "type": "line", "x0": at_s, "x1": at_s, "yref": "paper", "y0": 0, "y1": 1,
                "line": {"color": LIMIT[theme], "width": 1.5, "dash": "dash"},
            }
        )  # fmt: skip
        layout["annotations"].append(_note(str(number), at_s, theme) | {"font": {"color": LIMIT[theme], "size": 12}})
    return {"data": lines, "layout": layout}


def moments(data: ChartData, load_rps: float | None) -> list[tuple[float, str]]:
    """Times and names of the faults and switches at a load, of all policies, in order of time."""
    found: dict[str, float] = {}
    for policy in data.policies:
        labels = data.events.get(policy, [])
        for row in _events(data, policy, load_rps):
            for at, dip in enumerate(row.dips):
                found.setdefault(labels[at] if at < len(labels) else f"event {at + 1}", dip.at_s)
    return sorted((at_s, label) for label, at_s in found.items())


def _events(data: ChartData, policy: str, load_rps: float | None) -> list[EventsAtLoad]:
    rows = () if data.verdict is None else data.verdict.events_of(policy)
    return [row for row in rows if row.load_rps == load_rps]


def _curve(policy: str, curve: Curve, theme: str) -> dict[str, Any]:
    look, colour, width = look_of(policy), colour_of(policy, theme), curve.width_s
    pairs = list(zip(curve.cached_tokens, curve.prompt_tokens, strict=True))
    return {
        "type": "scatter", "mode": "lines", "name": escape(policy_name(policy)),
        "x": [(at + 0.5) * width for at in range(len(pairs))],
        "y": [100 * cached / prompt if prompt else None for cached, prompt in pairs],  # a gap without requests
        "line": {"color": colour, "dash": look.dash, "width": 2},
        "hovertemplate": "%{y:.1f}%",
    }  # fmt: skip


def _note(text: str, x: float, theme: str) -> dict[str, Any]:
    return {
        "text": text, "x": x, "xanchor": "left", "yref": "paper", "y": 0, "yanchor": "bottom", "showarrow": False,
        "font": {"color": INK[theme], "size": 12},
    }  # fmt: skip
