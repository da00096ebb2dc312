"""Algorithm 1 of CacheRoute (arXiv 2608.19677): size, admit, place; then the N-1 table of the result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.admission import admit, fractional_bound
from planner.routing.backups import plan_losses
from planner.routing.kernels import admit_in_order, max_over_mean, place_lpt
from planner.routing.places import Places, refill
from planner.routing.problem import Problem
from planner.routing.ranking import as_float, exact_sum, top_indices
from planner.routing.table import RoutingTable

__all__ = ["Assignment", "assign", "build_table", "finish", "replicas_needed"]


def replicas_needed(rates: NDArray[np.float64], q_cap: float, most: int) -> NDArray[np.int64]:
    """Return ``k_b = max(1, ceil(rate_b / q_cap))`` (eq. 2), counted no further than ``most``.

    k is the smallest whole number with ``k * q_cap >= rate`` in float64, so a rate that was computed as
    ``3 * q_cap`` gives 3 although the float quotient may lie on either side of 3.

    Returns
    -------
    int64[B] in ``[1, most]``.
    """
    sizes = np.ones(len(rates), dtype=np.int64)
    several = np.flatnonzero(rates > q_cap)  # few: the rest needs no arithmetic
    large = rates[several]
    with np.errstate(over="ignore"):
        k = np.maximum(np.minimum(np.ceil(large / q_cap), most), 1.0)  # a quotient may overflow
        k = np.where((k > 1) & ((k - 1) * q_cap >= large), k - 1, k)
        k = np.where((k < most) & (k * q_cap < large), k + 1, k)
    sizes[several] = k
    return sizes


def build_table(
    rates: ArrayLike,
    *,
    destinations: int,
    q_cap: float,
    slots: int,
    cold_load: ArrayLike | None = None,
    prefix_tokens: ArrayLike | None = None,
    admission: str = "top_rate",
    balance_target: float | None = None,
    capacity: ArrayLike | None = None,
    available: ArrayLike | None = None,
    slot_tokens: ArrayLike | None = None,
    token_budget: ArrayLike | None = None,
    tenants: ArrayLike | None = None,
    tenant_quota: ArrayLike | None = None,
    tenant_floor: ArrayLike | None = None,
) -> RoutingTable:
    """Build a routing table from measured key rates.

    1. *Size*: ``k_b = max(1, ceil(rate_b / q_cap))`` (eq. 2), clamped to the destinations that are available
       and flagged in ``cannot_fit``.
    2. *Admit*: in the order of the policy while ``used + k_b <= slots``; a key that does not fit is skipped and
       a later, smaller one may still fit (eq. 3).
    3. *Place*: in descending rate, each key on its ``k_b`` least-loaded distinct destinations, which take
       ``rate_b / k_b`` each on top of the cold load (LPT). Where capacities differ, least-loaded means that
       ``(load + share) / capacity`` ends lowest.
    4. *Back up*: each key gets a destination for the time when its own are lost (`backups.plan_losses`).

    All ties break on the lower index, and sums do not depend on the order of the keys, so equal inputs give
    equal tables on every machine, and so do shuffled ones.

    Cost: O(B + M log M + sum k_b log R) where M keys can be admitted; of the others nothing is sorted.

    Parameters
    ----------
    rates : float64[B]
        Requests/s of each key, finite, >= 0.
    destinations : int
        R, at least 1.
    q_cap : float
        Requests/s that one destination of capacity 1 serves before its p99 takes off; above 0.
    slots : int
        Warm prefix slots of the whole fleet, C = R * W; at least 0.
    cold_load : float64[R], optional
        Expected requests/s of not-admitted traffic on each destination. By default the rate of all keys
        that were not admitted, spread in proportion to capacity, which is what Flat-LB does with it.
    prefix_tokens : float64[B], optional
        Prefill tokens that the warm prefix of each key saves a request. The value of a key is then
        ``rate * prefix_tokens``, else ``rate``.
    admission : {"top_rate", "density", "exact"}
        The paper's rule; or by value per unit of the budget; or the 0/1 knapsack itself (small inputs).
    balance_target : float, optional
        At least 1. Raises k_b beyond eq. 2 where one key's share ``rate_b / k_b`` alone would exceed
        ``balance_target`` times the mean load of a destination of capacity 1.
    capacity : float64[R], optional
        Relative speed of each destination, from 1e-6 to 1e6; default 1.
    available : bool[R], optional
        False for a destination that takes nothing (draining or down); default all True.
    slot_tokens : float64[B], optional
        KV tokens that one warm copy of each key occupies; default ``prefix_tokens``.
    token_budget : float or float64[R], optional
        KV tokens that each destination may keep warm; a constraint beside ``slots``.
    tenants : int64[B], optional
        Tenant index of each key, >= 0.
    tenant_quota, tenant_floor : int64[T], optional
        The most slots that the keys of a tenant may take (-1: no limit), and the slots that are filled with its
        keys before all others.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    problem = Problem.checked(
        rates,
        destinations=destinations,
        q_cap=q_cap,
        slots=slots,
        cold_load=cold_load,
        prefix_tokens=prefix_tokens,
        admission=admission,
        balance_target=balance_target,
        capacity=capacity,
        available=available,
        slot_tokens=slot_tokens,
        token_budget=token_budget,
        tenants=tenants,
        tenant_quota=tenant_quota,
        tenant_floor=tenant_floor,
    )
    return finish(problem, assign(problem))


