"""The load sweep of a calibration as inline SVG: p50, p95 and p99 against load, with knee and censored range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from planner.formatting import number

SERIES = ("p50_s", "p95_s", "p99_s")
LEFT, RIGHT, TOP, BOTTOM = 46, 34, 36, 38
# Pixels between the names of two series at the ends of their lines.
APART = 13
SIZES = {"wide": (640, 300), "narrow": (350, 290)}


def sweep_chart(
    points: Sequence[dict[str, Any]], q_cap: float, censored: str, bound_s: float | None = None
) -> SafeString | None:
    """Latency in seconds (logarithmic) against load in requests/s, for wide and narrow pages; None without a sweep.

    The knee is a line at ``q_cap``; where it is censored, the range of possible loads is shaded.
    """
    known = [p for p in points if _positive(p.get("load_rps")) and any(_positive(p.get(name)) for name in SERIES)]
    if len(known) < 2:
        return None
    known.sort(key=lambda p: p["load_rps"])
    return format_html_join("", "{}", ((_draw(known, q_cap, censored, bound_s, kind),) for kind in SIZES))


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _draw(points: list[dict[str, Any]], q_cap: float, censored: str, bound_s: float | None, kind: str) -> SafeString:
    width, height = SIZES[kind]
    values = [p[name] for p in points for name in SERIES if _positive(p.get(name))]
    if bound_s is not None and _positive(bound_s):
        values.append(bound_s)
    low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
    most = max(points[-1]["load_rps"], q_cap) * 1.02

    def x(load: float) -> float:
        return round(LEFT + (width - LEFT - RIGHT) * load / most, 1)

    def y(seconds: float) -> float:
        return round(TOP + (height - TOP - BOTTOM) * (high - math.log10(seconds)) / (high - low), 1)

    floor, ceiling = height - BOTTOM, TOP
    across = format_html_join(
        "",
        '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" text-anchor="end">{}</text>',
        ((LEFT, width - RIGHT, y(t), y(t), LEFT - 6, y(t) + 4, number(t)) for t in _ticks(low, high)),
    )
    down = format_html_join(
        "",
        '<text x="{}" y="{}" text-anchor="middle">{}</text>',
        ((x(t), floor + 16, number(t)) for t in _steps(most, 4 if kind == "narrow" else 8)),
    )
    ends = _ends(points, y)
    lines = format_html_join("", "{}", ((_line(points, name, x, y, ends[name]),) for name in ends))
    bound: SafeString | str = ""
    if bound_s is not None and _positive(bound_s):
        bound = format_html(
            '<line class="bound" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}">{} s</text>',
            LEFT, width - RIGHT, y(bound_s), y(bound_s), LEFT + 4, y(bound_s) - 4, number(bound_s),
        )  # fmt: skip
    return format_html(
        '<svg class="curve sweep only-{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}{}{}{}'
        '<text x="{}" y="{}" text-anchor="middle">load of one destination, requests/s</text>'
        '<text x="4" y="12">latency, s (log scale)</text></svg>',
        kind, width, height, _said(points, q_cap, censored), _shade(x, q_cap, censored, width, floor, ceiling),
        across, down, bound, lines, _knee(x, q_cap, censored, width, floor, ceiling), (LEFT + width - RIGHT) // 2,
        height - 4,
    )  # fmt: skip


def _ends(points: list[dict[str, Any]], y: Any) -> dict[str, float]:
    """Position of the name of each series: at its last point, without overlap."""
    last = {name: [p[name] for p in points if _positive(p.get(name))] for name in SERIES}
    found: dict[str, float] = {}
    for name in sorted((n for n in SERIES if last[n]), key=lambda n: -last[n][-1]):  # from the top down
        lowest = max(found.values(), default=-APART) + APART
        found[name] = max(y(last[name][-1]) + 4, lowest)
    return found


def _line(points: list[dict[str, Any]], name: str, x: Any, y: Any, label_y: float) -> SafeString:
    there = [(x(p["load_rps"]), y(p[name])) for p in points if _positive(p.get(name))]
    short = name.removesuffix("_s")
    dots = format_html_join("", '<circle class="{}" cx="{}" cy="{}" r="2.5"/>', ((short, *at) for at in there))
    path = "M" + " L".join(f"{a},{b}" for a, b in there)
    return format_html(
        '<path class="line {}" d="{}"/>{}<text class="{}" x="{}" y="{}">{}</text>',
        short, path, dots, short, there[-1][0] + 5, label_y, short,
    )  # fmt: skip


def _shade(x: Any, q_cap: float, censored: str, width: int, floor: int, ceiling: int) -> SafeString | str:
    if not censored:
        return ""
    start, end = (LEFT, x(q_cap)) if censored == "left" else (x(q_cap), width - RIGHT)
    # At the highest load there is no space to the right: the shade extends into the margin.
    end = max(end, start + 14)
    return format_html(
        '<rect class="censored" x="{}" y="{}" width="{}" height="{}"/>',
        start, ceiling, round(end - start, 1), floor - ceiling,
    )  # fmt: skip


def _knee(x: Any, q_cap: float, censored: str, width: int, floor: int, ceiling: int) -> SafeString:
    at = x(q_cap)
    sign = {"left": "< ", "right": "≥ "}.get(censored, "")
    anchor = "end" if at > width * 0.6 else "start"
    return format_html(
        '<line class="knee" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        '<text class="knee-label" x="{}" y="{}" text-anchor="{}">q_cap {}{}/s</text>',
        at, at, ceiling - 3, floor, at, ceiling - 7, anchor, sign, number(q_cap, 4),
    )  # fmt: skip


def _said(points: list[dict[str, Any]], q_cap: float, censored: str) -> str:
    """The chart as a sentence."""
    knee = {"left": "below", "right": "at or above"}.get(censored, "at")
    first, last = points[0], points[-1]
    tail = ""
    if _positive(first.get("p99_s")) and _positive(last.get("p99_s")):
        tail = f" p99 goes from {number(first['p99_s'])} to {number(last['p99_s'])} s."
    return (
        f"{len(points)} loads from {number(first['load_rps'])} to {number(last['load_rps'])} requests/s."
        f"{tail} The knee lies {knee} {number(q_cap, 4)} requests/s."
    )


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade between two logarithms; only the decades where these are too many."""
    found = [
        digit * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for digit in (1, 2, 5)
        if low <= math.log10(digit * 10.0**power) <= high
    ]
    decades = [t for t in found if math.isclose(math.log10(t), round(math.log10(t)))]
    return found if len(found) <= 8 or len(decades) < 2 else decades


def _steps(most: float, wanted: int) -> list[float]:
    """About `wanted` round values from 0 up."""
    raw = most / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= raw * 0.999)
    return [step * n for n in range(int(most / step) + 1)]
