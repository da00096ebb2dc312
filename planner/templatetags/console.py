"""Words and numbers as pages show them: units beside every figure, a sign and a word beside every colour."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from planner.analysis.verdict import Difference, MeanOfSeeds
from planner.services.audit.events import ACTIONS

register = template.Library()

# State or verdict -> (tone, sign). The word itself is always written beside the sign.
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
    "asked for": ("warn", "◔"),
    "withdrawn": ("bad", "↩"),
    "expired": ("bad", "✗"),
    "for other evidence": ("warn", "!"),
    "by who submitted it since": ("bad", "✗"),
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
NOT_KNOWN = "–"


def number(value: Any, digits: int = 3) -> str:
    """A number to `digits` significant digits, with thousands separators; a dash where it is not known."""
    if value is None or value == "":
        return NOT_KNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size >= 10**digits:
        return f"{value:,.0f}"
    if size and size < 1e-4:
        return f"{value:.{digits - 1}e}"
    text = f"{float(f'{value:.{digits}g}'):.12f}".rstrip("0").rstrip(".")
    return text or "0"


# What of a stored change a page shows; the API has all of it.
SHOWN_ENTRIES, SHOWN_CHARS = 20, 500


@register.filter
def compact(value: Any) -> str:
    """A stored change as JSON, which people who read audit trails know; long lists, maps and texts are cut."""
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
    """`number` as a filter."""
    return number(value, digits)


@register.filter
def pct(value: float | None, decimals: int = 1) -> str:
    """A share as a percentage."""
    return NOT_KNOWN if value is None else f"{100 * value:.{decimals}f}%"


@register.filter
def interval(value: MeanOfSeeds | Difference | None, unit: str = "") -> str:
    """Mean ± half-width of a 95% interval; `%` as the unit turns shares into percentages."""
    if not value or value.mean is None:
        return NOT_KNOWN
    scale = 100.0 if unit == "%" else 1.0
    mean = value.mean * scale
    text = f"{mean:.1f}" if unit == "%" else number(mean)
    return f"{text}{_half(value.half, scale, unit)} {unit}".strip()


def _half(half: float | None, scale: float, unit: str) -> str:
    if half is None:
        return ""
    return f" ± {half * scale:.1f}" if unit == "%" else f" ± {number(half * scale, 2)}"


@register.filter
def signed(value: Difference | None, unit: str = "") -> str:
    """A difference with its sign and interval; `%` gives percentage points."""
    if not value or value.mean is None:
        return NOT_KNOWN
    scale = 100.0 if unit == "%" else 1.0
    mean = value.mean * scale
    text = ("+" if mean >= 0 else "−") + (f"{abs(mean):.1f}" if unit == "%" else number(abs(mean)))
    return f"{text}{_half(value.half, scale, unit)} {'points' if unit == '%' else unit}".strip()


@register.filter
def certain(value: Difference | None) -> SafeString:
    """Whether the interval of a difference excludes zero: at this load alone, and with all loads looked at."""
    if not value or not value.excludes_zero:
        return mark_safe('<span class="certain"></span>')  # as wide, so that numbers stay in line
    together = value.excludes_zero_all_loads
    mark, title = ("●●", "all loads looked at together") if together else ("●", "at this load alone")
    return format_html('<span class="certain" title="excludes zero, {}">{}</span>', title, mark)


@register.filter
def size(value: int) -> str:
    """Bytes in binary units."""
    amount = float(value)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit always returns")


@register.filter
def span(seconds: float | None) -> str:
    """A length of time in the unit that suits it."""
    if seconds is None:
        return NOT_KNOWN
    for limit, divisor, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{number(seconds / divisor)} {unit}"
    return f"{number(seconds / 86_400)} days"


@register.filter
def when(value: dt.datetime | None) -> SafeString | str:
    """A moment in UTC, machine-readable too."""
    if value is None:
        return NOT_KNOWN
    return format_html('<time datetime="{}">{}</time>', value.isoformat(), f"{value:%Y-%m-%d %H:%M:%S} UTC")


@register.filter
def day(moment: str) -> str:
    """The day and minute of a stored moment (ISO 8601, UTC)."""
    return f"{moment[:16].replace('T', ' ')} UTC"


@register.filter
def plain(value: Any) -> str:
    """A stored value as people write it: numbers with separators, lists with commas, yes and no."""
    if isinstance(value, list):
        return ", ".join(plain(item) for item in value)
    return number(value, 6) if isinstance(value, int | float) or value is None else str(value)


@register.filter
def words(action: str) -> str:
    """What an audit action is called."""
    return ACTIONS.get(action, action)


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
        label or state.replace("_", " "),
    )


@register.inclusion_tag("parts/simulated.html")
def simulated(what: str) -> dict[str, str]:
    """The label that every simulated figure carries, saying what was simulated."""
    return {"what": what}
