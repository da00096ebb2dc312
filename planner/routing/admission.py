"""The admission policies: eq. 3 of arXiv 2608.19677, density, and the exact knapsack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from planner.routing.knapsack import Knapsack, best_by_search, best_by_slots
from planner.routing.ranking import as_float, exact_sum, top_indices
from planner.routing.tenants import NO_LIMIT, tenant_limits

__all__ = ["ADMISSIONS", "Admission", "admit", "fractional_bound"]

ADMISSIONS = ("top_rate", "density", "exact")

_LARGEST = float(np.finfo(np.float64).max)
_LEAST_NORMAL = float(np.finfo(np.float64).tiny)
# For millions of keys the rounding error of a float64 sum stays below this share of the sum.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Admission:
    """Result of an admission policy.

    Attributes
    ----------
    admitted : int64[A]
        Key indices, ascending.
    order : int64[B]
        All keys in the order in which the policy takes them, ties on the lower index.
    reserved : int64[F]
        Admitted keys whose slots the floor of a tenant reserved, ascending.
    unit : {"rate", "slot", "token"}
        Sort criterion of the order: the rate, or the value per slot or per token.
    """

    admitted: NDArray[np.int64]
    order: NDArray[np.int64]
    reserved: NDArray[np.int64]
    unit: str


@dataclass
class _State:
    """Keys taken so far, and the limits; ``cost`` is empty when tokens do not count."""

    sizes: NDArray[np.int64]
    cost: NDArray[np.float64]
    tenants: NDArray[np.int64]
    quota: NDArray[np.int64]
    slots: int
    token_budget: float
    taken: NDArray[np.bool_]
    tenant_used: NDArray[np.int64]
    used: int = 0
    tokens_used: float = 0.0

    def take(self, order: NDArray[np.int64], limit: NDArray[np.int64]) -> None:
        """Take keys in order; skip a key that does not fit the budgets or the limit of its tenant."""
        self.used, self.tokens_used = _take(
            *(order, self.sizes, self.cost, self.tenants, limit, self.slots, self.token_budget),
            *(self.taken, self.tenant_used, self.used, self.tokens_used),
        )

    def with_keys(self, keys: NDArray[np.int64]) -> _State:
        """Return a copy that takes keys that are known to fit together."""
        state = self.copy()
        state.taken[keys] = True
        state.used += int(self.sizes[keys].sum())
        if len(self.tenants):
            np.add.at(state.tenant_used, self.tenants[keys], self.sizes[keys])
        if len(self.cost):
            state.tokens_used += float(self.cost[keys].sum())
        return state

    def copy(self) -> _State:
        copied = _State(**vars(self))
        copied.taken, copied.tenant_used = self.taken.copy(), self.tenant_used.copy()
        return copied


@njit(cache=True, nogil=True)
def _take(
    order: NDArray[np.int64],
    sizes: NDArray[np.int64],
    cost: NDArray[np.float64],
    tenants: NDArray[np.int64],
    limit: NDArray[np.int64],
    slots: int,
    token_budget: float,
    taken: NDArray[np.bool_],
    tenant_used: NDArray[np.int64],
    used: int,
    tokens_used: float,
) -> tuple[int, float]:
    for key in order:
        if used == slots:  # each key takes at least one slot
            break
        if taken[key] or sizes[key] > slots - used:
            continue
        if len(tenants) and sizes[key] > limit[tenants[key]] - tenant_used[tenants[key]]:
            continue
        if len(cost):
            if tokens_used + cost[key] > token_budget:
                continue
            tokens_used += cost[key]
        if len(tenants):
            tenant_used[tenants[key]] += sizes[key]
        used += sizes[key]
        taken[key] = True
    return used, tokens_used


def admit(
    policy: str,
    *,
    rates: NDArray[np.float64],
    sizes: NDArray[np.int64],
    values: NDArray[np.float64],
    slots: int,
    slot_tokens: NDArray[np.float64] | None = None,
    token_budget: float | None = None,
    tenants: ArrayLike | None = None,
    tenant_quota: ArrayLike | None = None,
    tenant_floor: ArrayLike | None = None,
) -> Admission:
    """Choose the keys to keep warm within the budgets of slots, of KV tokens and of each tenant.

    Floors come first: for each tenant, the keys with demand (rate > 0) that fit within its floor, in the order of the
    policy. The policy then fills the remaining slots:

    ``top_rate``
        In descending rate; a key that does not fit is skipped, and a later key may still fit (eq. 3).
    ``density``
        The same in descending value per unit of budget: per slot (``k``); with a token budget also per token
        (``k * slot_tokens``), and the order that admits more value wins (ties: per token). A key without cost comes
        first, a key without value last. Where one key that fits has more value than all keys so taken, that key
        comes first. With one budget and no quotas the result therefore has at least half of the highest value that
        any admission reaches.
    ``exact``
        A set of the highest value, a 0/1 knapsack; `best_by_slots` and `best_by_search` state how they resolve ties.
        Keys that still fit, such as keys of value 0, are then added in the order of density.

    Equal input gives equal output. Cost of the first two: O(B log B).

    Parameters
    ----------
    policy : {"top_rate", "density", "exact"}
        The admission policy.
    rates, values : float64[B]
        Requests/s of each key, and the saving of its warm prefix (tokens/s, or requests/s).
    sizes : int64[B]
        Slots k_b that each key takes, at least 1.
    slots : int
        Budget of ``sum(sizes)``.
    slot_tokens : float64[B], optional
        KV tokens of one warm copy; used only with ``token_budget``.
    token_budget : float, optional
        KV tokens of the whole fleet. This function does not check whether a key fits on single destinations.
    tenants : int64[B], optional
        Tenant of each key, >= 0.
    tenant_quota, tenant_floor : int64[T], optional
        Maximum slots of a tenant (-1: no limit), and slots reserved for it.

    Returns
    -------
    Admission
        The admitted keys, and the order of the policy.

    Raises
    ------
    ValueError
        For an unknown policy, for tenant arrays that do not agree (naming argument, index and value), and for
        ``exact`` when the problem is too large.
    """
    if policy not in ADMISSIONS:
        raise ValueError(f"admission = {policy!r}: expected one of {', '.join(ADMISSIONS)}")
    tenant_of, quota, floor = tenant_limits(tenants, tenant_quota, tenant_floor, len(rates), slots)
    cost = np.zeros(0) if token_budget is None else _token_cost(sizes, slot_tokens)
    unit = "rate" if policy == "top_rate" else "slot" if token_budget is None else "token"
    order = (
        top_indices(rates)
        if policy == "top_rate"
        else _by_density(values, cost if len(cost) else sizes.astype(np.float64))
    )
    state = _State(
        *(sizes, cost, tenant_of, quota, slots, np.inf if token_budget is None else token_budget),
        taken=np.zeros(len(rates), dtype=bool),
        tenant_used=np.zeros(len(quota), dtype=np.int64),
    )
    if floor.any():
        state.take(order[rates[order] > 0], floor)
    reserved = np.flatnonzero(state.taken)
    if policy != "top_rate":
        # Scaled by a power of two: sums of values do not overflow, and their last bits do not change.
        start = state.copy()
        scaled = np.where(_fits(start), values, 0.0)
        scaled = np.ldexp(scaled, -int(np.frexp(scaled.max(initial=0.0))[1]))
        state, order = _with_best_single(start, order, scaled, quota)
        if unit == "token":
            # It is not known in advance which limit binds: the other order may admit more value.
            other, by_slot = _with_best_single(start, _by_density(values, sizes.astype(np.float64)), scaled, quota)
            if exact_sum(scaled[other.taken & ~start.taken]) > exact_sum(scaled[state.taken & ~start.taken]):
                state, order, unit = other, by_slot, "slot"
        if policy == "exact":
            state = _exact(start, state, scaled)
            state.take(order, quota)
    else:
        state.take(order, quota)
    return Admission(np.flatnonzero(state.taken), order, reserved, unit)


def _with_best_single(
    start: _State, order: NDArray[np.int64], values: NDArray[np.float64], quota: NDArray[np.int64]
) -> tuple[_State, NDArray[np.int64]]:
    """Run the greedy choice in the order, or with the best single key first where that key alone has more value."""
    greedy = start.copy()
    greedy.take(order, quota)
    fits = np.flatnonzero(_fits(start))
    if len(fits) == 0:
        return greedy, order
    single = fits[np.argmax(values[fits])]
    if values[single] <= as_float(exact_sum(values[greedy.taken & ~start.taken])):
        return greedy, order
    order = np.concatenate(([single], order[order != single]))
    greedy = start.copy()
    greedy.take(order, quota)
    return greedy, order


def _fits(state: _State) -> NDArray[np.bool_]:
    """Return whether each key is not taken and fits alone."""
    fits = ~state.taken & (state.sizes <= state.slots - state.used)
    if len(state.tenants):
        fits &= state.sizes <= (state.quota - state.tenant_used)[state.tenants]
    if len(state.cost):
        fits &= state.tokens_used + state.cost <= state.token_budget
    return fits


def _exact(start: _State, greedy: _State, values: NDArray[np.float64]) -> _State:
    """Return the best set beside the keys that floors took; the greedy set where no set beats it."""
    keys = np.flatnonzero(_fits(start) & (values > 0))
    if len(keys) == 0:
        return start
    slots = start.slots - start.used
    if len(start.tenants):
        tenants, room = start.tenants[keys], start.quota - start.tenant_used
    else:
        tenants, room = np.zeros(len(keys), dtype=np.int64), np.array([NO_LIMIT])
    problem = Knapsack(
        values=values[keys],
        sizes=start.sizes[keys],
        slots=slots,
        tenants=tenants,
        room=np.minimum(room, np.maximum(slots, 1)),
        cost=start.cost[keys] if len(start.cost) else start.cost,
        tokens_used=start.tokens_used,
        token_budget=start.token_budget,
    )
    if start.tokens_used + float(problem.cost.sum()) <= start.token_budget:  # without tokens: 0 within infinity
        found = best_by_slots(problem)
    else:
        better = best_by_search(problem, as_float(exact_sum(values[greedy.taken & ~start.taken])))
        if better is None:
            return greedy
        found = better
    return start.with_keys(keys[found])


def fractional_bound(
    *,
    values: NDArray[np.float64],
    sizes: NDArray[np.int64],
    slots: int,
    slot_tokens: NDArray[np.float64] | None = None,
    token_budget: float | None = None,
) -> float:
    """Return an upper bound of the value of every admission, the fractional knapsack bound.

    For each budget alone, slots and tokens, it is the value of the keys that fit alone, the last key in part; the
    result is the lower of both. It is raised by one part in 10**12, so that no float64 sum of an admissible set is
    above it. Quotas and floors of tenants only lower the value that can be reached. Cost: O(B + S log S) for S slots
    without a token budget, else O(B log B).

    Parameters
    ----------
    values, sizes, slots, slot_tokens, token_budget
        As in `admit`.

    Returns
    -------
    float
        In the unit of ``values``.
    """
    fits = sizes <= slots
    cost = None
    if token_budget is not None:
        cost = _token_cost(sizes, slot_tokens)
        fits &= cost <= token_budget
    keys = np.flatnonzero(fits & (values > 0))
    if len(keys) == 0:
        return 0.0
    exponent = int(np.frexp(values[keys].max())[1])
    worth = np.ldexp(values[keys], -exponent)
    each = sizes[keys].astype(np.float64)
    best = top_indices(worth / each, slots)  # each key takes at least one slot
    bound = _fractional(worth[best], each[best], float(slots))
    if cost is not None and token_budget is not None:
        bound = min(bound, _fractional(worth, cost[keys], token_budget))
    with np.errstate(over="ignore"):
        return float(np.ldexp(bound * (1.0 + _ROUNDING), exponent))


def _fractional(values: NDArray[np.float64], cost: NDArray[np.float64], budget: float) -> float:
    """Return the value of a fractional knapsack: keys in descending value per cost, the last key in part."""
    with np.errstate(all="ignore"):
        density = values / cost  # an overflow or underflow costs precision below 1e-300
    density[cost == 0] = np.inf
    order = top_indices(density)
    spent = np.cumsum(cost[order])
    whole = int(np.searchsorted(spent, budget, side="right"))
    total = as_float(exact_sum(values[order[:whole]]))
    if whole < len(order):
        left = budget - (float(spent[whole - 1]) if whole else 0.0)
        total += float(values[order[whole]] * (left / cost[order[whole]]))
    return total


def _token_cost(sizes: NDArray[np.int64], slot_tokens: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the tokens of all copies of each key."""
    if slot_tokens is None:
        raise ValueError("token_budget needs slot_tokens, the KV tokens of one copy of each key")
    with np.errstate(over="ignore"):
        return np.minimum(sizes * slot_tokens, _LARGEST)


def _by_density(values: NDArray[np.float64], cost: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return indices by descending value / cost; keys without cost first, without value last, ties on the lower index.

    Rates from 1e-300 to 1e300 may occur in one table. Where a quotient would overflow or lose digits, mantissas and
    exponents are divided and compared separately.
    """
    worth = values > 0
    free = worth & (cost == 0)
    with np.errstate(all="ignore"):
        density = values / cost
    density[free] = np.inf
    density[~worth] = 0.0
    if not (worth & ~free & ((density < _LEAST_NORMAL) | np.isinf(density))).any():
        return top_indices(density)
    mantissa, exponent = np.frexp(values)
    cost_mantissa, cost_exponent = np.frexp(np.where(cost > 0, cost, 1.0))
    quotient, carry = np.frexp(mantissa / cost_mantissa)
    power = exponent.astype(np.int64) - cost_exponent + carry
    quotient[free | ~worth] = 0.0
    power[free], power[~worth] = 10_000, -10_000
    return np.lexsort((-quotient, -power))
