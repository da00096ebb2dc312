"""The share of requests of the busiest keys, as inline SVG."""

from __future__ import annotations

import math

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 560, 220, 44, 10, 34


def share_curve(points: list[tuple[int, float]]) -> SafeString:
    """Cumulative share of requests (percent) against the rank of the key (logarithmic), busiest key first."""
    if not points:
        return format_html('<p class="note">All rates are zero.</p>')
    last = max(points[-1][0], 2)

    def x(rank: float) -> float:
        return round(LEFT + (WIDTH - LEFT - 12) * math.log(rank) / math.log(last), 1)

    def y(share: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)

    path = "M" + " L".join(f"{x(rank)},{y(share)}" for rank, share in points)
    across = format_html_join(
        "",
        '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" text-anchor="end">{}%</text>',
        ((LEFT, WIDTH - 12, y(s), y(s), LEFT - 6, y(s) + 4, round(100 * s)) for s in (0, 0.25, 0.5, 0.75, 1)),
    )
    ticks = [10**power for power in range(int(math.log10(last)) + 1)]
    down = format_html_join(
        "",
        '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" text-anchor="middle">{}</text>',
        ((x(t), x(t), y(1), y(0), x(t), HEIGHT - 18, f"{t:,}") for t in ticks),
    )
    half = next((rank for rank, share in points if share >= 0.5), last)
    return format_html(
        '<svg class="curve" viewBox="0 0 {} {}" role="img" aria-label="The busiest {} of {} keys carry half of the '
        'requests.">{}{}<path class="line" d="{}"/><text x="{}" y="{}" text-anchor="middle">busiest keys, by rank '
        "(log scale); share of requests</text></svg>",
        WIDTH, HEIGHT, f"{half:,}", f"{points[-1][0]:,}", across, down, path, (LEFT + WIDTH) // 2, HEIGHT - 3,
    )  # fmt: skip
