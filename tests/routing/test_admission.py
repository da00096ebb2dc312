"""Admission: greedy by the rule, exact against every subset, quotas, floors, bounds, and hazards of floats."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.routing import knapsack
from planner.routing.admission import ADMISSIONS, admit, fractional_bound
from tests.speed import usual_seconds


@st.composite
def problems(draw, most_keys=9):
    """Small budgets with whole-number costs, so that every subset can be checked without rounding."""
    keys = draw(st.integers(0, most_keys))

    def column(element):
        return draw(st.lists(element, min_size=keys, max_size=keys))

    values = column(st.one_of(st.integers(0, 6).map(float), st.floats(0, 50)))
    problem = {
        "rates": np.array(draw(st.sampled_from([values, values[::-1]])), dtype=np.float64),
        "values": np.array(values, dtype=np.float64),
        "sizes": np.array(column(st.integers(1, 4)), dtype=np.int64),
        "slots": draw(st.integers(0, 14)),
    }
    if draw(st.booleans()):
        problem["slot_tokens"] = np.array(column(st.integers(0, 5).map(float)), dtype=np.float64)
        problem["token_budget"] = float(draw(st.integers(0, 40)))
    if draw(st.booleans()):
        problem["tenants"] = np.array(column(st.integers(0, 2)), dtype=np.int64)
        if draw(st.booleans()):
            problem["tenant_quota"] = np.array(draw(st.lists(st.integers(-1, 6), min_size=3, max_size=3)))
        if draw(st.booleans()):
            floors, left = [], problem["slots"]
            for quota in problem.get("tenant_quota", [-1] * 3):
                most = left if quota < 0 else min(left, int(quota))
                floors.append(draw(st.integers(0, most)))
                left -= floors[-1]
            problem["tenant_floor"] = np.array(floors)
    return problem


def costs(problem):
    if "token_budget" not in problem:
        return [0] * len(problem["rates"])
    return [int(k * t) for k, t in zip(problem["sizes"], problem["slot_tokens"], strict=True)]


def fits(problem, chosen):
    """Whether a set of keys keeps slots, tokens and quotas, by definition."""
    if sum(int(problem["sizes"][b]) for b in chosen) > problem["slots"]:
        return False
    if sum(costs(problem)[b] for b in chosen) > problem.get("token_budget", np.inf):
        return False
    for tenant, quota in enumerate(problem.get("tenant_quota", [])):
        used = sum(int(problem["sizes"][b]) for b in chosen if problem["tenants"][b] == tenant)
        if 0 <= quota < used:
            return False
    return True


def density(problem, b):
    cost = costs(problem)[b] if "token_budget" in problem else int(problem["sizes"][b])
    value = Fraction(float(problem["values"][b]))
    if value == 0:
        return (0, Fraction(0))
    return (2, Fraction(0)) if cost == 0 else (1, value / cost)


def plain_order(policy, problem):
    keys = range(len(problem["rates"]))
    if policy == "top_rate":
        return sorted(keys, key=lambda b: (-problem["rates"][b], b))
    return sorted(keys, key=lambda b: (*(-part for part in density(problem, b)), b))


def plain_reserved(order, problem):
    """Floors by the rule: each tenant in turn, in the policy's order, while its slots stay within the floor."""
    chosen = []
    for b in order:
        floor = int(problem["tenant_floor"][problem["tenants"][b]]) if "tenant_floor" in problem else 0
        mine = sum(int(problem["sizes"][a]) for a in chosen if problem["tenants"][a] == problem["tenants"][b])
        if problem["rates"][b] > 0 and mine + problem["sizes"][b] <= floor and fits(problem, [*chosen, b]):
            chosen.append(b)
    return chosen


def plain_greedy(order, problem):
    reserved = plain_reserved(order, problem) if "tenant_floor" in problem else []
    chosen = list(reserved)
    for b in order:
        if b not in chosen and fits(problem, [*chosen, b]):
            chosen.append(b)
    return sorted(chosen), sorted(reserved)


def worth(problem, chosen):
    return float(sum(problem["values"][b] for b in chosen))


def best_by_trying_all(problem, reserved):
    others = [b for b in range(len(problem["rates"])) if b not in reserved]
    subsets = itertools.chain.from_iterable(itertools.combinations(others, n) for n in range(len(others) + 1))
    return max(worth(problem, [*reserved, *s]) for s in subsets if fits(problem, [*reserved, *s]))


