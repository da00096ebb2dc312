"""`{% plan_charts "scripts" %}`: one part of the plan's Dash app, where the page wants it."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

from dashboards.plan import app

register = template.Library()


@register.simple_tag(takes_context=True)
def plan_charts(context: dict[str, Any], part: str) -> SafeString:
    """HTML of the app's css, app_entry, config, scripts or renderer; drawn up once a request."""
    request = context["request"]
    if not hasattr(request, "plan_charts"):
        request.plan_charts = app.parts(str(request.csp_nonce))
    found: SafeString = request.plan_charts[part]
    return found
