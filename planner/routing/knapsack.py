"""The best set of keys under a budget: an exact 0/1 knapsack (the budget step of Algorithm 1, arXiv 2608.19677).

Equation 3 admits by rate, which is optimal only when every k_b is equal. Both methods here are exact:

* Only slots (and slots of tenants) count: dynamic programming. Among keys of equal k a best set always takes those of
  the highest value, so the value of the n best keys of one k is concave in n. To merge it into the table of all
  budgets 0..C takes O(C log C). The k of a fleet lies in 1..R, so this serves whole fleets.
* KV tokens count too: branch and bound. The prices of the relaxed problem (linear programme of scipy) give the value
  of each key above its cost. Any prices >= 0 give a true bound, so a rough solution costs time, not exactness.

ADR 8 compares both with `scipy.optimize.milp`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["CELL_LIMIT", "NODE_LIMIT", "STEP_LIMIT", "Knapsack", "best_by_search", "best_by_slots", "too_large"]

NODE_LIMIT = 200_000_000  # nodes of the search tree: about four seconds
CELL_LIMIT = 100_000_000  # int32 cells from which dynamic programming recovers the keys: 400 MB
LP_SECONDS = 20.0
STEP_LIMIT = 4_000_000_000  # steps to merge the tables of tenants: some seconds


@dataclass(frozen=True)
class Knapsack:
    """Candidate keys and the budgets that a set of them must keep.

    Attributes
    ----------
    values : float64[n]
        Value of each key, above 0, of a size that sums do not overflow.
    sizes : int64[n]
        Slots of each key, at least 1.
    slots : int
        Budget of ``sum(sizes)``.
    tenants : int64[n]
        Tenant of each key: an index into ``room``.
    room : int64[T]
        Slots that each tenant may still take; a number no smaller than the slots of all its keys is no limit.
    cost : float64[n]
        KV tokens of all copies of each key; empty where tokens are not limited.
    tokens_used, token_budget : float
        Tokens that are taken already, and the budget that these and the set may fill.
    """

    values: NDArray[np.float64]
    sizes: NDArray[np.int64]
    slots: int
    tenants: NDArray[np.int64]
    room: NDArray[np.int64]
    cost: NDArray[np.float64]
    tokens_used: float = 0.0
    token_budget: float = np.inf


def too_large(why: str) -> ValueError:
    """Return the error of an input that is too large."""
    return ValueError(f"admission = 'exact': the input is too large ({why}); use 'density'")


@njit(cache=True, nogil=True)
def _merge_size(
    table: NDArray[np.float64], gain: NDArray[np.float64], k: int, count: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Allow ``n`` keys of size ``k`` with value ``gain[n]`` (concave) in every budget; ``count`` gets the best n.

    Budgets with the same remainder modulo k form one chain. Along it the best number of slots for the other keys
    never falls, so the result at the middle of a chain halves the range of both sides. On ties the other keys get
    fewer slots.
    """
    most = len(gain) - 1
    merged = np.empty_like(table)
    stack = np.empty((128, 4), dtype=np.int64)
    for residue in range(min(k, len(table))):
        rows = (len(table) - 1 - residue) // k + 1
        stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, rows - 1, 0, rows - 1
        depth = 1
        while depth:
            depth -= 1
            first, last, low, high = stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3]
            middle = (first + last) // 2
            begin, end = max(low, middle - most), min(high, middle)
            best, at = -1.0, begin
            for rest in range(begin, end + 1):
                value = table[residue + rest * k] + gain[middle - rest]
                if value > best:
                    best, at = value, rest
            merged[residue + middle * k] = best
            count[residue + middle * k] = middle - at
            if first < middle:
                stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = first, middle - 1, low, at
                depth += 1
            if middle < last:
                stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = middle + 1, last, at, high
                depth += 1
    return merged


