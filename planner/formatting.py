"""Numbers in words: rounded to significant digits, with units, without an exponent where a plain number is readable."""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "UNKNOWN",
    "give_or_take",
    "interval",
    "keys_share",
    "number",
    "percentage",
    "plain",
    "rounded",
    "signed",
    "size",
    "spaced_bounds",
    "span",
    "span_about",
]

UNKNOWN = "–"
_BOUND_RE = re.compile(r"(>=|<=|[<>≥≤])\s*(?=\d)")
_SIGNS = {">=": "≥", "<=": "≤"}


def rounded(value: float, digits: int = 3) -> str:
    """Return a number with its significant digits: 490, not 4.9e+02."""
    text = f"{float(f'{value:.{digits}g}'):.12f}".rstrip("0").rstrip(".")
    return text if text not in ("", "-0", "0") or value == 0 else f"{value:.{digits}g}"


def give_or_take(mean: float, half: float | None) -> str:
    """Return a mean with the half width of its interval, if it has one."""
    return rounded(mean) if half is None else f"{rounded(mean)} ± {rounded(half, 2)}"


def number(value: Any, digits: int = 3) -> str:
    """A number to `digits` significant digits, with thousands separators; a dash where it is unknown."""
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    magnitude = abs(value)
    if magnitude >= 10**digits:
        return f"{value:,.0f}"
    if magnitude and magnitude < 1e-4:
        return f"{value:.{digits - 1}e}"
    text = f"{float(f'{value:.{digits}g}'):.12f}".rstrip("0").rstrip(".")
    return text or "0"


def plain(value: Any) -> str:
    """A stored value as people write it: numbers with separators, lists with commas, yes and no."""
    if isinstance(value, list):
        return ", ".join(plain(item) for item in value)
    return number(value, 6) if isinstance(value, int | float) or value is None else str(value)


def percentage(share: float | None, decimals: int = 1) -> str:
    """A share as a percentage; a dash where it is unknown."""
    return UNKNOWN if share is None else f"{100 * share:.{decimals}f}%"


def keys_share(weight: float) -> str:
    """A share of keys in percent, to three significant digits: a first step may be below 1%."""
    return f"{100 * weight:.3g}%"


def interval(mean: float | None, half: float | None, unit: str = "") -> str:
    """A mean with the half width of its 95% interval.

    Parameters
    ----------
    mean
        The mean; a dash is returned where it is unknown.
    half
        Half the width of the interval; None where there is no interval.
    unit
        Unit behind the number. With `%`, `mean` and `half` are shares and are shown as percentages.

    Returns
    -------
    str
        Such as `4.69 ± 0.12 s`.
    """
    if mean is None:
        return UNKNOWN
    scale = 100.0 if unit == "%" else 1.0
    text = f"{mean * scale:.1f}" if unit == "%" else number(mean)
    return f"{text}{_half(half, scale, unit)} {unit}".strip()


def signed(mean: float | None, half: float | None, unit: str = "") -> str:
    """A difference with its sign and the half width of its 95% interval.

    Parameters
    ----------
    mean
        The mean difference; a dash is returned where it is unknown.
    half
        Half the width of the interval; None where there is no interval.
    unit
        Unit behind the number. With `%`, `mean` and `half` are shares and are shown as percentage points.

    Returns
    -------
    str
        Such as `−0.42 ± 0.05 s` or `+3.1 points`.
    """
    if mean is None:
        return UNKNOWN
    scale = 100.0 if unit == "%" else 1.0
    value = mean * scale
    text = ("+" if value >= 0 else "−") + (f"{abs(value):.1f}" if unit == "%" else number(abs(value)))
    return f"{text}{_half(half, scale, unit)} {'points' if unit == '%' else unit}".strip()


def _half(half: float | None, scale: float, unit: str) -> str:
    if half is None:
        return ""
    return f" ± {half * scale:.1f}" if unit == "%" else f" ± {number(half * scale, 2)}"


def size(count: int) -> str:
    """A number of bytes in binary units."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit always returns")


def span(seconds: float | None) -> str:
    """A length of time to three significant digits, in s, min, h or days."""
    if seconds is None:
        return UNKNOWN
    value, unit = _in_unit(seconds)
    return f"{number(value)} {unit}"


def span_about(seconds: float | None) -> str:
    """A length of time in whole s, min, h or days, for estimates: 49.9 s is `50 s`."""
    if seconds is None:
        return UNKNOWN
    value, unit = _in_unit(seconds)
    return f"{value:.0f} {unit}"


def _in_unit(seconds: float) -> tuple[float, str]:
    for limit, divisor, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return seconds / divisor, unit
    return seconds / 86_400, "days"


def spaced_bounds(text: str) -> str:
    """A text with its bounds as people write them: `≥ 240` for a stored `>=240`, `< 60` for `<60`."""
    return _BOUND_RE.sub(lambda found: f"{_SIGNS.get(found[1], found[1])} ", text)
