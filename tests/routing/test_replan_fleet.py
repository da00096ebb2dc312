"""Replanning when destinations come, go and differ, when moves are limited, and when tokens are."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from planner.routing import build_table, replan
from tests.routing.test_replan import drifted, source_rates

EPS = 1e-9
HAZARDS = st.one_of(st.floats(0, 100), st.sampled_from([0.0, 1e-300, 1e-12, 1.0, 1.0, 7.0, 1e300]))


def plain_recount(before, after, rates, prefix_tokens=None):
    """Moved rate, moved keys and tokens to warm, from nothing but the two tables' members."""
    rate, keys, tokens = [], [], 0.0
    for key in after.admitted.tolist():
        new = set(after.members_of(key).tolist())
        old = set(before.members_of(key).tolist()) if key < before.keys else set()
        gone = min(len(old), len(new)) - len(old & new)
        if gone > 0:
            rate.append(gone * rates[key] / len(new))
            keys.append(key)
        if prefix_tokens is not None:
            tokens += len(new - old) * prefix_tokens[key]
    return math.fsum(rate), sorted(keys), tokens


def forced_moves(before, after, rates, available):
    """Rate of the shares that a key held on a destination that is gone and still needs."""
    shares = []
    for key in after.admitted.tolist():
        if key < before.keys:
            old = before.members_of(key).tolist()
            new = len(after.members_of(key))
            gone = min(len(old), new) - min(len([r for r in old if available[r]]), new)
            shares.append(gone * rates[key] / new)
    return math.fsum(shares)


def check_table(before, after, rates, fresh, *, same_keys=True):
    for row, key in enumerate(after.admitted.tolist()):
        members = after.members[after.offsets[row] : after.offsets[row + 1]].tolist()
        assert members == sorted(set(members)), key
        assert all(after.available[members])
    if same_keys:
        assert np.array_equal(after.admitted, fresh.admitted)
        assert np.array_equal(after.replicas, fresh.replicas)
    share = np.repeat(rates[after.admitted] / after.replicas, after.replicas)
    planned = np.bincount(after.members, weights=share, minlength=after.destinations)
    scale = max(float(rates.sum()), 1e-300)
    cold = (math.fsum(rates) - math.fsum(rates[after.admitted])) * np.where(after.available, after.capacity, 0.0)
    cold /= after.capacity[after.available].sum()
    assert after.load / scale == pytest.approx((planned + cold) / scale, abs=1e-9)
    moved_rate, moved_keys, _ = plain_recount(before, after, rates)
    assert after.moved_rate / scale == pytest.approx(moved_rate / scale, rel=1e-9, abs=1e-15)
    assert after.moved_keys.tolist() == moved_keys
    assert after.moved == len(moved_keys)


@st.composite
def situations(draw):
    """An incumbent, later rates, and a fleet that changed."""
    rates = np.array(draw(st.lists(HAZARDS, min_size=1, max_size=30)))
    fleet = draw(st.integers(1, 6))
    grown = fleet + draw(st.integers(0, 2))
    q_cap = draw(st.floats(0.5, 60))
    slots = draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    speeds = 2.0 ** rng.integers(-1, 2, size=grown) if draw(st.booleans()) else np.ones(grown)
    available = rng.random(grown) < draw(st.sampled_from([0.6, 0.9, 1.0]))
    available[rng.integers(grown)] = True
    before = build_table(rates, destinations=fleet, q_cap=q_cap, slots=slots, capacity=speeds[:fleet])
    later = np.minimum(rates * np.exp(rng.standard_normal(len(rates)) * draw(st.sampled_from([0.0, 0.3, 1.0]))), 2e300)
    now = np.concatenate([later, rng.random(draw(st.integers(0, 8))) * 10])
    options = {
        "q_cap": q_cap,
        "slots": slots if draw(st.booleans()) else draw(st.integers(0, 60)),
        "destinations": grown,
        "capacity": speeds,
        "available": available,
    }
    return before, now, options


@settings(deadline=None, max_examples=200)
@given(situations(), st.sampled_from([1.0, 1.02, 1.3]))
def test_imbalance_is_within_the_factor_of_a_fresh_plan_after_any_change_of_the_fleet(situation, factor):
    before, now, options = situation
    fresh = build_table(now, **options)
    after = replan(before, now, max_imbalance_factor=factor, **options)
    assert after.imbalance <= factor * fresh.imbalance * (1 + EPS)
    check_table(before, after, now, fresh)
    assert replan(before, now, max_imbalance_factor=factor, **options) == after