def bound_of(problem):
    return fractional_bound(**{k: v for k, v in problem.items() if k != "rates" and not k.startswith("tenant")})


@settings(max_examples=300, deadline=None)
@given(problem=problems())
def test_top_rate_equals_the_plain_rule(problem):
    result = admit("top_rate", **problem)
    order = plain_order("top_rate", problem)
    assert result.order.tolist() == order
    assert (result.admitted.tolist(), result.reserved.tolist()) == plain_greedy(order, problem)


def plain_density(order, problem):
    return _after_floors(order, plain_greedy(order, problem)[1], problem)


@settings(max_examples=300, deadline=None)
@given(problem=problems())
def test_density_equals_the_better_of_the_plain_rules_per_token_and_per_slot(problem):
    result = admit("density", **problem)
    expected = plain_density(plain_order("density", problem), problem)
    assert result.unit in ("slot", "token")
    if result.unit == "slot" and "token_budget" in problem:
        by_slot = plain_order("density", {k: v for k, v in problem.items() if k != "token_budget"})
        other = _after_floors(by_slot, expected[2], problem)
        assert worth(problem, other[1]) >= worth(problem, expected[1])
        expected = other
    assert result.order.tolist() == expected[0]
    assert (result.admitted.tolist(), result.reserved.tolist()) == expected[1:]


def _after_floors(order, reserved, problem):
    """Greedy in the order, or with the most valuable key first where that is worth more than all of it."""

    def greedy(first):
        chosen = [*reserved, *first]
        for b in order:
            if b not in chosen and fits(problem, [*chosen, b]):
                chosen.append(b)
        return sorted(chosen)

    admitted = greedy([])
    rest = [b for b in order if b not in reserved and fits(problem, [*reserved, b])]
    single = max(rest, key=lambda b: (problem["values"][b], -b), default=None)
    general = worth(problem, [b for b in admitted if b not in reserved])
    if single is not None and problem["values"][single] > general * (1 + 1e-12):
        order = [single, *(b for b in order if b != single)]
        admitted = greedy([single])
    return order, admitted, reserved


@settings(max_examples=400, deadline=None)
@given(problem=problems())
def test_exact_reaches_the_value_of_the_best_subset(problem):
    result = admit("exact", **problem)
    best = best_by_trying_all(problem, result.reserved.tolist())
    assert worth(problem, result.admitted) == pytest.approx(best, rel=1e-11)
    assert result.order.tolist()[:1] == admit("density", **problem).order.tolist()[:1]


@settings(max_examples=300, deadline=None)
@given(problem=problems(), policy=st.sampled_from(ADMISSIONS))
def test_budgets_quotas_and_floors_hold_and_every_key_that_fits_is_admitted(problem, policy):
    result = admit(policy, **problem)
    admitted = result.admitted.tolist()
    assert fits(problem, admitted)
    assert admitted == sorted(set(admitted))
    assert set(result.reserved) <= set(admitted)
    assert sorted(result.order) == list(range(len(problem["rates"])))
    assert not [b for b in range(len(problem["rates"])) if b not in admitted and fits(problem, [*admitted, b])]
    assert result.reserved.tolist() == sorted(plain_reserved(plain_order(policy, problem), problem))
    again = admit(policy, **problem)
    assert np.array_equal(again.admitted, result.admitted)


@settings(max_examples=300, deadline=None)
@given(problem=problems(), exponent=st.sampled_from([-1000, -300, 0, 300, 1000]))
def test_bound_is_never_below_what_exact_reaches(problem, exponent):
    problem["values"] = np.ldexp(problem["values"], exponent)
    result = admit("exact", **problem)
    bound = bound_of(problem)
    assert bound >= problem["values"][result.admitted].sum()
    assert bound >= worth(problem, result.admitted)


@settings(max_examples=300, deadline=None)
@given(problem=problems())
def test_density_under_one_budget_reaches_half_of_the_best(problem):
    for name in ("tenants", "tenant_quota", "tenant_floor"):
        problem.pop(name, None)
    if "token_budget" in problem:
        problem["slots"] = 1000
    greedy = worth(problem, admit("density", **problem).admitted)
    assert 2 * greedy >= best_by_trying_all(problem, []) * (1 - 1e-12)


