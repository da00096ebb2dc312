"""A new plan that keeps warm keys in place: the incumbent's homes, and the fewest moves that restore the balance."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.build import Assignment, assign, cold_load, finish
from planner.routing.kernels import max_over_mean
from planner.routing.places import Places, in_rows, offsets_of
from planner.routing.problem import PlanOptions, Problem
from planner.routing.ranking import as_float, exact_sum
from planner.routing.rebalance import search
from planner.routing.table import RoutingTable
from planner.routing.units import NOWHERE, Fleet, Held, Rows, Units, keep_members, place_new, recount, top_of
from planner.routing.validation import positive, share, whole

__all__ = ["replan", "replan_table"]

# Up to this number of units (key, destination) swaps and many shuffled runs are worth their time. With thousands of
# keys the small keys fill every gap, and single moves move hardly more than the excess.
SMALL = 2_048
RUNS = 200
NOISE = 0.5
WORK = 20_000_000  # pairs of units that the runs examine
# Bisection on the ceiling when the moves are limited: runs at each step, steps, and relative precision.
PROBES = 8
STEPS = 16
PRECISION = 1e-4
ROUNDING = 1e-12  # of token counts that are not whole numbers
SLACK = 5e-13  # larger than the effect of the order of addition on a sum of thousands of loads
MAX_RENAMED = 1_000  # destinations; the matching that renames those of a fresh plan takes R^3


def replan(
    incumbent: RoutingTable,
    rates: ArrayLike,
    *,
    q_cap: float,
    slots: int,
    max_imbalance_factor: float = 1.02,
    max_moved_share: float | None = None,
    destinations: int | None = None,
    **options: Unpack[PlanOptions],
) -> RoutingTable:
    """Plan for new rates, keeping the incumbent's assignment as far as the balance allows.

    1. Size and admit as `build_table` does (paper, Algorithm 1).
    2. Keys that stay keep their destinations; a key that needs fewer drops the most loaded. A unit on a destination
       that is no longer available must move. Where prefixes grew beyond ``token_budget``, the units of the lowest
       rates must move. These moves are *forced*.
    3. Forced and new units go to the lightest destinations, heaviest first (LPT). New destinations start empty.
    4. The target is ``max_imbalance_factor`` times the imbalance of a fresh plan for the same rates and fleet. If the
       imbalance is above it, only units placed in step 3 move (and, up to ``SMALL`` units, swap). If that does not
       reach the target, keys leave their homes too, fewest by rate: *voluntary* moves.

    Without ``max_moved_share`` the target is always met: where the search gets stuck, the result is the fresh
    placement, its destinations renamed among equal ones so that most of the rate stays where it is warm. With a
    share, voluntary moves get the part of it that the forced moves leave. The result is then the best balance found
    within that part, by bisection on the highest load / capacity; moves stop at the target. ``moved_rate`` exceeds
    the share of the admitted rate only where the forced moves alone exceed it. A share of 1 is no limit.

    ``token_budget`` always holds: a key without room in step 3 is not admitted, and the next keys in the order of the
    policy that still fit take its slots. So a replan may admit a little less than a plan from scratch.

    The search is bounded: up to ``SMALL`` units by ``RUNS`` shuffled runs and ``WORK`` examined pairs, beyond that by
    a few passes over the units. Equal inputs give equal plans on every machine.

    The paper measures that LPT from scratch re-assigns 94.5% of keys under drift (section 5.4) and names a replanner
    that limits churn as an open gap; this function closes it.

    Parameters
    ----------
    incumbent : RoutingTable
        The table in service.
    rates : float64[B]
        Requests/s; key indices mean the same keys as in the incumbent, new keys come last.
    q_cap, slots
        As in `build_table`.
    max_imbalance_factor : float
        At least 1.
    max_moved_share : float, optional
        In [0, 1]: maximum share of the admitted rate that may move.
    destinations : int, optional
        R, at least that of the incumbent (the default); new destinations come last. Indices never shift:
        ``available`` marks a destination that was removed.
    **options
        ``cold_load``, ``prefix_tokens``, ``admission``, ``balance_target``, ``capacity``, ``available``,
        ``slot_tokens``, ``token_budget``, ``tenants``, ``tenant_quota`` and ``tenant_floor``, as in `build_table`.

    Returns
    -------
    RoutingTable
        With ``moved`` (keys that lost a warm destination that they still need), ``moved_rate`` (requests/s of the
        shares that moved), ``moved_keys`` (their indices, ascending), ``cooled`` and ``cooled_rate`` (keys that lose
        their warm slots; ``max_moved_share`` does not limit them) and, with ``prefix_tokens``, ``rewarm_tokens``.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value; also when no destination is available.
    """
    count = incumbent.destinations if destinations is None else whole("destinations", destinations, 1)
    problem = Problem.checked(rates, destinations=count, q_cap=q_cap, slots=slots, **options)
    return replan_table(incumbent, problem, max_imbalance_factor=max_imbalance_factor, max_moved_share=max_moved_share)


def replan_table(
    incumbent: RoutingTable,
    problem: Problem,
    *,
    max_imbalance_factor: float = 1.02,
    max_moved_share: float | None = None,
) -> RoutingTable:
    """Return the routing table of a checked problem that keeps the incumbent's assignment, as `replan` describes.

    Parameters
    ----------
    incumbent : RoutingTable
        The table in service.
    problem : Problem
        Its keys and destinations begin with those of the incumbent, in the same order.
    max_imbalance_factor, max_moved_share
        As in `replan`.

    Returns
    -------
    RoutingTable
        As `replan` returns it.

    Raises
    ------
    ValueError
        Naming the argument and its value; also when the problem has fewer keys or destinations than the incumbent.
    """
    factor = positive("max_imbalance_factor", max_imbalance_factor, least=1.0)
    most = None if max_moved_share is None else share("max_moved_share", max_moved_share)
    if problem.destinations < incumbent.destinations:
        raise ValueError(
            f"destinations = {problem.destinations}: fewer than the incumbent's {incumbent.destinations}; "
            "mark removed destinations in available"
        )
    if len(problem.rates) < incumbent.keys:
        raise ValueError(f"rates: {len(problem.rates)} keys, fewer than the incumbent's {incumbent.keys}")
    fresh = assign(problem)
    held = Held(incumbent.row, incumbent.offsets, incumbent.members, incumbent.load)
    draft, place, units, fleet, forced = _kept(problem, fresh, held)
    target = factor * top_of(fleet._replace(load=fresh.load)) * (1 + SLACK)
    budget = np.inf if most is None or most == 1.0 else max(0.0, most * float(draft.rates.sum()) - forced)
    best = _balanced(place, units, fleet, target, budget)
    goal = factor * float(max_over_mean(fresh.load, problem.capacity, problem.available))
    if best is None:
        return _table(problem, fresh, _fresh_at_home(problem, fresh, held), held, incumbent, goal)
    return _table(problem, draft, best, held, incumbent, goal)


def _rows_of(plan: Assignment) -> Rows:
    return Rows(plan.admitted, plan.offsets, plan.rates)


def _homes(problem: Problem, plan: Assignment, held: Held) -> tuple[Units, Fleet, float]:
    """Return the units of a plan with their homes, the fleet with their load, and the rate that must move."""
    speeds = np.where(problem.available, problem.capacity, 0.0)
    if problem.room is None or problem.slot_tokens is None:
        room, tokens = np.full(problem.destinations, np.inf), np.zeros(len(plan.admitted))
    else:
        # A set that fits in one order of addition must fit in every other.
        room, tokens = problem.room * (1 + ROUNDING), problem.slot_tokens[plan.admitted]
    fleet = Fleet(speeds, plan.cold.copy(), room)
    units, forced = keep_members(_rows_of(plan), tokens, held, fleet)
    return units, fleet, forced


def _kept(problem: Problem, fresh: Assignment, held: Held) -> tuple[Assignment, NDArray[np.int32], Units, Fleet, float]:
    """Run steps 2 and 3 of `replan`: keep homes, and give all other units a first place."""
    draft = fresh
    if problem.room is not None:
        # All keys that the fleet admits, with or without room in a fresh plan: a warm key may fit only where it is.
        choice = fresh.choice
        draft = replace(
            fresh, admitted=choice.admitted, rates=choice.rates, offsets=offsets_of(choice.replicas),
            replicas=choice.replicas, cold=cold_load(problem, choice.rates),
        )  # fmt: skip
    units, fleet, forced = _homes(problem, draft, held)
    place = units.home.copy()
    refused = place_new(place, units, fleet)
    if len(refused):
        return (*_refilled(problem, draft, held, place, units, fleet, refused), forced)
    return draft, place, units, fleet, forced


def _refilled(
    problem: Problem,
    draft: Assignment,
    held: Held,
    place: NDArray[np.int32],
    units: Units,
    fleet: Fleet,
    refused: NDArray[np.int64],
) -> tuple[Assignment, NDArray[np.int32], Units, Fleet]:
    """Replace the rows without room by keys that fit."""
    sizes, order = draft.choice.sizes, draft.choice.order
    stays = np.ones(len(draft.admitted), dtype=bool)
    stays[refused] = False
    of_unit = np.repeat(stays, draft.replicas)
    kept = draft.admitted[stays]
    places = Places.of(problem, fleet.load)
    places.room[:] = fleet.room
    places.slots[0] -= int(sizes[kept].sum())
    owner = np.zeros(len(kept), dtype=np.int64) if problem.tenants is None else problem.tenants[kept]
    places.quota[:] -= np.bincount(owner, weights=sizes[kept], minlength=len(places.quota)).astype(np.int64)
    done = np.zeros(len(problem.rates), dtype=bool)
    done[draft.admitted] = True
    done[: len(held.row)] |= held.row >= 0  # a warm key that was not chosen must not return on another destination
    more = order[~done[order]]
    placed, members = places.place(problem, more, sizes[more])
    admitted, (place, home) = in_rows(
        problem,
        sizes,
        np.concatenate([kept, more[placed]]),
        np.concatenate([place[of_unit], members]),
        np.concatenate([units.home[of_unit], np.full(len(members), NOWHERE, dtype=np.int32)]),
    )
    replicas, rates = sizes[admitted], problem.rates[admitted]
    cold = cold_load(problem, rates)
    row_of = np.repeat(np.arange(len(admitted), dtype=np.int32), replicas)
    assert problem.slot_tokens is not None  # nothing is refused without a token budget
    units = Units(offsets_of(replicas), row_of, (rates / replicas)[row_of], home, problem.slot_tokens[admitted])
    draft = replace(draft, admitted=admitted, rates=rates, offsets=units.offsets, replicas=replicas, cold=cold)
    load = cold + np.bincount(place, weights=units.weight, minlength=problem.destinations)
    return draft, place, units, Fleet(fleet.capacity, load, places.room)


def _balanced(
    start: NDArray[np.int32], units: Units, fleet: Fleet, target: float, budget: float
) -> NDArray[np.int32] | None:
    """Run step 4 of `replan`: return the placement under the target that moves least, else the best within the budget.

    Returns None when the moves are not limited and the search got stuck.
    """
    high = top_of(fleet)
    if high <= target:
        return start
    small = len(start) <= SMALL
    runs, probes = (RUNS, PROBES) if small else (0, 0)
    work = np.array([WORK])
    if small and budget > 0 and (units.home < 0).any():  # with many units, `level` moves units without a home first
        reached, best, _ = search(start, units, fleet, target, 0.0, PROBES, NOISE, work)
        if reached:
            return best
        work[0] = WORK
    reached, best, top = search(start, units, fleet, target, budget, runs, NOISE, work)
    if not reached and not small and budget == np.inf:
        reached, best, top = search(start, units, fleet, target, budget, 1, 0.0, work)
    if reached:
        return best
    if budget == np.inf:
        return None
    if top < high:
        high = top
    else:
        best = start
    low = target
    work[0] = WORK
    for _ in range(STEPS):
        if high - low <= PRECISION * low or work[0] <= 0:
            break
        ceiling = low + (high - low) / 2
        reached, trial, top = search(start, units, fleet, ceiling, budget, probes, NOISE, work)
        if top < high:
            best, high = trial, top
        if not reached:
            low = ceiling
    return best


def _fresh_at_home(problem: Problem, fresh: Assignment, held: Held) -> NDArray[np.int32]:
    """Return the members of the fresh plan, renamed so that most of the rate stays where it is warm.

    Only destinations that are equal in cold load, capacity, availability and room may exchange names.
    """
    count = problem.destinations
    traits = [fresh.cold, problem.capacity, problem.available] + ([] if problem.room is None else [problem.room])
    _, kind = np.unique(np.column_stack(traits), axis=0, return_inverse=True)
    kind = kind.ravel()
    if count > MAX_RENAMED or len(np.unique(kind)) == count:
        return fresh.members.copy()
    from scipy.optimize import linear_sum_assignment  # slow to import, rarely needed

    units, _, _ = _homes(problem, fresh, held)
    overlap = np.zeros((count, count))
    known = units.home >= 0
    heaviest = float(units.weight.max(initial=0.0)) or 1.0
    np.add.at(overlap, (fresh.members[known], units.home[known]), units.weight[known] / heaviest)
    overlap[kind[:, None] != kind[None, :]] = -1.0 - overlap.sum()
    _, name = linear_sum_assignment(overlap, maximize=True)
    return name[fresh.members].astype(np.int32)


def _table(
    problem: Problem, plan: Assignment, place: NDArray[np.int32], held: Held, incumbent: RoutingTable, goal: float
) -> RoutingTable:
    load = plan.cold.copy()
    prefix = np.zeros(0) if problem.prefix_tokens is None else problem.prefix_tokens
    rows, moved_rate, rewarm = recount(_rows_of(plan), place, load, held, prefix)
    table = finish(problem, replace(plan, members=place, load=load))
    is_warm = np.zeros(len(problem.rates), dtype=bool)
    is_warm[plan.admitted] = True
    cooled = incumbent.admitted[~is_warm[incumbent.admitted]]
    return replace(
        table,
        moved=len(rows),
        moved_rate=moved_rate,
        moved_keys=np.sort(plan.admitted[rows]),
        rewarm_tokens=None if problem.prefix_tokens is None else rewarm,
        cooled=len(cooled),
        cooled_rate=as_float(exact_sum(problem.rates[cooled])),
        target_imbalance=goal,
    )
