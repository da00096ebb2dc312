"""Algorithm 1 of CacheRoute (arXiv 2608.19677): size, admit, place; then the N-1 table of the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.admission import admit, fractional_bound
from planner.routing.backups import plan_losses
from planner.routing.kernels import admit_in_order, max_over_mean, place_lpt
from planner.routing.places import Choice, Places, fill, offsets_of
from planner.routing.problem import PlanOptions, Problem
from planner.routing.ranking import as_float, exact_sum, top_indices
from planner.routing.table import RoutingTable

__all__ = [
    "Assignment",
    "assign",
    "balance_ceiling",
    "build_table",
    "choose",
    "cold_load",
    "finish",
    "plan_table",
    "replicas_needed",
]


def replicas_needed(rates: NDArray[np.float64], q_cap: float, most: int) -> NDArray[np.int64]:
    """Return ``k_b = max(1, ceil(rate_b / q_cap))`` (eq. 2), clipped to ``most``.

    k is the smallest whole number with ``k * q_cap >= rate`` in float64. So a rate that was computed as ``3 * q_cap``
    gives 3, although the float quotient may lie on either side of 3.

    Parameters
    ----------
    rates : float64[B]
        Requests/s of each key, finite, >= 0.
    q_cap : float
        Requests/s that one destination serves, above 0.
    most : int
        Upper limit of k, at least 1.

    Returns
    -------
    int64[B]
        k of each key, in ``[1, most]``.
    """
    sizes = np.ones(len(rates), dtype=np.int64)
    several = np.flatnonzero(rates > q_cap)  # few keys; all others need one destination
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
    **options: Unpack[PlanOptions],
) -> RoutingTable:
    """Build a routing table from measured key rates.

    1. *Size*: ``k_b = max(1, ceil(rate_b / q_cap))`` (eq. 2), clamped to the destinations that are available
       and listed in ``cannot_fit``.
    2. *Admit*: in the order of the policy while ``used + k_b <= slots``; a key that does not fit is skipped, and
       a later key with a smaller k may still fit (eq. 3).
    3. *Place*: in descending rate, each key goes to its ``k_b`` least-loaded distinct destinations, and each of
       these takes ``rate_b / k_b`` on top of the cold load (LPT). Where capacities differ, the least-loaded
       destination is the one where ``(load + share) / capacity`` ends lowest.
    4. *Back up*: each key gets a destination for the case that its own are lost (`backups.plan_losses`).

    All ties break on the lower index, and sums do not depend on the order of the keys, so equal inputs give
    equal tables on every machine, and so do shuffled ones.

    Cost: O(B + M log M + sum k_b log R) to place M keys; the other keys are not sorted. O(B log B + sum k_b R)
    where destinations differ or have a token budget. `backups.plan_losses` states the cost of the N-1 table.

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
        that were not admitted, spread in proportion to capacity, as Flat-LB spreads it.
    prefix_tokens : float64[B], optional
        Prefill tokens that the warm prefix of each key saves a request. The value of a key is then
        ``rate * prefix_tokens``, else ``rate``.
    admission : {"top_rate", "density", "exact"}
        The rule of the paper; value per unit of the budget; or the exact 0/1 knapsack (small inputs).
    balance_target : float, optional
        At least 1. Raises k_b beyond eq. 2 where the share ``rate_b / k_b`` of one key alone would exceed
        ``balance_target`` times the mean load of a destination of capacity 1. With a ``cold_load`` this mean counts
        the cold load and the ``slots`` highest rates.
    capacity : float64[R], optional
        Relative speed of each destination, from 1e-6 to 1e6; default 1.
    available : bool[R], optional
        False for a destination that takes no keys (draining or down); default all True.
    slot_tokens : float64[B], optional
        KV tokens that one warm copy of each key occupies; default ``prefix_tokens``.
    token_budget : float or float64[R], optional
        KV tokens that each destination may keep warm, in addition to the limit ``slots``.
    tenants : int64[B], optional
        Tenant index of each key, >= 0.
    tenant_quota, tenant_floor : int64[T], optional
        Maximum slots of the keys of a tenant (-1: no limit), and the slots that are filled with its keys before
        all other keys.

    Returns
    -------
    RoutingTable
        The table with its N-1 table and its figures.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    return plan_table(Problem.checked(rates, destinations=destinations, q_cap=q_cap, slots=slots, **options))