@settings(max_examples=100, deadline=None)
@given(problem=problems(), scale=st.sampled_from([-900, -60, 60, 900]))
def test_scaling_all_values_by_a_power_of_two_changes_nothing(problem, scale):
    problem["values"] = np.where(problem["values"] < 1e-6, 0.0, problem["values"])
    first = admit("density", **problem), admit("exact", **problem)
    problem["values"] = np.ldexp(problem["values"], scale)
    second = admit("density", **problem), admit("exact", **problem)
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.order, b.order)
        assert np.array_equal(a.admitted, b.admitted)


def simple(values, sizes=None, slots=0, **more):
    values = np.array(values, dtype=np.float64)
    sizes = np.ones(len(values), dtype=np.int64) if sizes is None else np.array(sizes, dtype=np.int64)
    return {"rates": values, "values": values, "sizes": sizes, "slots": slots, **more}


@pytest.mark.parametrize("policy", ADMISSIONS)
def test_empty_input_and_no_slots_admit_nothing(policy):
    empty = admit(policy, **simple([], slots=5))
    assert [len(empty.admitted), len(empty.order), len(empty.reserved)] == [0, 0, 0]
    assert len(admit(policy, **simple([1.0, 2.0])).admitted) == 0
    assert admit(policy, **simple([1.0, 2.0])).order.tolist() == [1, 0]
    assert bound_of(simple([1.0, 2.0])) == 0.0
    assert bound_of(simple([], slots=5)) == 0.0


@pytest.mark.parametrize("policy", ADMISSIONS)
def test_values_600_decades_apart_keep_their_order(policy):
    problem = simple([1e-300, 1e300, 2e-300, 0.0, 5e-324, 1e300], slots=4)
    result = admit(policy, **problem)
    assert result.order.tolist() == [1, 5, 2, 0, 4, 3]
    assert result.admitted.tolist() == [0, 1, 2, 5]
    assert 2e300 <= bound_of(problem) <= 2e300 * (1 + 1e-11)


def test_densities_beyond_the_float_range_are_compared_correctly():
    problem = simple([1e300, 2e300, 1e-300, 3e-300, 1.0, 0.0], slots=6)
    problem["slot_tokens"] = np.array([1e-300, 1e-300, 1e300, 1e300, 0.0, 0.0])
    problem["token_budget"] = 1e301
    assert admit("density", **problem).order.tolist() == [4, 1, 0, 3, 2, 5]
    assert bound_of(problem) >= 3e300


@pytest.mark.parametrize("policy", ADMISSIONS)
def test_equal_keys_are_taken_from_the_lowest_index(policy):
    assert admit(policy, **simple([2.0] * 50, slots=7)).admitted.tolist() == list(range(7))
    tokens = {"slot_tokens": np.full(50, 10.0), "token_budget": 75.0}
    assert admit(policy, **simple([2.0] * 50, slots=20, **tokens)).admitted.tolist() == list(range(7))


def test_key_without_cost_comes_first_and_key_without_value_last():
    problem = simple([9.0, 1.0, 0.0, 0.0], slots=4)
    problem |= {"slot_tokens": np.array([1.0, 0.0, 0.0, 1.0]), "token_budget": 5.0}
    assert admit("density", **problem).order.tolist() == [1, 0, 2, 3]


def test_density_beats_top_rate_where_a_hot_key_needs_many_slots_and_exact_beats_both():
    problem = simple([10.0, 9.0, 8.0, 8.0], [4, 2, 2, 2], slots=5)
    assert worth(problem, admit("top_rate", **problem).admitted) == 10.0
    assert worth(problem, admit("density", **problem).admitted) == 17.0
    problem = simple([10.0, 7.0, 7.0], [3, 2, 2], slots=4)
    assert worth(problem, admit("density", **problem).admitted) == 14.0
    problem = simple([3.0, 4.0, 4.0], [1, 2, 2], slots=4)
    assert worth(problem, admit("density", **problem).admitted) == 7.0
    assert admit("exact", **problem).admitted.tolist() == [1, 2]


def test_density_takes_one_key_with_more_value_than_the_greedy_set():
    problem = simple([2.0, 10.0], [1, 10], slots=10)
    result = admit("density", **problem)
    assert (result.admitted.tolist(), result.order.tolist()) == ([1], [1, 0])


def test_exact_fills_remaining_slots_with_keys_without_value():
    assert admit("exact", **simple([0.0, 5.0, 0.0], slots=2)).admitted.tolist() == [0, 1]


