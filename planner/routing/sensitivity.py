"""Sensitivity of a plan to wrong inputs: warm slots, q_cap and skew, varied together.

The paper (arXiv 2608.19677) varies q_cap where every k_b is 1, so that no plan changes, and varies the share of the
busiest key at one fixed q_cap. With both q_cap and skew varied, k_b exceeds 1 and a wrong q_cap costs slots or balance.
This module runs that experiment on plans; the effect on latency needs a replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.build import build_table
from planner.routing.problem import PlanOptions
from planner.routing.table import RoutingTable
from planner.routing.validation import positive, rate_vector, whole

__all__ = ["FACTORS", "HEAD_SHARES", "Setting", "raise_head", "sensitivity"]

FACTORS = (0.75, 0.9, 1.0, 1.1, 1.25)
HEAD_SHARES = (None, 0.05, 0.15, 0.25, 0.45)  # None: rates as measured; then the shares of the paper


@dataclass(frozen=True)
class Setting:
    """One plan of the study.

    Attributes
    ----------
    head_share : float or None
        Requested share of all requests of the busiest key; None for the rates as measured.
    held_share : float
        Share of the busiest key in the rates of this plan; 0 without load.
    head_left : bool
        Whether the busiest key already had ``head_share``, so that the rates are as measured.
    w_factor, q_cap_factor : float
        Factors on the given slots and q_cap.
    slots, q_cap : int, float
        The product: slots rounded down to a whole number, q_cap in requests/s.
    admitted : int
        Admitted keys.
    admitted_share : float
        Their share of all requests; 1.0 when there is no load.
    imbalance : float
        Max/mean load of the destinations, see `RoutingTable`.
    worst_loss : float
        The highest imbalance after the loss of one destination.
    slots_used : int
        Warm slots taken.
    replicated : int
        Admitted keys on more than one destination.
    largest_k : int
        Highest k of an admitted key; 0 when none is admitted.
    cannot_fit : int
        Keys that need more destinations than are available.
    churn_keys : float
        The base is the plan at both factors 1 for the same head share. This is the share of its admitted keys that
        lose a destination that they still need, or are no longer admitted, when this plan replaces it. Each plan is
        from scratch: this is the cost of a wrong input without `replan`.
    churn_rate : float
        The same by rate: requests/s of these shares and keys, over those of all admitted keys of the base.
    """

    head_share: float | None
    held_share: float
    head_left: bool
    w_factor: float
    q_cap_factor: float
    slots: int
    q_cap: float
    admitted: int
    admitted_share: float
    imbalance: float
    worst_loss: float
    slots_used: int
    replicated: int
    largest_k: int
    cannot_fit: int
    churn_keys: float
    churn_rate: float


def raise_head(rates: ArrayLike, share: float) -> tuple[NDArray[np.float64], bool]:
    """Raise the busiest key to a share of the unchanged total; scale all other keys in proportion.

    Parameters
    ----------
    rates : float64[B]
        Requests/s.
    share : float
        Above 0, below 1.

    Returns
    -------
    rates : float64[B]
        A new array.
    raised : bool
        False where the key (the first of equal keys) has that share already, or without load: the rates are then
        as given.
    """
    vector = rate_vector("rates", rates).copy()
    if not 0 < positive("share", share) < 1:
        raise ValueError(f"share = {share}: expected a number above 0 and below 1")
    total = float(vector.sum())
    head = int(np.argmax(vector)) if total > 0 else -1
    if head < 0 or vector[head] >= share * total:
        return vector, False
    others = np.arange(len(vector)) != head
    vector[others] *= (1.0 - share) * (total / float(vector[others].sum()))
    vector[head] = share * total
    return vector, True


def sensitivity(
    rates: ArrayLike,
    *,
    destinations: int,
    q_cap: float,
    slots: int,
    factors: Sequence[float] = FACTORS,
    head_shares: Sequence[float | None] = HEAD_SHARES,
    **options: Unpack[PlanOptions],
) -> list[Setting]:
    """Plan for every combination of a head share, a factor on slots (W) and a factor on q_cap.

    Parameters
    ----------
    rates, destinations, q_cap, slots
        As in `build_table`.
    factors : sequence of float
        For slots and q_cap, above 0, distinct; 1.0, the base, among them. Slots are rounded down; the factor counts
        as a decimal number (0.29 of 100 is 29).
    head_shares : sequence of float or None
        Shares of the busiest key above 0 and below 1, see `raise_head`; None for the rates as measured.
    **options
        Further arguments of `build_table`, the same for every plan. The floors of tenants must fit the lowest slots.

    Returns
    -------
    list of Setting
        By head share, then factor on slots, then factor on q_cap, in the given order;
        ``len(head_shares) * len(factors) ** 2`` plans.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    vector = rate_vector("rates", rates)
    cap = positive("q_cap", q_cap)
    budget = whole("slots", slots, 0)
    scales = [positive(f"factors[{at}]", factor) for at, factor in enumerate(factors)]
    if 1.0 not in scales:
        raise ValueError(f"factors = {tuple(scales)}: 1.0, the base of the comparison, is missing")
    if len(set(scales)) < len(scales):
        raise ValueError(f"factors = {tuple(scales)}: each may be given once")
    for at, share in enumerate(head_shares):
        if share is not None and positive(f"head_shares[{at}]", share) >= 1.0:
            raise ValueError(f"head_shares[{at}] = {share}: expected a number below 1")

    settings = []
    for share in head_shares:
        skewed, raised = (vector, False) if share is None else raise_head(vector, share)
        left = share is not None and not raised

        def plan(w: float, q: float, of: NDArray[np.float64] = skewed) -> RoutingTable:
            fewer = int(budget * Fraction(repr(w)))
            return build_table(of, destinations=destinations, q_cap=cap * q, slots=fewer, **options)

        base = plan(1.0, 1.0)
        for w in scales:
            for q in scales:
                table = base if w == q == 1.0 else plan(w, q)
                settings.append(_setting(table, base, skewed, share, left, w, q))
    return settings


