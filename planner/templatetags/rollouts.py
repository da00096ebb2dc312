"""Words of rollouts."""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def keys_share(weight: float) -> str:
    """A share of keys in per cent, to three digits: a first step may be below one."""
    return f"{100 * weight:.3g}%"
