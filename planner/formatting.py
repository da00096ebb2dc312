"""Format numbers for people: rounded, without an exponent."""

from __future__ import annotations

__all__ = ["give_or_take", "rounded"]


def rounded(value: float, digits: int = 3) -> str:
    """Return a number with its significant digits: 490, not 4.9e+02."""
    text = f"{float(f'{value:.{digits}g}'):.12f}".rstrip("0").rstrip(".")
    return text if text not in ("", "-0", "0") or value == 0 else f"{value:.{digits}g}"


def give_or_take(mean: float, half: float | None) -> str:
    """Return a mean with the half width of its interval, if it has one."""
    return rounded(mean) if half is None else f"{rounded(mean)} ± {rounded(half, 2)}"