def _setting(
    table: RoutingTable,
    base: RoutingTable,
    rates: NDArray[np.float64],
    share: float | None,
    left: bool,
    w_factor: float,
    q_cap_factor: float,
) -> Setting:
    lost = _lost_members(table, base)
    lost_rate = float((lost * (rates[table.admitted] / np.maximum(table.replicas, 1))).sum())
    cooled = base.admitted[table.row[base.admitted] < 0]
    return Setting(
        head_share=share,
        held_share=float(rates.max()) / table.total_rate if table.total_rate > 0 else 0.0,
        head_left=left,
        w_factor=w_factor,
        q_cap_factor=q_cap_factor,
        slots=table.slots,
        q_cap=table.q_cap,
        admitted=len(table.admitted),
        admitted_share=table.admitted_rate / table.total_rate if table.total_rate > 0 else 1.0,
        imbalance=table.imbalance,
        worst_loss=table.worst_loss,
        slots_used=table.slots_used,
        replicated=int(np.count_nonzero(table.replicas > 1)),
        largest_k=int(table.replicas.max(initial=0)),
        cannot_fit=len(table.cannot_fit),
        churn_keys=(np.count_nonzero(lost) + len(cooled)) / len(base.admitted) if len(base.admitted) else 0.0,
        churn_rate=(lost_rate + float(rates[cooled].sum())) / base.admitted_rate if base.admitted_rate > 0 else 0.0,
    )


def _lost_members(table: RoutingTable, base: RoutingTable) -> NDArray[np.int64]:
    """Count the destinations of the base that each admitted key lost but still needs, as `replan` counts."""

    def pairs(of: RoutingTable) -> NDArray[np.int64]:
        return np.repeat(of.admitted, of.replicas) * of.destinations + of.members

    kept = np.isin(pairs(table), pairs(base), assume_unique=True)
    rows = np.repeat(np.arange(len(table.admitted)), table.replicas)
    row = base.row[table.admitted]
    before = np.zeros(len(table.admitted), dtype=np.int64)
    before[row >= 0] = base.replicas[row[row >= 0]]
    return np.minimum(table.replicas, before) - np.bincount(rows[kept], minlength=len(before))
