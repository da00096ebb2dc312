"""`{% plan_charts "scripts" %}`: one part of a Dash app, placed by the page."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

from dashboards import live, plan
from dashboards.mounting import EmbeddedDash

register = template.Library()


@register.simple_tag(takes_context=True)
def plan_charts(context: dict[str, Any], part: str) -> SafeString:
    """HTML of the css, app_entry, config, scripts or renderer of the charts of a plan."""
    return _part(context, plan.app, part)


@register.simple_tag(takes_context=True)
def live_charts(context: dict[str, Any], part: str) -> SafeString:
    """HTML of the css, app_entry, config, scripts or renderer of the charts of a fleet's live page."""
    return _part(context, live.app, part)


def _part(context: dict[str, Any], app: EmbeddedDash, part: str) -> SafeString:
    """Build the parts once per request; a page has one app."""
    request = context["request"]
    if not hasattr(request, "chart_parts"):
        request.chart_parts = app.parts(str(request.csp_nonce))
    found: SafeString = request.chart_parts[part]
    return found