@settings(deadline=None, max_examples=200)
@given(situations(), st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]))
def test_moved_rate_stays_within_the_share_or_the_forced_moves(situation, share):
    before, now, options = situation
    fresh = build_table(now, **options)
    after = replan(before, now, max_moved_share=share, **options)
    check_table(before, after, now, fresh)
    forced = forced_moves(before, after, now, options["available"])
    assert after.moved_rate <= max(share * after.admitted_rate, forced) * (1 + EPS)
    if share == 1.0:
        assert after.imbalance <= 1.02 * fresh.imbalance * (1 + EPS)


@settings(deadline=None, max_examples=100)
@given(situations())
def test_without_a_budget_only_the_keys_of_lost_destinations_move(situation):
    before, now, options = situation
    after = replan(before, now, max_moved_share=0, **options)
    for key in after.admitted.tolist():
        if key < before.keys and len(old := before.members_of(key)):
            new = after.members_of(key)
            alive = [r for r in old.tolist() if options["available"][r]]
            assert len(set(alive) & set(new.tolist())) == min(len(alive), len(new))


@settings(deadline=None, max_examples=100)
@given(situations())
def test_the_same_rates_on_the_same_fleet_move_nothing(situation):
    _, now, options = situation
    before = build_table(now, **options)
    after = replan(before, now, max_imbalance_factor=1.0, **options)
    assert (after.moved, after.moved_rate) == (0, 0.0)
    assert np.array_equal(after.members, before.members)


@pytest.mark.parametrize("keys", [300, 6_000])
def test_a_removed_destination_without_a_budget_moves_its_own_keys_only(keys):
    rates = source_rates(keys)
    before = build_table(rates, destinations=10, q_cap=50.0, slots=keys)
    available = np.arange(10) != 4
    after = replan(before, rates, q_cap=50.0, slots=keys, available=available, max_moved_share=0)
    own = [key for key in range(keys) if 4 in before.members_of(key)]
    assert after.moved_keys.tolist() == own
    assert after.load[4] == 0
    if keys == 6_000:  # the lost tenth spreads so evenly that no other key has to move
        assert after.imbalance <= 1.02


@pytest.mark.parametrize("keys", [300, 6_000])
def test_added_destinations_take_load_only_as_far_as_moves_are_allowed(keys):
    rates = source_rates(keys)
    before = build_table(rates, destinations=8, q_cap=50.0, slots=keys)
    options = {"q_cap": 50.0, "slots": keys, "destinations": 10}
    none = replan(before, rates, max_moved_share=0, **options)
    some = replan(before, rates, max_moved_share=0.1, **options)
    free = replan(before, rates, **options)
    fresh = build_table(rates, **options)
    assert none.moved == 0
    assert none.imbalance == pytest.approx(1.25, rel=0.01)
    assert 0 < some.moved_rate <= 0.1 * some.admitted_rate
    # A tenth of the rate off eight equal destinations leaves 0.9 / 8 on each.
    assert some.imbalance == pytest.approx(0.9 / 8 * 10, rel=0.01)
    assert free.imbalance <= 1.02 * fresh.imbalance * (1 + EPS)
    assert free.moved_rate / free.admitted_rate == pytest.approx(1 - 8 * 1.02 / 10, rel=0.02)


@pytest.mark.parametrize("keys", [400, 5_000])
def test_larger_share_of_moves_improves_balance_up_to_the_target(keys):
    rates = source_rates(keys)
    before = build_table(rates, destinations=12, q_cap=50.0, slots=keys)
    now = drifted(rates, 3, sigma=0.5)
    fresh = build_table(now, destinations=12, q_cap=50.0, slots=keys)
    least = replan(before, now, q_cap=50.0, slots=keys)
    needed = least.moved_rate / least.admitted_rate
    seen = [
        replan(before, now, q_cap=50.0, slots=keys, max_moved_share=share).imbalance
        for share in (0.0, needed / 4, needed / 2, needed * 1.001)
    ]
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > seen[1] > seen[2]
    assert seen[3] <= 1.02 * fresh.imbalance * (1 + EPS)