@njit(cache=True, nogil=True)
def _merge_tenant(
    table: NDArray[np.float64], other: NDArray[np.float64], given: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Give the other table the best of 0..len(other) - 1 slots of every budget; ties give it the fewest."""
    merged = table.copy()
    for budget in range(len(table)):
        for slots in range(1, min(budget, len(other) - 1) + 1):
            value = table[budget - slots] + other[slots]
            if value > merged[budget]:
                merged[budget] = value
                given[budget] = slots
    return merged


@dataclass
class _Pool:
    """Keys that share a limit of slots: by size, best first, with the number that each budget takes of a size."""

    groups: list[tuple[int, NDArray[np.int64]]]
    limit: int

    def solve(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        table = np.zeros(self.limit + 1)
        self.counts = []
        for k, keys in self.groups:
            gain = np.concatenate(([0.0], np.cumsum(values[keys])))
            count = np.zeros(self.limit + 1, dtype=np.int32)
            table = _merge_size(table, gain, k, count)
            self.counts.append(count)
        return table

    def keys(self, budget: int) -> list[NDArray[np.int64]]:
        found = []
        for (k, keys), count in zip(reversed(self.groups), reversed(self.counts), strict=True):
            found.append(keys[: count[budget]])
            budget -= k * int(count[budget])
        return found


def best_by_slots(problem: Knapsack) -> NDArray[np.int64]:
    """Return the most valuable set of keys within the slots of the fleet and of each tenant; tokens do not count.

    Of keys of one tenant and size, the set takes those of higher value, then those of lower index. Of equal sets, the
    result takes as much as possible for tenants without a binding limit, then as many keys as possible of the
    smallest size, then of the next. Values are compared as float64 sums.

    Parameters
    ----------
    problem : Knapsack
        Candidate keys and budgets.

    Returns
    -------
    int64[]
        Positions of the keys in ``problem``, ascending.

    Raises
    ------
    ValueError
        When the tables would exceed `CELL_LIMIT` or their merging `STEP_LIMIT`.
    """
    values, sizes, tenants, room = problem.values, problem.sizes, problem.tenants, problem.room
    wanted = np.bincount(tenants, weights=sizes, minlength=len(room))
    slots = min(problem.slots, int(sizes.sum()))
    bound = np.flatnonzero(room < np.minimum(wanted, slots))
    is_bound = np.zeros(len(room), dtype=bool)
    is_bound[bound] = True
    pools = [_pool(np.flatnonzero(~is_bound[tenants]), values, sizes, slots)]
    pools += [_pool(np.flatnonzero(tenants == t), values, sizes, int(room[t])) for t in bound]
    cells = sum(len(pool.groups) * (pool.limit + 1) for pool in pools) + len(bound) * (slots + 1)
    if cells > CELL_LIMIT:
        raise too_large(f"{cells} cells of a table, over {CELL_LIMIT}")
    steps = slots * sum(pool.limit for pool in pools[1:])
    if steps > STEP_LIMIT:
        raise too_large(f"{steps} steps to share slots among tenants, over {STEP_LIMIT}")

    table = pools[0].solve(values)
    shares = []
    for pool in pools[1:]:
        given = np.zeros(slots + 1, dtype=np.int32)
        table = _merge_tenant(table, pool.solve(values), given)
        shares.append(given)
    found = []
    budget = slots
    for pool, given in zip(reversed(pools[1:]), reversed(shares), strict=True):
        share = int(given[budget])
        found += pool.keys(share)
        budget -= share
    return np.sort(np.concatenate([*found, *pools[0].keys(budget), np.zeros(0, dtype=np.int64)]))


def _pool(keys: NDArray[np.int64], values: NDArray[np.float64], sizes: NDArray[np.int64], limit: int) -> _Pool:
    ranked = keys[np.lexsort((-values[keys], sizes[keys]))]
    distinct, starts = np.unique(sizes[ranked], return_index=True)
    groups = []
    for k, start, stop in zip(distinct.tolist(), starts, np.append(starts, len(ranked))[1:], strict=True):
        if k <= limit:
            groups.append((k, ranked[start : min(stop, start + limit // k)]))
    return _Pool(groups[::-1], limit)  # the smallest size last: `_Pool.keys` then takes it first


@njit(cache=True, nogil=True)
def _search(
    values: NDArray[np.float64],
    sizes: NDArray[np.int64],
    cost: NDArray[np.float64],
    tenants: NDArray[np.int64],
    room: NDArray[np.int64],
    profit: NDArray[np.float64],
    run_end: NDArray[np.int64],
    slots: int,
    token_budget: float,
    slots_used: int,
    tokens_used: float,
    worth: float,
    bound: float,
    incumbent: float,
    slack: float,
    node_limit: int,
    chosen: NDArray[np.bool_],
) -> int:
    """Search the undecided keys depth first; return 1: ``chosen`` beats the incumbent, 0: no set does, -1: limit hit.

    ``profit`` is the value of a key above its price. The bound of a node is that of the root less the cost of its
    decisions: the profit of keys left out, the loss on keys taken. Of equal keys (a run) the first are taken.
    """
    n = len(values)
    at = np.zeros(n + 1, dtype=np.int64)
    tried = np.zeros(n + 1, dtype=np.int8)
    took = np.zeros(n + 1, dtype=np.bool_)
    value, left = np.zeros(n + 1), np.zeros(n + 1)
    used, tokens = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1)
    left[0], value[0], used[0], tokens[0] = bound, worth, slots_used, tokens_used
    free = room.copy()
    found, nodes, depth = 0, 0, 0
    while depth >= 0:
        i = at[depth]
        if tried[depth] == 0:
            nodes += 1
            if nodes > node_limit:
                return -1
            if value[depth] > incumbent:
                incumbent, found = value[depth], 1
                chosen[:] = False
                for d in range(depth):
                    if took[d]:
                        chosen[at[d]] = True
            if i == n or left[depth] <= incumbent + slack * left[depth]:
                depth -= 1
                continue
        elif took[depth]:
            free[tenants[i]] += sizes[i]
            took[depth] = False
        if tried[depth] == 2:
            depth -= 1
            continue
        take = (profit[i] >= 0) == (tried[depth] == 0)
        tried[depth] += 1
        if take:
            k = sizes[i]
            if used[depth] + k > slots or k > free[tenants[i]] or tokens[depth] + cost[i] > token_budget:
                continue
            free[tenants[i]] -= k
            took[depth] = True
            at[depth + 1] = i + 1
            value[depth + 1] = value[depth] + values[i]
            left[depth + 1] = left[depth] + min(profit[i], 0.0)
            used[depth + 1] = used[depth] + k
            tokens[depth + 1] = tokens[depth] + cost[i]
        else:
            at[depth + 1] = run_end[i]
            value[depth + 1] = value[depth]
            left[depth + 1] = left[depth] - max(profit[i], 0.0) * (run_end[i] - i)
            used[depth + 1] = used[depth]
            tokens[depth + 1] = tokens[depth]
        depth += 1
        tried[depth] = 0
    return found


def best_by_search(problem: Knapsack, incumbent: float) -> NDArray[np.int64] | None:
    """Return the most valuable set of keys within slots, tokens and the slots of each tenant.

    No set is worth more than the result (or the incumbent) by over ``1e-12 + 4.4e-16 * n`` of it, the bound of the
    rounding of float64 sums. On a tie the incumbent wins, then the set found first; of equal keys the set takes those
    of lower index.

    Parameters
    ----------
    problem : Knapsack
        Candidate keys and budgets.
    incumbent : float
        Value of a set that is known to fit.

    Returns
    -------
    int64[] or None
        Positions of the keys in ``problem``, ascending; None when no set is worth more than ``incumbent``.

    Raises
    ------
    ValueError
        When the search meets more than `NODE_LIMIT` nodes, or the relaxed problem takes longer than `LP_SECONDS`.
    """
    values, sizes, cost, tenants = problem.values, problem.sizes, problem.cost, problem.tenants
    slots, token_budget = problem.slots, problem.token_budget
    n = len(values)
    profit, bound = _priced(problem)
    slack = 1e-12 + 4.4e-16 * n
    # To decide against the sign of a profit costs as much; beyond the slack of the bound, the key is decided.
    open_ = np.flatnonzero(np.abs(profit) <= bound - incumbent + slack * bound)
    settled = profit > 0
    settled[open_] = False
    slots_used, worth = int(sizes[settled].sum()), float(values[settled].sum())
    tokens_used = problem.tokens_used + float(cost[settled].sum())
    settled_slots = np.bincount(tenants[settled], weights=sizes[settled], minlength=len(problem.room))
    room = problem.room - settled_slots.astype(np.int64)
    if slots_used > slots or tokens_used > token_budget or (room < 0).any():
        return None
    # The largest profits and losses first: the undecided keys form a small tree at the end.
    order = open_[np.lexsort([part[open_] for part in (tenants, cost, sizes, values, -np.abs(profit))])]
    values, sizes, cost, tenants = values[order], sizes[order], cost[order], tenants[order]
    profit, n = profit[order], len(order)
    differs = np.ones(n, dtype=bool)
    differs[:-1] = (np.diff(values) != 0) | (np.diff(sizes) != 0) | (np.diff(cost) != 0) | (np.diff(tenants) != 0)
    ends = np.flatnonzero(differs) + 1
    run_end = ends[np.searchsorted(ends, np.arange(n), side="right")]
    chosen = np.zeros(n, dtype=bool)
    outcome = _search(
        *(values, sizes, cost, tenants, room, profit, run_end, slots, token_budget),
        *(slots_used, tokens_used, worth, bound, incumbent, slack, NODE_LIMIT, chosen),
    )
    if outcome < 0:
        raise too_large(f"{n} undecided keys, over {NODE_LIMIT} nodes of the search")
    return np.sort(np.concatenate((np.flatnonzero(settled), order[chosen]))) if outcome else None


def _priced(problem: Knapsack) -> tuple[NDArray[np.float64], float]:
    """Return the value of each key above its price, and the bound of the whole problem at these prices."""
    from scipy.optimize import linprog  # slow to import, rarely needed
    from scipy.sparse import coo_array

    values, tenants, room = problem.values, problem.tenants, problem.room
    tokens = max(problem.token_budget - problem.tokens_used, float(problem.cost.max()))
    n = len(values)
    each = np.arange(n)
    rows = [np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64), tenants + 2]
    # Each row is divided by its budget, and each key fits alone: all shares lie in 0..1.
    sizes = problem.sizes
    share = [sizes / problem.slots, problem.cost / tokens, sizes / np.maximum(room[tenants], 1)]
    matrix = coo_array(
        (np.concatenate(share), (np.concatenate(rows), np.tile(each, 3))), shape=(2 + len(room), n)
    ).tocsr()
    # The interior-point method is faster here than the simplex.
    solved = linprog(  # type: ignore[call-overload]  # the stubs of scipy lack sparse matrices here
        -values,
        A_ub=matrix,
        b_ub=np.ones(2 + len(room)),
        method="highs-ipm",
        bounds=(0, 1),
        options={"time_limit": LP_SECONDS},
    )
    if solved.status != 0:
        raise too_large(f"the relaxed problem was not solved: {solved.message}")
    price = np.maximum(-solved.ineqlin.marginals, 0.0)
    profit = values - price[0] * share[0] - price[1] * share[1] - price[2 + tenants] * share[2]
    return profit, float(price.sum() + np.maximum(profit, 0.0).sum())