def plan_table(problem: Problem) -> RoutingTable:
    """Return the routing table of a checked problem, as `build_table` describes."""
    return finish(problem, assign(problem))


@dataclass(frozen=True)
class Assignment:
    """Result of Algorithm 1, before backups and figures: the same arrays as in `RoutingTable`."""

    choice: Choice
    admitted: NDArray[np.int64]
    rates: NDArray[np.float64]  # of the admitted keys, descending
    offsets: NDArray[np.int64]
    replicas: NDArray[np.int64]
    members: NDArray[np.int32]
    load: NDArray[np.float64]
    cold: NDArray[np.float64]  # the part of `load` that is not planned


def choose(problem: Problem) -> Choice:
    """Size the keys, and admit by the budget of the whole fleet."""
    limit, most = problem.q_cap, int(problem.available.sum())
    ceiling = _ceiling(problem)
    if problem.admission == "top_rate" and problem.room is None and problem.tenants is None:
        # Only keys with k > 1 can be skipped: no keys other than these and the `slots` largest can get a slot.
        several = int(np.count_nonzero(problem.rates > min(limit, ceiling)))
        keys = top_indices(problem.rates, several + problem.budget)
        rates = problem.rates[keys]
        wanted, sizes = _sizes(rates, limit, ceiling, most)
        cannot_fit = np.sort(keys[wanted > most])
        if int(sizes.sum()) <= problem.budget:
            return Choice(keys, rates, sizes, cannot_fit, keys, sizes)
        taken = admit_in_order(sizes, problem.budget)
        return Choice(keys[taken], rates[taken], sizes[taken], cannot_fit, keys, sizes)
    wanted, sizes = _sizes(problem.rates, limit, ceiling, most)
    if problem.room is not None and problem.slot_tokens is not None:
        # A key that is too long for k destinations is no candidate.
        widest = np.sort(problem.room[problem.available])[::-1]
        sizes = np.where(problem.slot_tokens <= widest[sizes - 1], sizes, problem.budget + 1)
    chosen = admit(
        problem.admission,
        rates=problem.rates,
        sizes=sizes,
        values=problem.values,
        slots=problem.budget,
        slot_tokens=problem.slot_tokens,
        token_budget=problem.token_budget,
        tenants=problem.tenants,
        tenant_quota=problem.tenant_quota,
        tenant_floor=problem.tenant_floor,
    )
    admitted = chosen.admitted[top_indices(problem.rates[chosen.admitted])]
    reserved = np.isin(admitted, chosen.reserved, assume_unique=True)
    cannot_fit = np.flatnonzero(wanted > most)
    return Choice(admitted, problem.rates[admitted], sizes[admitted], cannot_fit, chosen.order, sizes, reserved)


def assign(problem: Problem) -> Assignment:
    """Size, admit and place."""
    choice = choose(problem)
    admitted, replicas = choice.admitted, choice.replicas
    rates, offsets = choice.rates, offsets_of(replicas)
    cold = cold_load(problem, rates)
    if problem.room is not None:
        admitted, replicas, members, load = fill(problem, choice, cold)
        rates, offsets = problem.rates[admitted], offsets_of(replicas)
        rest = cold_load(problem, rates)  # keys that fit on no destination are cold too
        return Assignment(choice, admitted, rates, offsets, replicas, members, load - cold + rest, rest)
    load = cold.copy()
    if problem.is_uniform:
        members = place_lpt(rates, offsets, problem.available, load)
    else:
        places = Places.of(problem, load)
        _, members = places.place(problem, admitted, replicas)
        load = places.load
    return Assignment(choice, admitted, rates, offsets, replicas, members, load, cold)


