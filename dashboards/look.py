"""Style of charts: one colour, dash and marker per policy, the same on all charts, in light and dark."""

from __future__ import annotations

from typing import Any, NamedTuple


class PolicyLook(NamedTuple):
    """Colour on light and dark ground (contrast at least 3:1), dash and marker. Colour is never the only difference."""

    light: str
    dark: str
    dash: str
    marker: str


LOOKS: dict[str, PolicyLook] = {
    "cacheroute": PolicyLook("#0b62c4", "#5aa9ff", "solid", "circle"),
    "flat-lb": PolicyLook("#5b6675", "#a9b4c2", "dash", "square"),
    "sticky": PolicyLook("#b45309", "#f0a04b", "dot", "diamond"),
    "chwbl": PolicyLook("#7c3aed", "#b79bff", "dashdot", "triangle-up"),
    "dualmap": PolicyLook("#0f766e", "#3ecdbb", "longdash", "cross"),
    "preble": PolicyLook("#be185d", "#ff7fb6", "longdashdot", "x"),
    "preble-50": PolicyLook("#86198f", "#f0abfc", "dash", "triangle-down"),
    "round-robin": PolicyLook("#52525b", "#d4d4d8", "dot", "star"),
    "random": PolicyLook("#78716c", "#d6d3d1", "dashdot", "hexagon"),
    "least-outstanding": PolicyLook("#4d7c0f", "#a3e635", "longdash", "pentagon"),
    "hash": PolicyLook("#854d0e", "#facc15", "longdashdot", "bowtie"),
}
# Styles of other plans in the replay, by plan number.
OTHER_PLANS = (
    PolicyLook("#0369a1", "#7dd3fc", "dot", "circle-open"),
    PolicyLook("#1d4ed8", "#93c5fd", "dashdot", "circle-dot"),
    PolicyLook("#155e75", "#67e8f9", "longdash", "circle-cross"),
)
OTHER = PolicyLook("#52525b", "#d4d4d8", "dot", "star")
INK = {"light": "#1f2733", "dark": "#e4e8ee"}
FAINT = {"light": "#d9dee5", "dark": "#343c48"}
LIMIT = {"light": "#b42318", "dark": "#ff8a7a"}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


def look_of(policy: str) -> PolicyLook:
    """The style of a policy, or of another plan (``cacheroute@3``)."""
    base, _, plan = policy.partition("@")
    return OTHER_PLANS[int(plan) % len(OTHER_PLANS)] if plan.isdecimal() else LOOKS.get(base, OTHER)


def colour_of(policy: str, theme: str) -> str:
    """The colour of a policy in a theme."""
    look = look_of(policy)
    return look.dark if theme == "dark" else look.light


def frame(theme: str, *, x_title: str, y_title: str) -> dict[str, Any]:
    """The common layout of charts: transparent ground, faint grid, legend on top.

    Parameters
    ----------
    theme
        `light` or `dark`.
    x_title
        Title of the x axis.
    y_title
        Title of the y axis.

    Returns
    -------
    dict[str, Any]
        The layout.
    """
    axis = {
        "gridcolor": FAINT[theme],
        "linecolor": FAINT[theme],
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
        "tickcolor": FAINT[theme],
    }
    return {
        "margin": {"l": 48, "r": 12, "t": 40, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": INK[theme]},
        "legend": {
            "orientation": "h",
            # Relative to the container: a narrow first drawing has more legend rows.
            "yref": "container",
            "x": 0,
            "y": 0.995,
            "yanchor": "top",
            "xanchor": "left",
            "traceorder": "reversed",
        },
        "xaxis": {**axis, "title": {"text": x_title}},
        "yaxis": {**axis, "title": {"text": y_title}},
        "hovermode": "x unified",
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
    }
