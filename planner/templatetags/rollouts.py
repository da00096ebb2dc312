"""Filters for rollouts."""

from __future__ import annotations

from django import template

from planner import formatting

register = template.Library()


@register.filter
def keys_share(weight: float) -> str:
    """A share of keys in percent."""
    return formatting.keys_share(weight)