def finish(problem: Problem, plan: Assignment) -> RoutingTable:
    """Choose the backup of each key, and compute the figures of the plan."""
    backup, after_loss = plan_losses(
        plan.rates, plan.offsets, plan.members, problem.available, problem.capacity, plan.cold, plan.load
    )
    value = plan.rates if problem.prefix_tokens is None else problem.values[plan.admitted]
    admitted_value = as_float(exact_sum(value))
    everything = len(plan.admitted) == len(problem.rates)
    tenant_slots, tenant_rate = _by_tenant(problem, plan)
    return RoutingTable(
        admitted=plan.admitted,
        offsets=plan.offsets,
        members=plan.members,
        replicas=plan.replicas,
        load=plan.load,
        imbalance=float(max_over_mean(plan.load, problem.capacity, problem.available)),
        slots_used=int(plan.offsets[-1]),
        admitted_rate=as_float(exact_sum(plan.rates)),
        backup=backup,
        destinations=problem.destinations,
        q_cap=problem.q_cap,
        slots=problem.slots,
        cannot_fit=plan.choice.cannot_fit,
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
        value_bound=admitted_value if everything else max(_bound(problem, plan.choice), admitted_value),
        tenant_slots=tenant_slots,
        tenant_rate=tenant_rate,
    )


def cold_load(problem: Problem, admitted_rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the load of the keys that are not admitted: as given, or spread in proportion to capacity."""
    if problem.cold_load is not None:
        return problem.cold_load.copy()
    speeds = np.where(problem.available, problem.capacity, 0.0)
    left = as_float(problem.exact_total - exact_sum(admitted_rates))
    return left * (speeds / speeds.sum())


def balance_ceiling(
    target: float | None,
    *,
    rates: NDArray[np.float64],
    slots: int,
    cold_load: NDArray[np.float64] | None,
    capacity: NDArray[np.float64],
) -> float:
    """Return the rate above which a balance target requires a second destination for a key.

    Parameters
    ----------
    target : float or None
        Balance target, at least 1; None for no target.
    rates : float64[B]
        Requests/s of each key.
    slots : int
        Warm slots of the fleet.
    cold_load : float64[R] or None
        Requests/s of not-admitted traffic on each destination; None where it follows from the rates.
    capacity : float64[]
        Relative speeds of the available destinations.

    Returns
    -------
    float
        Requests/s; infinite without a target or without load.
    """
    if target is None:
        return np.inf
    total = exact_sum(rates)
    if cold_load is not None:  # the planned load is at most the `slots` highest rates
        total = exact_sum(cold_load) + exact_sum(rates[top_indices(rates, slots)])
    return target * (as_float(total) / float(capacity.sum())) or np.inf  # 0 without load: no ceiling


def _ceiling(problem: Problem) -> float:
    return balance_ceiling(
        problem.balance_target,
        rates=problem.rates,
        slots=problem.budget,
        cold_load=problem.cold_load,
        capacity=problem.capacity[problem.available],
    )


def _sizes(
    rates: NDArray[np.float64], q_cap: float, ceiling: float, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return k of each key by eq. 2, clipped to ``most + 1``, and k as it is planned."""
    wanted = replicas_needed(rates, q_cap, most + 1)
    sizes = np.minimum(wanted, most)
    if ceiling < np.inf:
        sizes = np.maximum(sizes, replicas_needed(rates, ceiling, most))
    return wanted, sizes


def _bound(problem: Problem, choice: Choice) -> float:
    """Return the fractional bound of the budget."""
    values, sizes = problem.values, choice.sizes
    if len(sizes) < len(values):
        if problem.prefix_tokens is None:
            values = values[choice.order]  # all other keys have less value
        else:  # a key of high value may have a low rate
            sizes = _sizes(problem.rates, problem.q_cap, _ceiling(problem), int(problem.available.sum()))[1]
    elif choice.in_order:
        values = values[choice.order]
    return fractional_bound(
        values=values,
        sizes=sizes,
        slots=problem.budget,
        slot_tokens=None if problem.room is None else problem.slot_tokens,
        token_budget=problem.token_budget,
    )


def _by_tenant(problem: Problem, plan: Assignment) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if problem.tenants is None:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    owner = problem.tenants[plan.admitted]
    slots = np.bincount(owner, weights=plan.replicas, minlength=problem.tenant_count).astype(np.int64)
    return slots, np.bincount(owner, weights=plan.rates, minlength=problem.tenant_count).astype(np.float64)
