"""Charts of pages.

`{% plan_charts "scripts" %}` is one part of a Dash app, placed by the page. `{% sweep_figure ... as figure %}` and
`{% share_curve_figure ... as figure %}` make one figure for `parts/figure.html`; `js/figures.js` draws it without Dash.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

from dashboards import live, plan, share_curve, sweep
from dashboards.mounting import EmbeddedDash

register = template.Library()
THEMES = ("light", "dark")


@register.simple_tag(takes_context=True)
def plan_charts(context: dict[str, Any], part: str) -> SafeString:
    """HTML of the css, app_entry, config, scripts or renderer of the charts of a plan."""
    return _part(context, plan.app, part)


@register.simple_tag(takes_context=True)
def live_charts(context: dict[str, Any], part: str) -> SafeString:
    """HTML of the css, app_entry, config, scripts or renderer of the charts of a fleet's live page."""
    return _part(context, live.app, part)


@register.simple_tag
def share_curve_figure(points: list[tuple[int, float]]) -> dict[str, Any] | None:
    """What the busiest keys carry; None without requests."""
    if not points:
        return None
    themes = {theme: share_curve.share_curve(points, theme) for theme in THEMES}
    return {"id": "share-curve", "words": share_curve.in_words(points), "themes": themes}


@register.simple_tag
def sweep_figure(
    points: list[dict[str, Any]], q_cap: float, censored: str, bound_s: float | None
) -> dict[str, Any] | None:
    """The load sweep of a calibration; None with fewer than two loads that have a latency.

    Parameters
    ----------
    points
        Points of the sweep.
    q_cap
        Load at the knee, requests/s.
    censored
        `left`, `right` or empty.
    bound_s
        Limit of the latency at the knee, s, if the method has one.

    Returns
    -------
    dict[str, Any] | None
        The figure in both themes with its text; None for fewer than two known points.
    """
    known = sweep.known_points(points)
    if not known:
        return None
    themes = {theme: sweep.sweep(known, q_cap, censored, bound_s, theme) for theme in THEMES}
    return {"id": "sweep", "words": sweep.in_words(known, q_cap, censored), "themes": themes}


def _part(context: dict[str, Any], app: EmbeddedDash, part: str) -> SafeString:
    """Build the parts once per request; a page has one app."""
    request = context["request"]
    if not hasattr(request, "chart_parts"):
        request.chart_parts = app.parts(str(request.csp_nonce))
    found: SafeString = request.chart_parts[part]
    return found
