"""`{% plan_charts as charts %}`: the parts of the plan's Dash app, for the page to place."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

from dashboards.plan import app

register = template.Library()


@register.simple_tag(takes_context=True)
def plan_charts(context: dict[str, Any]) -> dict[str, SafeString]:
    """HTML of the app's entry, configuration and scripts."""
    return app.parts(str(context["request"].csp_nonce))
