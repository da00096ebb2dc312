"""Filters and tags for numbers, times and states. The numbers are formatted by `planner.formatting`."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from planner import formatting
from planner.analysis.verdict import Difference, MeanOfSeeds
from planner.services.audit.events import label_of

register = template.Library()

# State or verdict -> (tone, sign). A badge always shows the word beside the sign.
_TONES: dict[str, tuple[str, str]] = {
    "pass": ("good", "✓"),
    "succeeded": ("good", "✓"),
    "approved": ("good", "✓"),
    "approve": ("good", "✓"),
    "active": ("good", "●"),
    "up": ("good", "●"),
    "fail": ("bad", "✗"),
    "failed": ("bad", "✗"),
    "errored": ("bad", "✗"),
    "rejected": ("bad", "✗"),
    "reject": ("bad", "✗"),
    "rolled_back": ("bad", "↩"),
    "aborted": ("bad", "✗"),
    "down": ("bad", "✗"),
    "missing": ("warn", "○"),
    "within": ("good", "✓"),
    "left": ("bad", "✗"),
    "silent": ("warn", "…"),
    "waived": ("bad", "✗"),
    "in force": ("bad", "✗"),
    "requested": ("warn", "◔"),
    "withdrawn": ("bad", "↩"),
    "expired": ("bad", "✗"),
    "other evidence": ("warn", "!"),
    "approver is now the submitter": ("bad", "✗"),
    "approver lost the role": ("bad", "✗"),
    "in_review": ("warn", "◔"),
    "canary": ("warn", "◔"),
    "draining": ("warn", "↓"),
    "simulated": ("warn", "≈"),
    "queued": ("busy", "…"),
    "building": ("busy", "…"),
    "running": ("busy", "…"),
    "scheduled": ("busy", "◔"),
    "frozen": ("warn", "!"),
    "paused": ("warn", "‖"),
    "inconclusive": ("warn", "?"),
    "error": ("bad", "✗"),
    "replaying": ("busy", "…"),
}
# Stored states that are not written as people read them, with what a badge shows.
_LABELS = {"left": "out of range"}


# How much of a stored change a page shows; the API returns all of it.
SHOWN_ENTRIES, SHOWN_CHARS = 20, 500


@register.filter
def compact(value: Any) -> str:
    """A stored change as JSON; long lists, maps and texts are cut."""
    return json.dumps(_cut(value), ensure_ascii=False)


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= SHOWN_CHARS else f"{value[:SHOWN_CHARS]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        shown = {name: _cut(item) for name, item in list(value.items())[:SHOWN_ENTRIES]}
        return shown | {"…": f"{len(value) - SHOWN_ENTRIES:,} more"} if len(value) > SHOWN_ENTRIES else shown
    if isinstance(value, list):
        shown_items = [_cut(item) for item in value[:SHOWN_ENTRIES]]
        more = [f"… {len(value) - SHOWN_ENTRIES:,} more"] if len(value) > SHOWN_ENTRIES else []
        return shown_items + more
    return value


@register.filter
def num(value: Any, digits: int = 3) -> str:
    """A number to `digits` significant digits."""
    return formatting.number(value, digits)


@register.filter
def pct(value: float | None, decimals: int = 1) -> str:
    """A share as a percentage."""
    return formatting.percentage(value, decimals)


@register.filter
def times(value: float | None, factor: float) -> float | None:
    """A number times a factor; None stays None."""
    return None if value is None else factor * value


@register.filter
def bounds(text: str) -> str:
    """A text with `≥ 240` in place of a stored `>=240`."""
    return formatting.spaced_bounds(text)


@register.filter
def interval(value: MeanOfSeeds | Difference | None, unit: str = "") -> str:
    """Mean ± half width of a 95% interval; `%` as the unit turns shares into percentages."""
    return formatting.interval(value.mean, value.half, unit) if value else formatting.UNKNOWN


@register.filter
def signed(value: Difference | None, unit: str = "") -> str:
    """A difference with its sign and interval; `%` gives percentage points."""
    return formatting.signed(value.mean, value.half, unit) if value else formatting.UNKNOWN


@register.filter
def certain(value: Difference | None) -> SafeString:
    """Whether the interval of a difference excludes zero: at this load, and also over all loads."""
    if not value or not value.excludes_zero:
        return mark_safe('<span class="certain"></span>')  # of the same width, so that numbers stay aligned
    together = value.excludes_zero_all_loads
    mark, title = ("●●", "over all loads") if together else ("●", "at this load")
    return format_html('<span class="certain" title="excludes zero, {}">{}</span>', title, mark)


@register.filter
def size(value: int) -> str:
    """Bytes in binary units."""
    return formatting.size(value)


@register.filter
def span(seconds: float | None) -> str:
    """A length of time in s, min, h or days."""
    return formatting.span(seconds)


@register.filter
def span_about(seconds: float | None) -> str:
    """An estimated length of time in whole s, min, h or days."""
    return formatting.span_about(seconds)


@register.filter
def when(value: dt.datetime | None) -> SafeString | str:
    """A moment in UTC, as a `time` element."""
    if value is None:
        return formatting.UNKNOWN
    return format_html('<time datetime="{}">{}</time>', value.isoformat(), f"{value:%Y-%m-%d %H:%M:%S} UTC")


@register.filter
def day(moment: str) -> str:
    """The day and minute of a stored moment (ISO 8601, UTC)."""
    return f"{moment[:16].replace('T', ' ')} UTC"


@register.filter
def plain(value: Any) -> str:
    """A stored value as people write it."""
    return formatting.plain(value)


@register.filter
def words(action: str) -> str:
    """The name of an audit action."""
    return label_of(action)


@register.filter
def of(mapping: dict[str, Any], key: Any) -> Any:
    """One entry of a mapping."""
    return mapping.get(key)


@register.filter
def short(digest: str) -> str:
    """The first twelve digits of a digest."""
    return digest[:12]


@register.simple_tag
def badge(state: str, label: str = "") -> SafeString:
    """A state as a badge: a sign, the word, and the colour of both."""
    tone, sign = _TONES.get(state, ("calm", "·"))
    return format_html(
        '<span class="tag tag-{}"><span aria-hidden="true">{}</span> {}</span>',
        tone,
        sign,
        label or _LABELS.get(state) or state.replace("_", " "),
    )


@register.inclusion_tag("parts/simulated.html")
def simulated(what: str) -> dict[str, str]:
    """The label of every simulated figure, with the thing that was simulated."""
    return {"what": what}
