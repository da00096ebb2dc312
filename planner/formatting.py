"""Numbers in words: rounded, and never with an exponent."""

from __future__ import annotations

__all__ = ["give_or_take", "rounded"]


def rounded(value: float, digits: int = 3) -> str:
    """Significant digits of a number as people write it: 490, not 4.9e+02."""
    text = f"{float(f'{value:.{digits}g}'):.12f}".rstrip("0").rstrip(".")
    return text if text not in ("", "-0", "0") or value == 0 else f"{value:.{digits}g}"


def give_or_take(mean: float, half: float | None) -> str:
    """A mean with the half width of its interval, where it has one."""
    return rounded(mean) if half is None else f"{rounded(mean)} ± {rounded(half, 2)}"
