"""Fleets of unequal, absent and full destinations; tenants; and the loss of any one destination."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.routing import build_table
from planner.simulation.synthetic import source_rate_shape
from tests.routing.reference import plain_after_loss, plain_placement

RATES = st.lists(st.one_of(st.sampled_from([0.0, 1.0, 2.0, 1e-300, 1e300]), st.floats(0, 50)), max_size=25)
CAPACITY = st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(rates=RATES, capacity=CAPACITY, data=st.data())
def test_unequal_destinations_are_filled_in_proportion_as_the_plain_rule_does(rates, capacity, data):
    count = len(capacity)
    available = data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))
    cold = np.where(available, 1.5, 0.0)
    table = build_table(
        rates, destinations=count, q_cap=3.0, slots=30, cold_load=cold, capacity=capacity, available=available
    )
    if len({c for c, a in zip(capacity, available, strict=True) if a}) > 1:
        load = cold.tolist()
        expected = plain_placement(
            [rates[b] for b in table.admitted], table.replicas.tolist(), capacity, available, load
        )
        assert [table.members_of(b).tolist() for b in table.admitted] == expected
        assert table.load.tolist() == load
    assert table.replicas.max(initial=0) <= sum(available)
    assert not np.isin(table.members, np.flatnonzero(~np.array(available))).any()
    assert (table.load[~np.array(available)] == 0).all()


def test_a_destination_twice_as_fast_carries_twice_the_load():
    rates = np.full(3_000, 0.1)
    table = build_table(rates, destinations=3, q_cap=1e9, slots=10**6, capacity=[1.0, 2.0, 1.0])
    assert table.load == pytest.approx([75.0, 150.0, 75.0], rel=0.01)
    assert table.imbalance == pytest.approx(1.0, abs=0.01)


def test_a_large_key_does_not_start_on_the_slowest_destination_because_all_are_empty():
    table = build_table([10.0, 1.0], destinations=2, q_cap=100.0, slots=9, capacity=[0.1, 1.0])
    assert table.members_of(0).tolist() == [1]


def test_cold_rate_is_spread_by_capacity_over_the_available():
    table = build_table(
        [6.0], destinations=3, q_cap=1.0, slots=0, capacity=[1.0, 2.0, 5.0], available=[True, True, False]
    )
    assert table.load == pytest.approx([2.0, 4.0, 0.0])
    assert table.imbalance == 1.0


def test_unavailable_destinations_take_nothing_and_do_not_count_in_the_mean():
    available = np.array([True, False, True, True])
    table = build_table(np.ones(30), destinations=4, q_cap=2.0, slots=30, available=available)
    assert table.load[1] == 0
    assert table.load[[0, 2, 3]] == pytest.approx([10.0] * 3)
    assert table.imbalance == pytest.approx(1.0)
    assert np.isnan(table.after_loss[1])
    assert not (table.backup == 1).any()


def test_key_is_clamped_to_the_available_destinations_and_flagged():
    table = build_table([9.0, 1.0], destinations=4, q_cap=3.0, slots=9, available=[True, True, False, False])
    assert table.members_of(0).tolist() == [0, 1]
    assert table.cannot_fit.tolist() == [0]


@settings(max_examples=150, deadline=None)
@given(rates=RATES, capacity=CAPACITY, slots=st.integers(0, 30), data=st.data())
def test_n_minus_1_table_follows_from_members_and_backups(rates, capacity, slots, data):
    rates = [min(r, 50.0) for r in rates]
    count = len(capacity)
    available = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any)))
    table = build_table(rates, destinations=count, q_cap=3.0, slots=slots, capacity=capacity, available=available)
    planned = np.zeros(count)
    for key in table.admitted:
        planned[table.members_of(key)] += rates[key] / len(table.members_of(key))
    for lost in range(count):
        if available[lost]:
            expected = plain_after_loss(table, rates, table.load - planned, lost)
            assert table.after_loss[lost] == pytest.approx(expected, rel=1e-9)
        else:
            assert np.isnan(table.after_loss[lost])


@settings(max_examples=150, deadline=None)
@given(rates=RATES, capacity=CAPACITY)
def test_backup_is_an_available_non_member_or_none(rates, capacity):
    count = len(capacity)
    available = np.ones(count, dtype=bool)
    available[-1] = count == 1
    table = build_table(rates, destinations=count, q_cap=1.0, slots=40, capacity=capacity, available=available)
    for row, key in enumerate(table.admitted):
        members = table.members_of(key)
        if len(members) == available.sum():
            assert table.backup[row] == -1
        else:
            assert available[table.backup[row]]
            assert table.backup[row] not in members


@settings(max_examples=200, deadline=None)
@given(rates=st.lists(st.floats(0, 2.9), max_size=30), destinations=st.integers(2, 6))
def test_after_a_loss_no_survivor_exceeds_the_mean_by_more_than_the_largest_key_that_moves(rates, destinations):
    table = build_table(rates, destinations=destinations, q_cap=3.0, slots=40)
    for lost in range(destinations):
        survivors = np.delete(table.load, lost)
        mean = table.load.sum() / (destinations - 1)
        moved = [rates[b] for b in table.admitted if table.members_of(b).tolist() == [lost]]
        bound = max(survivors.max(), mean + max(moved, default=0.0))
        assert table.after_loss[lost] * mean <= bound * (1 + 1e-12)


def test_the_loss_of_any_destination_leaves_the_main_workload_within_five_percent():
    rates = np.random.default_rng(1).permutation(source_rate_shape())
    for slots in (3_840, 10**9):
        table = build_table(rates, destinations=30, q_cap=0.1, slots=slots)
        assert 1.0 <= table.worst_loss <= 1.05


def test_loss_of_the_only_destination_has_no_survivors():
    table = build_table([1.0, 2.0], destinations=1, q_cap=9.0, slots=2)
    assert table.after_loss.tolist() == [np.inf]
    assert table.worst_loss == np.inf
    assert table.backup.tolist() == [-1, -1]


def test_thirty_two_shuffles_of_the_main_workload_give_identical_tables():
    rates = source_rate_shape()
    rng = np.random.default_rng(5)
    for slots in (3_840, 10**9):
        one = build_table(rates, destinations=30, q_cap=0.1, slots=slots)
        for _ in range(32):
            order = rng.permutation(len(rates))
            two = build_table(rates[order], destinations=30, q_cap=0.1, slots=slots)
            assert np.array_equal(order[two.admitted], one.admitted)
            for name in ("offsets", "members", "backup", "load", "after_loss"):
                assert np.array_equal(getattr(two, name), getattr(one, name))
            assert (two.total_rate, two.admitted_rate, two.imbalance) == (
                one.total_rate,
                one.admitted_rate,
                one.imbalance,
            )


@settings(max_examples=200, deadline=None)
@given(
    rates=RATES,
    tokens=st.lists(st.integers(0, 40), min_size=25, max_size=25),
    room=st.lists(st.integers(0, 60), min_size=3, max_size=3),
    policy=st.sampled_from(["top_rate", "density"]),
    slots=st.integers(0, 30),
)
def test_no_destination_keeps_more_tokens_warm_than_its_budget(rates, tokens, room, policy, slots):
    tokens = tokens[: len(rates)]
    table = build_table(
        rates, destinations=3, q_cap=20.0, slots=slots, prefix_tokens=tokens, token_budget=room, admission=policy
    )
    held = np.zeros(3)
    for key in table.admitted:
        assert len(set(table.members_of(key).tolist())) == len(table.members_of(key))
        held[table.members_of(key)] += tokens[key]
    assert (held <= room).all()
    assert table.slots_used <= slots
    assert list(table.admitted) == sorted(table.admitted, key=lambda b: (-rates[b], b))
    assert table.admitted_value <= table.value_bound
    # Nothing that fits is left out.
    for key in set(range(len(rates))) - set(table.admitted.tolist()):
        k = min(3, max(1, int(np.ceil(min(rates[key], 1e6) / 20.0))))
        fits = int((held + tokens[key] <= room).sum()) >= k
        assert not fits or table.slots_used + k > slots


def test_key_too_long_for_every_destination_is_cold_and_other_keys_get_its_slots():
    table = build_table(
        [9.0, 5.0, 4.0], destinations=2, q_cap=50.0, slots=9, prefix_tokens=[90, 30, 30], token_budget=50
    )
    assert table.admitted.tolist() == [1, 2]
    assert table.load.sum() == pytest.approx(18.0)
    assert table.load.tolist() == [9.5, 8.5]


def test_bound_shows_a_gap_when_a_key_has_no_room():
    table = build_table(
        [5.0, 4.0, 3.9, 3.0],
        destinations=2,
        q_cap=100.0,
        slots=9,
        prefix_tokens=[1.0] * 4,
        slot_tokens=[6, 4, 4, 6],
        token_budget=10,
    )
    assert table.admitted.tolist() == [0, 1, 2]
    assert table.value_bound == pytest.approx(15.9)
    assert table.value_gap == pytest.approx(3.0 / 15.9)


def test_a_floor_goes_to_another_key_of_the_tenant_when_the_first_fits_nowhere():
    table = build_table(
        [10.0, 9.5, 9.0, 5.0, 4.0],
        destinations=2,
        q_cap=100.0,
        slots=3,
        slot_tokens=[1, 1, 1, 15, 1],
        token_budget=10,
        tenants=[0, 0, 0, 1, 1],
        tenant_floor=[0, 1],
    )
    assert table.tenant_slots.tolist() == [2, 1]


@settings(max_examples=200, deadline=None)
@given(
    rates=st.lists(st.floats(0.1, 20), min_size=1, max_size=14),
    tokens=st.lists(st.integers(0, 30), min_size=14, max_size=14),
    owner=st.lists(st.integers(0, 2), min_size=14, max_size=14),
    room=st.integers(0, 60),
    policy=st.sampled_from(["top_rate", "density", "exact"]),
    slots=st.integers(3, 14),
)
def test_quotas_and_floors_hold_under_a_token_budget(rates, tokens, owner, room, policy, slots):
    tokens, owner = np.array(tokens[: len(rates)]), np.array(owner[: len(rates)])
    table = build_table(
        rates, destinations=2, q_cap=50.0, slots=slots, slot_tokens=tokens, token_budget=room, admission=policy,
        tenants=owner, tenant_quota=[-1, 2, 3], tenant_floor=[0, 1, 2],
    )  # fmt: skip
    held = np.zeros(2)
    for key in table.admitted:
        held[table.members_of(key)] += tokens[key]
    assert (held <= room).all()
    assert table.slots_used <= slots
    assert (table.tenant_slots[1:] <= [2, 3]).all()
    for tenant, floor in ((1, 1), (2, 2)):
        # Reserved keys are placed first, so a floor is missed only where the tenant's keys do not fit.
        fitting = sorted(tokens[(owner == tenant) & (tokens <= room)])
        if room >= 60 or len(fitting) == 0:
            assert table.tenant_slots[tenant] >= min(floor, len(fitting))


def test_exact_excludes_a_key_that_no_destination_can_hold():
    args = {"destinations": 2, "q_cap": 1e6, "slots": 3, "token_budget": 10, "admission": "exact"}
    long = build_table([100.0, 6, 5, 5, 5], prefix_tokens=[1.0] * 5, slot_tokens=[15, 7, 5, 5, 5], **args)
    without = build_table([6.0, 5, 5, 5], prefix_tokens=[1.0] * 4, slot_tokens=[7, 5, 5, 5], **args)
    assert long.admitted_value == without.admitted_value == 16.0
    assert long.value_bound == pytest.approx(without.value_bound)


def test_unavailable_destination_does_not_change_ties_among_the_others():
    args = {
        "destinations": 3, "q_cap": 100.0, "slots": 9, "slot_tokens": [1.0], "token_budget": 5,
        "available": [True, True, False], "cold_load": [0.1 + 0.2, 0.3, 0],
    }  # fmt: skip
    one, two = (build_table([1.0], capacity=speeds, **args) for speeds in ([1, 1, 1], [1, 1, 2]))
    assert one.members.tolist() == two.members.tolist() == [1]


def test_balance_target_is_a_multiple_of_the_load_that_the_cold_part_belongs_to():
    args = {"destinations": 2, "q_cap": 100.0, "slots": 9, "balance_target": 1.1}
    assert build_table([10.0, 1, 1], cold_load=[1000.0, 1000.0], **args).replicas.tolist() == [1, 1, 1]
    assert build_table([10.0, 1, 1], cold_load=[0.0, 0.0], **args).replicas.tolist() == [2, 1, 1]


@pytest.mark.parametrize("slots", [0, 3, 10**6])
def test_every_kind_of_array_is_read_and_none_is_changed(slots):
    base = np.array([3.0, 1.0, 2.0, 2.0, 0.5])
    expected = build_table(base, destinations=2, q_cap=1.5, slots=slots)
    frozen = base.copy()
    frozen.setflags(write=False)
    strided = np.repeat(base, 3)[::3]
    for rates in (base.tolist(), tuple(base.tolist()), frozen, strided, base.astype(">f8"), base.astype(np.float32)):
        assert build_table(rates, destinations=2, q_cap=1.5, slots=slots) == expected
    assert base.tolist() == [3.0, 1.0, 2.0, 2.0, 0.5]
    assert base.flags.writeable


def test_pickled_table_stays_read_only():
    table = build_table([3.0, 1.0, 2.0], destinations=2, q_cap=1.5, slots=4)
    assert table.row[0] == 0
    for copied in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table)):
        assert copied == table
        assert not copied.members.flags.writeable
        assert not copied.row.flags.writeable


def test_two_threads_give_equal_plans():
    rates = source_rate_shape(20_000)
    expected = build_table(rates, destinations=30, q_cap=0.01, slots=10**6)
    with ThreadPoolExecutor(2) as pool:
        tables = list(pool.map(lambda _: build_table(rates, destinations=30, q_cap=0.01, slots=10**6), range(8)))
    assert all(table == expected for table in tables)


def test_density_prefers_higher_savings_per_slot_and_reports_the_gap():
    args = {"destinations": 2, "q_cap": 50.0, "slots": 1, "prefix_tokens": [10, 100]}
    by_rate = build_table([5.0, 4.0], **args)
    by_density = build_table([5.0, 4.0], admission="density", **args)
    assert by_rate.admitted.tolist() == [0]
    assert by_density.admitted.tolist() == [1]
    assert by_rate.value_bound == by_density.value_bound == pytest.approx(400.0)
    assert by_rate.value_gap == pytest.approx(1 - 50 / 400)
    assert by_density.value_gap == pytest.approx(0.0, abs=1e-9)


def test_a_token_budget_that_does_not_bind_leaves_the_order_by_slots_alone():
    rates, tokens = [5.0, 4.0, 3.0, 1.0], [10.0, 100.0, 50.0, 400.0]
    args = {"destinations": 2, "q_cap": 50.0, "slots": 2, "prefix_tokens": tokens, "admission": "density"}
    by_slot = build_table(rates, **args)
    assert build_table(rates, token_budget=1e6, **args).admitted.tolist() == by_slot.admitted.tolist() == [1, 3]
    assert build_table(rates, token_budget=100, **args).admitted.tolist() == [1, 2]


def test_tenants_share_the_slots_within_quota_and_above_floor():
    rates = [9.0, 8.0, 7.0, 6.0, 1.0, 0.5]
    table = build_table(
        rates,
        destinations=2,
        q_cap=50.0,
        slots=4,
        tenants=[0, 0, 0, 0, 1, 1],
        tenant_quota=[3, -1],
        tenant_floor=[0, 1],
    )
    assert table.admitted.tolist() == [0, 1, 2, 4]
    assert table.tenant_slots.tolist() == [3, 1]
    assert table.tenant_rate.tolist() == [24.0, 1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capacity": [1.0, 0.0]}, r"capacity\[1\] = 0.0: expected a number from 1e-06 to 1e\+06"),
        ({"capacity": [1.0]}, r"capacity: expected shape \(2,\), got \(1,\)"),
        ({"capacity": [1.0, np.nan]}, r"capacity\[1\] = nan"),
        ({"available": [1, 0]}, "available: booleans expected, got dtype int64"),
        ({"available": [False, False]}, "available: none of 2 destinations is available"),
        ({"available": [True, False], "cold_load": [0.0, 1.0]}, r"cold_load\[1\] = 1.0: this destination is not"),
        ({"token_budget": 5}, "token_budget: needs prefix_tokens or slot_tokens"),
        ({"prefix_tokens": [1.0], "token_budget": [1.0, -1.0]}, r"token_budget\[1\] = -1.0"),
        ({"prefix_tokens": [-1.0]}, r"prefix_tokens\[0\] = -1.0"),
        ({"slot_tokens": [np.inf]}, r"slot_tokens\[0\] = inf"),
        ({"prefix_tokens": [1e300], "rates": [1e300], "slots": 0}, r"prefix_tokens\[0\] = 1e\+300: the product"),
        ({"tenants": [-1]}, r"tenants\[0\] = -1"),
        ({"tenants": [0.5]}, "tenants: whole numbers expected, got dtype float64"),
        ({"tenant_quota": [1]}, "require tenants"),
        ({"tenants": [3], "tenant_quota": [1]}, r"tenants\[0\] = 3: tenant_quota has 1 tenants"),
        ({"tenants": [0], "tenant_quota": [-2]}, r"tenant_quota\[0\] = -2"),
        ({"tenants": [0], "tenant_floor": [3]}, r"tenant_floor\[0\] = 3: the floors sum to 3, above slots = 2"),
        ({"tenants": [10**12]}, r"tenants\[0\] = 1000000000000: expected a whole number of at least 0 and at most"),
        ({"q_cap": 10**400}, "q_cap: a finite number expected, got one beyond float64"),
        ({"q_cap": "5"}, "q_cap = '5': a number expected"),
        ({"balance_target": 10**400}, "balance_target: a finite number expected"),
        ({"rates": [10**400]}, r"rates\[0\]: a finite number expected"),
        ({"rates": [1.0, None]}, r"rates\[1\] = None: numbers expected"),
        ({"rates": np.ma.masked_array([1.0, 2.0], [False, True])}, r"rates\[1\] is masked"),
        ({"rates": [1e300], "prefix_tokens": [1e300]}, r"prefix_tokens\[0\] = 1e\+300: the product with its rate"),
        ({"rates": [1e303], "q_cap": 1e305, "capacity": [1e-6, 1e-6]}, r"capacity\[0\] = 1e-06: a load of 1e\+303"),
        ({"destinations": 2**40}, "destinations = 1099511627776: at most"),
        ({"rates": [1.7e308], "cold_load": [1.7e308, 0.0]}, "rates and cold_load: their sum overflows"),
    ],
)
def test_bad_input_is_refused_by_name_index_and_value(change, message):
    args = {"rates": [1.0], "destinations": 2, "q_cap": 1.0, "slots": 2} | change
    with pytest.raises(ValueError, match=message):
        build_table(args.pop("rates"), **args)
