"""The shape of a rate vector: the concentration of the load on few keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["RateShape", "gini", "rate_shape"]


@dataclass(frozen=True)
class RateShape:
    """Concentration of key rates.

    Attributes
    ----------
    keys, active_keys : int
        Keys in the vector, and keys with a rate above 0.
    total_rps : float
        Requests/s of all keys.
    gini : float
        0 when all keys are equal, near 1 when one key has the whole rate.
    top_4pct_share : float
        Share of the rate on the busiest 4% of keys (their number rounded up).
    largest_share : float
        Share of the rate on the busiest key.
    keys_for_half, keys_for_90pct : int
        Fewest keys that carry half and nine tenths of the rate.
    """

    keys: int
    active_keys: int
    total_rps: float
    gini: float
    top_4pct_share: float
    largest_share: float
    keys_for_half: int
    keys_for_90pct: int

    def as_dict(self) -> dict[str, float | int]:
        """Return every field as plain JSON-able values."""
        return asdict(self)


def gini(rates: ArrayLike) -> float:
    """Return the Gini coefficient of key rates.

    Half the relative mean absolute difference, over all keys, those with rate 0 included. An empty or
    all-zero vector has no concentration: 0.0.

    Parameters
    ----------
    rates : float64[B]
        Finite, >= 0.

    Raises
    ------
    ValueError
        Naming the first bad index.
    """
    return _gini(np.sort(_rates(rates)))


def rate_shape(rates: ArrayLike) -> RateShape:
    """Describe the concentration of key rates; all shares are 0.0 when the total is 0.

    Parameters
    ----------
    rates : float64[B]
        Requests/s of each key, finite, >= 0.

    Raises
    ------
    ValueError
        Naming the first bad index.
    """
    ascending = np.sort(_rates(rates))
    top = float(ascending[-1]) if len(ascending) else 0.0
    shares = ascending[::-1] / top if top > 0 else ascending[::-1]  # scaled: rates near 1e300 do not overflow
    carried = np.cumsum(shares)
    total = float(carried[-1]) if top > 0 else 1.0
    head = ceil(0.04 * len(ascending))
    return RateShape(
        keys=len(ascending),
        active_keys=int(np.count_nonzero(ascending)),
        total_rps=float(ascending.sum()),
        gini=_gini(ascending),
        top_4pct_share=float(carried[head - 1]) / total if head else 0.0,
        largest_share=float(shares[0]) / total if len(shares) else 0.0,
        keys_for_half=_keys_for(carried, 0.5 * total) if top > 0 else 0,
        keys_for_90pct=_keys_for(carried, 0.9 * total) if top > 0 else 0,
    )


def _keys_for(carried: NDArray[np.float64], amount: float) -> int:
    return int(np.searchsorted(carried, amount, side="left")) + 1


def _gini(ascending: NDArray[np.float64]) -> float:
    n = len(ascending)
    if n == 0 or ascending[-1] == 0:
        return 0.0
    scaled = ascending / ascending[-1]
    rank = np.arange(1, n + 1)
    return max(0.0, float(((2 * rank - n - 1) * scaled).sum() / (n * scaled.sum())))


def _rates(values: ArrayLike) -> NDArray[np.float64]:
    rates = np.asarray(values, dtype=np.float64)
    if rates.ndim != 1:
        raise ValueError(f"rates: expected shape (n,), got {rates.shape}")
    bad = ~(np.isfinite(rates) & (rates >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"rates[{at}] = {rates[at]}: expected a finite number >= 0")
    return rates