@dataclass(frozen=True)
class Assignment:
    """What Algorithm 1 decides, before backups and figures: the same arrays as in `RoutingTable`."""

    admitted: NDArray[np.int64]
    rates: NDArray[np.float64]  # of the admitted keys, descending
    offsets: NDArray[np.int64]
    replicas: NDArray[np.int64]
    members: NDArray[np.int32]
    load: NDArray[np.float64]
    cold: NDArray[np.float64]  # the part of `load` that is not planned
    cannot_fit: NDArray[np.int64]
    value_bound: float | None  # None: everything is admitted, so the bound is reached


def assign(problem: Problem) -> Assignment:
    """Size, admit and place."""
    simple = problem.admission == "top_rate" and problem.room is None and problem.tenants is None
    limit, ceiling, most = _limits(problem)
    if simple:
        # Only keys with k > 1 can be skipped, so no others than these and the `slots` largest can get a slot.
        several = int(np.count_nonzero(problem.rates > min(limit, ceiling)))
        keys = top_indices(problem.rates, several + problem.budget)
        wanted, sizes = _sizes(problem.rates[keys], limit, ceiling, most)
        taken = admit_in_order(keys, sizes, min(problem.budget, int(sizes.sum())))
        admitted, replicas = keys[taken], sizes[taken]
        order = keys
        cannot_fit = np.sort(keys[wanted > most])
    else:
        wanted, sizes = _sizes(problem.rates, limit, ceiling, most)
        chosen = admit(
            problem.admission,
            rates=problem.rates,
            sizes=sizes,
            values=_values(problem),
            slots=problem.budget,
            slot_tokens=problem.slot_tokens,
            token_budget=None if problem.room is None else float(problem.room[problem.available].sum()),
            tenants=problem.tenants,
            tenant_quota=problem.tenant_quota,
            tenant_floor=problem.tenant_floor,
        )
        admitted = chosen.admitted[top_indices(problem.rates[chosen.admitted])]
        replicas, order = sizes[admitted], chosen.order
        cannot_fit = np.flatnonzero(wanted > most)
    bound = None if len(admitted) == len(problem.rates) else _bound(problem, sizes, keys if simple else None)

    admitted_rates = problem.rates[admitted]
    offsets = _offsets(replicas)
    cold = _cold(problem, admitted_rates)
    load = cold.copy()
    if problem.room is None and problem.is_uniform:
        members = place_lpt(admitted_rates, offsets, problem.available, load)
    else:
        places = Places.of(problem, load)
        kept, members = places.place(problem, admitted, replicas)
        if not kept.all():
            admitted, replicas, members = refill(
                problem, places, sizes, order, admitted[kept], admitted[~kept], members
            )
            admitted_rates, offsets = problem.rates[admitted], _offsets(replicas)
        load = places.load
        if problem.cold_load is None and not kept.all():  # a key that fits on no destination is cold too
            planned, cold = load - cold, _cold(problem, admitted_rates)
            load = planned + cold
    return Assignment(admitted, admitted_rates, offsets, replicas, members, load, cold, cannot_fit, bound)