def lowest_top(before, rates, budget):
    """Optimum: the lowest maximum load that moves of at most `budget` requests/s reach (one destination a key)."""
    keys, fleet = len(rates), before.destinations
    count = keys * fleet
    home = np.array([before.members_of(key)[0] for key in range(keys)])
    variable = np.arange(count)
    moved = np.repeat(rates, fleet).reshape(keys, fleet)
    moved[np.arange(keys), home] = 0.0
    once = coo_array((np.ones(count), (variable // fleet, variable)), shape=(keys, count + 1))
    under = coo_array(
        (
            np.r_[np.repeat(rates, fleet), -np.ones(fleet)],
            (np.r_[variable % fleet, np.arange(fleet)], np.r_[variable, np.full(fleet, count)]),
        )
    )
    found = milp(
        np.r_[np.zeros(count), 1.0],
        constraints=[
            LinearConstraint(once, 1, 1),
            LinearConstraint(under, -np.inf, 0),
            LinearConstraint(np.r_[moved.ravel(), 0.0][None], -np.inf, budget),
        ],
        bounds=Bounds(0, np.r_[np.ones(count), np.inf]),
        integrality=np.r_[np.ones(count), 0],
        options={"time_limit": 20, "mip_rel_gap": 0.002},
    )
    return found.x[-1]


def test_a_limited_replan_comes_within_a_hundredth_of_the_best_balance_for_its_moves():
    rates = source_rates(128_824)[:60]
    ratios = []
    for seed in range(6):
        before = build_table(rates, destinations=8, q_cap=50.0, slots=60)
        now = drifted(rates, seed)
        fresh = build_table(now, destinations=8, q_cap=50.0, slots=60)
        for share in (0.01, 0.04):
            after = replan(before, now, q_cap=50.0, slots=60, max_moved_share=share)
            best = max(lowest_top(before, now, share * now.sum()), 1.02 * fresh.load.max())
            ratios.append(max(1.0, after.load.max() / best))
    assert np.mean(ratios) <= 1.01, ratios


def test_forced_moves_come_before_voluntary_moves():
    before = build_table([4.0, 3.0, 2.0, 1.0], destinations=3, q_cap=10.0, slots=4)
    assert [before.members_of(key).tolist() for key in range(4)] == [[0], [1], [2], [2]]
    after = replan(before, [4.0, 3.0, 2.0, 1.0], q_cap=10.0, slots=4, available=[True, True, False])
    assert after.moved_keys.tolist() == [2, 3]
    assert after.load.tolist() == [5.0, 5.0, 0.0]


def test_slow_destination_gets_load_in_proportion_to_its_speed():
    rates = source_rates(400)
    before = build_table(rates, destinations=4, q_cap=50.0, slots=400)
    after = replan(before, rates, q_cap=50.0, slots=400, capacity=[1.0, 1.0, 1.0, 0.5])
    assert after.imbalance <= 1.02 * 1.01
    assert after.load[3] / after.load[:3].mean() == pytest.approx(0.5, rel=0.05)
    # Only the excess load of the slow destination moves.
    assert after.moved_rate / after.admitted_rate == pytest.approx(1 / 4 - 0.5 * 1.02 / 3.5, abs=0.01)


def test_keys_that_lose_their_warm_slots_are_counted_without_moves():
    before = build_table([4.0, 3.0, 2.0, 1.0], destinations=2, q_cap=10.0, slots=3)
    after = replan(before, [4.0, 0.5, 2.0, 1.0], q_cap=10.0, slots=2)
    assert after.admitted.tolist() == [0, 2]
    assert (after.moved, after.moved_rate) == (0, 0.0)
    assert (after.cooled, after.cooled_rate) == (1, 0.5)
    fresh = build_table([4.0, 0.5, 2.0, 1.0], destinations=2, q_cap=10.0, slots=2)
    assert after.target_imbalance == pytest.approx(1.02 * fresh.imbalance)


def test_rewarm_tokens_count_the_cold_pairs_of_the_plan():
    before = build_table([4.0, 3.0, 2.0, 1.0], destinations=3, q_cap=10.0, slots=4)
    options = {"q_cap": 10.0, "slots": 5, "available": [True, True, False]}
    after = replan(before, [4.0, 3.0, 2.0, 1.0, 0.5], prefix_tokens=[1.0, 10.0, 100.0, 1e3, 1e4], **options)
    assert after.rewarm_tokens == 11_100.0
    assert replan(before, [4.0, 3.0, 2.0, 1.0], **options).rewarm_tokens is None


@pytest.mark.parametrize("rates", [[], [0.0, 0.0], [1e-300] * 7, [1e300] * 7, [1e300, 1e-300, 0.0, 1.0]])
@pytest.mark.parametrize("fleet", [1, 3])
@pytest.mark.parametrize("slots", [0, 2, 100])
@pytest.mark.parametrize("share", [None, 0.0, 0.5])
def test_extreme_rates_and_no_slots_are_planned(rates, fleet, slots, share):
    before = build_table(rates, destinations=fleet, q_cap=1.0, slots=slots)
    after = replan(before, rates, q_cap=1.0, slots=slots, max_moved_share=share, destinations=fleet + 1)
    assert np.isfinite(after.load).all()
    assert after.slots_used <= slots
    fresh = build_table(rates, q_cap=1.0, slots=slots, destinations=fleet + 1)
    if share is None:
        assert after.imbalance <= 1.02 * fresh.imbalance * (1 + EPS)
    check_table(before, after, np.array(rates, dtype=float), fresh)


@pytest.mark.parametrize("admission", ["density", "exact"])
def test_admission_and_tenants_are_those_of_a_fresh_plan(admission):
    rng = np.random.default_rng(5)
    rates = rng.lognormal(0, 1, 40)
    before = build_table(rates, destinations=4, q_cap=3.0, slots=30)
    options = {
        "q_cap": 3.0,
        "slots": 25,
        "prefix_tokens": rng.integers(1, 100, 40).astype(float),
        "admission": admission,
        "balance_target": 1.5,
    }
    if admission == "density":
        options |= {"tenants": np.arange(40) % 2, "tenant_quota": [5, -1], "tenant_floor": [0, 3]}
    after = replan(before, rates, **options)
    fresh = build_table(rates, destinations=4, **options)
    assert after.admission == admission
    assert np.array_equal(after.admitted, fresh.admitted)
    assert (after.admitted_value, after.value_bound) == (fresh.admitted_value, fresh.value_bound)
    assert np.array_equal(after.tenant_slots, fresh.tenant_slots)
    check_table(before, after, rates, fresh)


def test_heavy_keys_swap_among_thousands_of_light_keys(monkeypatch):
    monkeypatch.setattr(sys.modules["planner.routing.replan"], "SMALL", 0)
    before = build_table([6.0, 5.0, 4.0, 3.0], destinations=2, q_cap=50.0, slots=4)
    assert before.load.tolist() == [9.0, 9.0]
    after = replan(before, [6.0, 5.0, 2.0, 5.0], q_cap=50.0, slots=4)
    assert after.imbalance == build_table([6.0, 5.0, 2.0, 5.0], destinations=2, q_cap=50.0, slots=4).imbalance
    assert after.moved_rate < 18.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_moved_share": -0.1}, "max_moved_share = -0.1"),
        ({"max_moved_share": 1.5}, "max_moved_share = 1.5"),
        ({"max_moved_share": float("nan")}, "max_moved_share = nan"),
        ({"max_moved_share": "all"}, "max_moved_share = 'all'"),
        ({"destinations": 1}, "destinations = 1: fewer than the incumbent's 2"),
        ({"destinations": 2.5}, "destinations = 2.5"),
        ({"available": [False, False]}, "available"),
        ({"available": [True]}, "available"),
        ({"available": [1, 0]}, "available"),
        ({"capacity": [1.0, 0.0]}, r"capacity\[1\] = 0.0"),
        ({"capacity": [1.0, 1.0, 1.0]}, "capacity"),
        ({"destinations": 3, "capacity": [1.0, 1.0]}, "capacity"),
        ({"prefix_tokens": [1.0, -1.0]}, r"prefix_tokens\[1\] = -1.0"),
        ({"slot_tokens": [float("inf"), 1.0]}, r"slot_tokens\[0\] = inf"),
        ({"token_budget": 5.0}, "token_budget"),
        ({"token_budget": [5.0, -1.0], "prefix_tokens": [1.0, 1.0]}, r"token_budget\[1\] = -1.0"),
        ({"admission": "best"}, "admission = 'best'"),
        ({"balance_target": 0.5}, "balance_target = 0.5"),
        ({"tenants": [0, -1]}, r"tenants\[1\] = -1"),
        ({"tenant_quota": [1]}, "tenant_quota"),
        ({"tenants": [0, 0], "tenant_quota": [-2]}, r"tenant_quota\[0\] = -2"),
        ({"tenants": [0, 0], "tenant_floor": [-1]}, r"tenant_floor\[0\] = -1"),
        ({"max_imbalance_factor": float("inf")}, "max_imbalance_factor = inf"),
    ],
)
def test_bad_argument_is_refused_by_name(change, words):
    before = build_table([1.0, 2.0], destinations=2, q_cap=5.0, slots=2)
    with pytest.raises(ValueError, match=words):
        replan(before, **{"rates": [1.0, 2.0], "q_cap": 5.0, "slots": 2, **change})