def test_a_floor_is_for_keys_with_demand_only():
    problem = simple([9.0, 8.0, 0.0, 1.0], slots=2, tenants=[0, 0, 1, 1], tenant_floor=[0, 2])
    result = admit("top_rate", **problem)
    assert (result.reserved.tolist(), result.admitted.tolist()) == ([3], [0, 3])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tenants": [0, 3], "tenant_quota": [1, 1]}, r"tenants\[1\] = 3: tenant_quota has 2"),
        ({"tenants": [0, -1]}, r"tenants\[1\] = -1"),
        ({"tenants": [0]}, r"tenants: expected shape \(2,\)"),
        ({"tenants": [0.5, 1.0]}, "tenants: whole numbers expected"),
        ({"tenant_quota": [1]}, "tenant_quota: requires tenants"),
        ({"tenants": [0, 0], "tenant_quota": [-2]}, r"tenant_quota\[0\] = -2"),
        ({"tenants": [0, 0], "tenant_floor": [-1]}, r"tenant_floor\[0\] = -1"),
        ({"tenants": [0, 0], "tenant_floor": [2], "tenant_quota": [1]}, r"tenant_floor\[0\] = 2: above"),
        ({"tenants": [0, 1], "tenant_floor": [1, 2]}, r"tenant_floor\[1\] = 2: the floors sum to 3, above slots = 2"),
        ({"tenants": [0, 1], "tenant_floor": [1, 1], "tenant_quota": [1]}, "tenant_floor: 2 tenants"),
        ({"token_budget": 1.0}, "slot_tokens"),
    ],
)
def test_inconsistent_tenants_are_refused_by_name(more, message):
    with pytest.raises(ValueError, match=message):
        admit("top_rate", **simple([1.0, 1.0], slots=2, **more))


def test_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="admission = 'best'"):
        admit("best", **simple([1.0], slots=1))


def hard_tokens(keys):
    """Strongly correlated: value = cost + constant, where bounds tell next to nothing apart."""
    cost = np.random.default_rng(3).integers(1000, 100_000, keys).astype(np.float64)
    return simple(cost + 5000.0, slots=keys, slot_tokens=cost, token_budget=float(int(cost.sum() / 2)))


def test_search_beyond_the_node_limit_is_refused(monkeypatch):
    monkeypatch.setattr(knapsack, "NODE_LIMIT", 200_000)
    with pytest.raises(ValueError, match=r"'exact': the input is too large .*200000 nodes.*use 'density'"):
        admit("exact", **hard_tokens(300))
    assert len(admit("density", **hard_tokens(300)).admitted) > 100


def test_tables_beyond_the_cell_limit_are_refused():
    problem = simple(np.arange(1.0, 31.0), np.arange(1, 31) * 1_000_000, slots=10**8)
    with pytest.raises(ValueError, match=r"too large .*cells"):
        admit("exact", **problem)


def fleet_of(keys):
    rng = np.random.default_rng(1)
    rates = rng.lognormal(0, 1.648, keys)
    rates *= 1000 / rates.sum()
    tokens = rng.integers(200, 8000, keys).astype(np.float64)
    sizes = np.maximum(1, np.ceil(rates / 0.05)).astype(np.int64)
    return {"rates": rates, "values": rates * tokens, "sizes": sizes, "slots": 6000}, tokens


def test_exact_solves_a_whole_fleet_and_other_policies_have_less_value():
    problem, _ = fleet_of(128_824)
    reached = {policy: problem["values"][admit(policy, **problem).admitted].sum() for policy in ADMISSIONS}
    bound = bound_of(problem)
    assert reached["top_rate"] < reached["density"] <= reached["exact"] <= bound
    assert reached["exact"] > 0.999 * bound
    tenants = np.arange(128_824) % 3
    shared = admit("exact", **problem, tenants=tenants, tenant_quota=[1500, -1, 1000], tenant_floor=[0, 0, 500])
    used = np.bincount(tenants[shared.admitted], weights=problem["sizes"][shared.admitted])
    assert used.tolist()[::2] == [1500, 1000]
    assert used.sum() == 6000


def test_density_on_the_main_workload_takes_milliseconds():
    problem, tokens = fleet_of(128_824)
    limits = {"slot_tokens": tokens, "token_budget": 2e7, "tenants": np.arange(128_824) % 4, "tenant_quota": [-1] * 4}
    admit("density", **problem, **limits)
    assert usual_seconds(lambda: admit("density", **problem, **limits), times=5) < 0.3  # about 20 ms on a free core