def finish(problem: Problem, plan: Assignment) -> RoutingTable:
    """Back up each key, and give the plan its figures."""
    backup, after_loss = plan_losses(
        plan.rates, plan.offsets, plan.members, problem.available, problem.capacity, plan.cold, plan.load
    )
    value = plan.rates if problem.prefix_tokens is None else plan.rates * problem.prefix_tokens[plan.admitted]
    admitted_value = float(value.sum())
    tenant_slots, tenant_rate = _by_tenant(problem, plan)
    return RoutingTable(
        admitted=plan.admitted,
        offsets=plan.offsets,
        members=plan.members,
        replicas=plan.replicas,
        load=plan.load,
        imbalance=float(max_over_mean(plan.load, problem.capacity, problem.available)),
        slots_used=int(plan.offsets[-1]),
        admitted_rate=float(plan.rates.sum()),
        backup=backup,
        destinations=problem.destinations,
        q_cap=problem.q_cap,
        slots=problem.slots,
        cannot_fit=plan.cannot_fit,
        total_rate=problem.total_rate,
        keys=len(problem.rates),
        warm_tokens=None
        if problem.slot_tokens is None
        else float((plan.replicas * problem.slot_tokens[plan.admitted]).sum()),
        capacity=problem.capacity,
        available=problem.available,
        after_loss=after_loss,
        admission=problem.admission,
        admitted_value=admitted_value,
        value_bound=admitted_value if plan.value_bound is None else max(plan.value_bound, admitted_value),
        tenant_slots=tenant_slots,
        tenant_rate=tenant_rate,
    )


def _limits(problem: Problem) -> tuple[float, float, int]:
    """Requests/s above which eq. 2 and the balance target ask for a second destination; and how many there are."""
    ceiling = np.inf
    if problem.balance_target is not None and problem.exact_total:
        per_capacity = problem.total_rate / float(problem.capacity[problem.available].sum())
        ceiling = problem.balance_target * per_capacity
        if ceiling == 0.0:  # underflow: as if there were no load
            ceiling = np.inf
    return problem.q_cap, ceiling, int(problem.available.sum())


def _sizes(
    rates: NDArray[np.float64], q_cap: float, ceiling: float, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """k of each key as eq. 2 wants it, counted to ``most + 1``; and as it is planned."""
    wanted = replicas_needed(rates, q_cap, most + 1)
    sizes = np.minimum(wanted, most)
    if ceiling < np.inf:
        sizes = np.maximum(sizes, replicas_needed(rates, ceiling, most))
    return wanted, sizes


def _values(problem: Problem) -> NDArray[np.float64]:
    if problem.prefix_tokens is None:
        return problem.rates
    with np.errstate(over="ignore"):
        values = problem.rates * problem.prefix_tokens
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"prefix_tokens[{at}] = {problem.prefix_tokens[at]}: times its rate this overflows")
    return values


def _bound(problem: Problem, sizes: NDArray[np.int64], keys: NDArray[np.int64] | None) -> float:
    """The fractional bound; ``keys``, when given, are the ones that ``sizes`` are of and that can matter."""
    values = _values(problem)
    tokens = problem.slot_tokens
    if keys is not None:
        if problem.prefix_tokens is None:
            values = values[keys]
        else:  # the most valuable keys need not be among those of the highest rates
            sizes = _sizes(problem.rates, *_limits(problem))[1]
    return fractional_bound(
        values=values,
        sizes=sizes,
        slots=problem.budget,
        slot_tokens=None if problem.room is None else tokens,
        token_budget=None if problem.room is None else float(problem.room[problem.available].sum()),
    )


def _cold(problem: Problem, admitted_rates: NDArray[np.float64]) -> NDArray[np.float64]:
    if problem.cold_load is not None:
        return problem.cold_load.copy()
    speeds = np.where(problem.available, problem.capacity, 0.0)
    left = as_float(problem.exact_total - exact_sum(admitted_rates))
    return left * (speeds / speeds.sum())


def _offsets(replicas: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(replicas) + 1, dtype=np.int64)
    np.cumsum(replicas, out=offsets[1:])
    return offsets


def _by_tenant(problem: Problem, plan: Assignment) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if problem.tenants is None:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    given = [len(v) for v in (problem.tenant_quota, problem.tenant_floor) if v is not None]
    count = max([*given, int(problem.tenants.max(initial=-1)) + 1])
    owner = problem.tenants[plan.admitted]
    slots = np.bincount(owner, weights=plan.replicas, minlength=count).astype(np.int64)
    return slots, np.bincount(owner, weights=plan.rates, minlength=count).astype(np.float64)
