"""Every figure of an explanation, against a count by hand or by the plain rule."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.routing import build_table, replan
from planner.routing.explain import Placement, Reason, explain_destination, explain_key


def plain_turns(order, sizes, slots, tenants=None, quota=None, cost=None, budget=None):
    """Admit greedily; return the admitted keys, and the limits that refused each other key at its turn."""
    taken, refused, used, tokens = [], {}, 0, 0.0
    by_tenant = {}
    for b in order:
        why = set()
        if used == slots:
            why.add("slots_gone")
        elif sizes[b] > slots - used:
            why.add("slots_short")
        if quota is not None and quota[tenants[b]] >= 0 and by_tenant.get(tenants[b], 0) + sizes[b] > quota[tenants[b]]:
            why.add("quota_full")
        if cost is not None and tokens + cost[b] > budget:
            why.add("tokens_short")
        if why:
            refused[b] = why
            continue
        taken.append(b)
        used += sizes[b]
        if tenants is not None:
            by_tenant[tenants[b]] = by_tenant.get(tenants[b], 0) + sizes[b]
        if cost is not None:
            tokens += cost[b]
    return taken, refused


def by_rate(rates):
    return sorted(range(len(rates)), key=lambda b: (-rates[b], b))


# --- By hand ------------------------------------------------------------------------------------------------
HAND = np.array([3.0, 9.0, 2.0, 2.0, 1.0])
OPTIONS = {"destinations": 3, "q_cap": 5.0, "slots": 4, "cold_load": [0.5, 0.25, 0.25]}


def test_admitted_key_shows_the_load_before_it_and_the_next_destination():
    # Key 1 (k = 2) goes to the lightest, 1 and 2 (0.25 each), 4.5 each; key 0 then to destination 0 at 0.5.
    table = build_table(HAND, **OPTIONS)
    busiest = explain_key(table, HAND, 1, cold_load=OPTIONS["cold_load"])
    assert (busiest.rate, busiest.rank, busiest.keys) == (9.0, 1, 5)
    assert busiest.share_of_total == 9 / 17
    assert (busiest.wanted, busiest.planned, busiest.cannot_fit) == (2, 2, False)
    assert (busiest.admitted, busiest.reason, busiest.figures) == (True, Reason.ADMITTED, {})
    assert busiest.members == (
        Placement(1, 4.5, 0.25, 0, 0.0, 0.25, 4.75, rank=1, among=3, capacity=1.0, level=4.75, kept=False),
        Placement(2, 4.5, 0.25, 0, 0.0, 0.25, 4.75, rank=2, among=3, capacity=1.0, level=4.75, kept=False),
    )
    assert (busiest.next_destination, busiest.next_load) == (0, 0.5)
    assert busiest.backup == 0
    # Key 2 (rate 2): destination 0 carries 3.5 by then, the others 4.75.
    third = explain_key(table, HAND, 2, cold_load=OPTIONS["cold_load"])
    assert third.rank == 3
    assert third.members == (
        Placement(0, 2.0, 0.5, 1, 3.0, 3.5, 5.5, rank=1, among=3, capacity=1.0, level=5.5, kept=False),
    )
    assert (third.next_destination, third.next_load) == (1, 4.75)


def test_reason_is_that_no_slots_remain_at_the_rank_of_the_key():
    table = build_table(HAND, **OPTIONS)
    for key, rank in ((3, 4), (4, 5)):
        told = explain_key(table, HAND, key, cold_load=OPTIONS["cold_load"])
        assert (told.rank, told.admitted, told.reason) == (rank, False, Reason.SLOTS_GONE)
        assert told.figures == {"keys_before": 3, "slots": 4, "last_rate": 2.0, "reserved_keys": 0}
        assert (told.members, told.next_load, told.backup) == ((), None, None)


def test_key_with_more_slots_than_remain_is_skipped_and_smaller_keys_fit():
    rates = np.array([4.0, 3.0, 9.0])  # k = 1, 1, 3 with q_cap 3.5: 2, 1, 3
    table = build_table(rates, destinations=3, q_cap=3.5, slots=4)
    assert table.admitted.tolist() == [2, 1]
    told = explain_key(table, rates, 0)
    assert (told.reason, told.planned) == (Reason.SLOTS_SHORT, 2)
    assert told.figures == {"needed": 2, "left": 1, "keys_before": 1}


def test_key_larger_than_the_fleet_is_on_all_destinations_with_its_wanted_k():
    rates = np.array([100.0, 1.0])
    table = build_table(rates, destinations=3, q_cap=10.0, slots=5)
    told = explain_key(table, rates, 0)
    assert (told.wanted, told.planned, told.cannot_fit, told.backup) == (10, 3, True, None)
    assert (told.next_destination, told.next_load) == (None, None)


def test_balance_target_raises_the_planned_k_but_not_the_wanted_k():
    rates = np.array([6.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    table = build_table(rates, destinations=3, q_cap=10.0, slots=9, balance_target=1.0)
    told = explain_key(table, rates, 0, balance_target=1.0)
    assert (told.wanted, told.planned) == (1, 2)


def test_reason_is_that_the_quota_of_the_tenant_is_full():
    rates, tenants = np.array([5.0, 4.0, 3.0, 2.0]), np.array([0, 0, 0, 1])
    options = {"tenants": tenants, "tenant_quota": np.array([2, -1])}
    table = build_table(rates, destinations=2, q_cap=9.0, slots=4, **options)
    told = explain_key(table, rates, 2, **options)
    assert told.reason == Reason.QUOTA_FULL
    assert told.figures == {"tenant": 0, "quota": 2, "used": 2, "needed": 1}
    # With three slots in all, those are gone after key 3; at its own turn one was left.
    table = build_table(rates, destinations=2, q_cap=9.0, slots=3, **options)
    assert explain_key(table, rates, 2, **options).reason == Reason.QUOTA_FULL


def test_two_limits_without_space_give_no_single_reason():
    rates, tenants = np.array([5.0, 4.0, 3.0]), np.array([0, 0, 0])
    options = {"tenants": tenants, "tenant_quota": np.array([2])}
    table = build_table(rates, destinations=2, q_cap=9.0, slots=2, **options)
    told = explain_key(table, rates, 2, **options)
    assert told.reason == Reason.UNKNOWN
    assert told.figures["could_be"] == ["slots_gone", "quota_full"]
    assert (told.figures["last_rate"], told.figures["quota"], told.figures["used"]) == (4.0, 2, 2)


def test_reserved_slots_of_a_tenant_count_as_taken():
    rates, tenants = np.array([5.0, 4.0, 1.0]), np.array([0, 0, 1])
    options = {"tenants": tenants, "tenant_floor": np.array([0, 1])}
    table = build_table(rates, destinations=2, q_cap=9.0, slots=2, **options)
    told = explain_key(table, rates, 1, **options)
    assert told.reason == Reason.SLOTS_GONE
    assert told.figures == {"keys_before": 2, "slots": 2, "last_rate": 1.0, "reserved_keys": 1}


def test_keys_with_more_value_per_slot_are_the_reason():
    rates, tokens = np.array([5.0, 4.0, 3.0]), np.array([10.0, 100.0, 90.0])
    table = build_table(rates, destinations=2, q_cap=9.0, slots=2, prefix_tokens=tokens, admission="density")
    told = explain_key(table, rates, 0, prefix_tokens=tokens)
    assert told.reason == Reason.PREFERRED
    assert told.figures == {"density": 50.0, "lowest_density": 270.0, "unit": "slot", "as_a_set": False}


def test_exact_compares_sets_and_may_exclude_the_denser_key():
    rates = np.array([5.0, 4.9, 4.9, 4.0])  # k = 1, 2... by q_cap 4.9: key 0 needs 2
    table = build_table(rates, destinations=2, q_cap=4.9, slots=2, admission="exact")
    told = explain_key(table, rates, 0)
    assert told.reason == Reason.PREFERRED
    assert told.figures == {"density": 2.5, "lowest_density": 4.9, "unit": "slot", "as_a_set": True}


def test_reason_is_that_the_tokens_of_the_fleet_do_not_suffice():
    rates, tokens = np.array([5.0, 4.0, 3.0]), np.array([60.0, 60.0, 60.0])
    options = {"prefix_tokens": tokens, "token_budget": 75.0}
    table = build_table(rates, destinations=2, q_cap=9.0, slots=9, **options)
    told = explain_key(table, rates, 2, **options)
    assert told.reason == Reason.TOKENS_SHORT
    assert told.figures == {"needed_tokens": 60.0, "left_tokens": 30.0}


def test_no_destination_had_room_for_its_tokens():
    rates, tokens = np.array([5.0, 4.0, 3.0]), np.array([60.0, 60.0, 70.0])
    options = {"prefix_tokens": tokens, "token_budget": 100.0}
    table = build_table(rates, destinations=2, q_cap=9.0, slots=9, **options)  # 200 in all, 40 left on each
    told = explain_key(table, rates, 2, **options)
    assert told.reason == Reason.NO_ROOM
    assert told.figures == {"needed": 1, "tokens": 70.0, "with_room": 0}


@pytest.mark.parametrize("admission", ["top_rate", "density", "exact"])
def test_key_without_room_has_that_reason_although_later_keys_took_its_slot(admission):
    rates, tokens = np.array([5.0, 4.0, 3.0, 0.1]), np.array([60.0, 60.0, 70.0, 10.0])
    options = {"prefix_tokens": tokens, "token_budget": 100.0}
    table = build_table(rates, destinations=2, q_cap=9.0, slots=3, admission=admission, **options)
    assert table.admitted.tolist() == [0, 1, 3]
    told = explain_key(table, rates, 2, **options)
    if admission == "exact":  # it is not solved again, so only the end is known
        assert told.reason == Reason.UNKNOWN
        assert set(told.figures["could_be"]) == {"preferred_others", "no_room"}
    else:
        assert (told.reason, told.figures["with_room"]) == (Reason.NO_ROOM, 0)
    table = build_table(rates, destinations=2, q_cap=9.0, slots=4, admission=admission, **options)
    told = explain_key(table, rates, 2, **options)
    assert told.reason == Reason.NO_ROOM
    assert told.figures == {"needed": 1, "tokens": 70.0, "with_room": 0}


def test_inputs_of_another_table_give_no_reason():
    table = build_table(HAND, **OPTIONS)
    told = explain_key(table, HAND * 3, 4)
    assert (told.reason, told.figures) == (Reason.UNKNOWN, {"could_be": []})


def test_explanation_lists_lost_gained_and_kept_destinations_of_the_incumbent():
    before = build_table(HAND, **OPTIONS)
    now = replan(before, HAND, q_cap=4.0, slots=6, cold_load=OPTIONS["cold_load"])
    told = explain_key(now, HAND, 1, incumbent=before)
    assert (told.was, told.lost) == ((1, 2), ())
    assert told.gained == (0,)
    assert [p.kept for p in told.members] == [False, True, True]
    assert explain_key(before, HAND, 1, incumbent=[0, 2, 7]).lost == (0, 7)
    assert explain_key(before, HAND, 1).was is None
    assert explain_key(before, HAND, 3, incumbent=before).was == ()


def test_destination_shows_its_load_its_keys_and_the_effect_of_its_loss():
    table = build_table(HAND, **OPTIONS)
    # Destination 0: cold 0.5, keys 0 (3) and 2 (2). Lost, they go to 1 and 2, which carry 4.75 each.
    told = explain_destination(table, HAND, 0, slot_tokens=[10.0, 20.0, 30.0, 40.0, 50.0])
    assert (told.load, told.cold, told.keys, told.slots_of_all, told.warm_tokens) == (5.5, 0.5, 2, 4, 40.0)
    assert told.relative_load == pytest.approx(5.5 / 5.0)
    assert [(k.key, k.rate, k.share, k.replicas) for k in told.busiest] == [(0, 3.0, 3.0, 1), (2, 2.0, 2.0, 1)]
    first, second = told.receivers
    assert (first.destination, first.backup_keys, first.backup_rate, first.member_keys) == (1, 1, 3.0, 0)
    assert (second.destination, second.backup_keys, second.backup_rate) == (2, 1, 2.0)
    assert (first.cold_rate, first.load_after, second.load_after) == (0.25, 8.0, 7.0)
    assert told.imbalance_after == pytest.approx(8.0 / 7.5)
    # Destination 1 holds half of key 1: the other half's destination takes it.
    other = explain_destination(table, HAND, 1)
    taker = next(x for x in other.receivers if x.destination == 2)
    assert (taker.member_keys, taker.member_rate, taker.backup_keys) == (1, 4.5, 0)
    assert other.warm_tokens is None
    assert len(explain_destination(table, HAND, 0, top=1).busiest) == 1


def test_destination_that_is_not_available_or_alone_has_no_receivers():
    table = build_table([2.0], destinations=2, q_cap=5.0, slots=2, available=[True, False])
    down, only = explain_destination(table, [2.0], 1), explain_destination(table, [2.0], 0)
    assert (down.available, down.load, down.imbalance_after, down.receivers) == (False, 0.0, None, ())
    assert (only.imbalance_after, only.receivers) == (math.inf, ())


@pytest.mark.parametrize("bad", [-1, 5])
def test_bad_index_is_refused_by_name(bad):
    table = build_table(HAND, **OPTIONS)
    with pytest.raises(IndexError, match=f"key = {bad}: the table has 5 keys"):
        explain_key(table, HAND, bad)
    with pytest.raises(IndexError, match=f"r = {bad}: the table has 3 destinations"):
        explain_destination(table, HAND, bad)


def test_rates_of_another_length_are_refused():
    with pytest.raises(ValueError, match="rates"):
        explain_key(build_table(HAND, **OPTIONS), HAND[:3], 0)


# --- Against the plain rule ----------------------------------------------------------------------------------
FEW = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0])


@st.composite
def problems(draw):
    rates = np.array(draw(st.lists(FEW, min_size=1, max_size=14)))
    r = draw(st.integers(1, 5))
    available = np.array(draw(st.lists(st.booleans(), min_size=r, max_size=r)))
    available[draw(st.integers(0, r - 1))] = True
    options = {
        "destinations": r,
        "q_cap": draw(st.sampled_from([1.0, 2.5, 10.0])),
        "slots": draw(st.integers(0, 12)),
        "available": available,
        "capacity": np.array(draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=r, max_size=r))),
    }
    if draw(st.booleans()):
        options["prefix_tokens"] = np.array(draw(st.lists(st.sampled_from([1.0, 4.0, 9.0]), **_size(rates))))
        options["admission"] = draw(st.sampled_from(["top_rate", "density", "exact"]))
        if draw(st.booleans()):
            options["token_budget"] = draw(st.sampled_from([5.0, 12.0, 40.0]))
    if draw(st.booleans()):
        options["tenants"] = np.array(draw(st.lists(st.integers(0, 2), **_size(rates))))
        options["tenant_quota"] = np.array(draw(st.lists(st.integers(-1, 4), min_size=3, max_size=3)))
    return rates, options


def _size(rates):
    return {"min_size": len(rates), "max_size": len(rates)}


def inputs_of(options):
    names = ("balance_target", "prefix_tokens", "token_budget", "tenants", "tenant_quota")
    return {name: options[name] for name in names if name in options}


@settings(max_examples=400, deadline=None)
@given(problems())
def test_reason_is_the_single_limit_that_refused_the_key_at_its_turn(problem):
    rates, options = problem
    table = build_table(rates, **options)
    told = [explain_key(table, rates, b, **inputs_of(options)) for b in range(len(rates))]
    assert [b for b in by_rate(rates) if told[b].admitted] == table.admitted.tolist()
    assert [t.rank for t in told] == [by_rate(rates).index(b) + 1 for b in range(len(rates))]
    assert all(told[b].planned == table.replicas[row] for row, b in enumerate(table.admitted.tolist()))
    left = options["slots"] - table.slots_used
    for t in told:  # whatever the policy: a limit that still has room in the end refused nothing
        if t.reason in (Reason.SLOTS_GONE, Reason.SLOTS_SHORT, Reason.PREFERRED):
            assert t.planned > left
        if t.reason == Reason.QUOTA_FULL:
            tenant = options["tenants"][t.key]
            assert table.tenant_slots[tenant] + t.planned > options["tenant_quota"][tenant] == t.figures["quota"]
        if t.reason == Reason.NO_ROOM:
            assert "token_budget" in options
    if table.admission != "top_rate":
        return
    sizes = [t.planned for t in told]
    cost = options["prefix_tokens"] * sizes if "token_budget" in options else None
    budget = options.get("token_budget", 0.0) * options["available"].sum()
    tenants, quota = options.get("tenants"), options.get("tenant_quota")
    taken, refused = plain_turns(by_rate(rates), sizes, options["slots"], tenants, quota, cost, budget)
    if taken != table.admitted.tolist():
        return  # some were refused when they were placed: checked above
    for b, why in refused.items():
        if len(why) == 1:
            assert {told[b].reason.value} == why
        else:
            assert told[b].reason == Reason.UNKNOWN
            assert set(told[b].figures["could_be"]) == why


@settings(max_examples=300, deadline=None)
@given(problems())
def test_load_before_a_key_is_that_of_the_heavier_keys(problem):
    rates, options = problem
    table = build_table(rates, **options)
    cold_total = float(rates.sum()) - table.admitted_rate
    speeds = options["capacity"] * options["available"]
    load = cold_total * speeds / speeds.sum()
    keys_on = np.zeros(options["destinations"], dtype=int)
    for b in table.admitted.tolist():
        told = explain_key(table, rates, b, **inputs_of(options))
        assert [p.destination for p in told.members] == table.members_of(b).tolist()
        for p in told.members:
            assert p.load_before == pytest.approx(load[p.destination], abs=1e-12)
            assert p.heavier_keys == keys_on[p.destination]
            assert p.share == rates[b] / len(told.members)
            assert p.load_before == p.cold + p.heavier_load or p.load_before == pytest.approx(p.cold + p.heavier_load)
        if "token_budget" not in options:  # with one, refused keys may be followed by others out of the order
            assert sorted(p.rank for p in told.members) == list(range(1, len(told.members) + 1))
        for p in told.members:
            load[p.destination] += p.share
            keys_on[p.destination] += 1
    assert load == pytest.approx(table.load)


@settings(max_examples=300, deadline=None)
@given(problems())
def test_load_of_the_receivers_after_a_loss_equals_the_n_1_table(problem):
    rates, options = problem
    table = build_table(rates, **options)
    for r in range(options["destinations"]):
        told = explain_destination(table, rates, r)
        held = [b for b in table.admitted.tolist() if r in table.members_of(b)]
        assert told.keys == len(held)
        assert sorted(k.key for k in told.busiest) == sorted(held)
        assert told.load == pytest.approx(told.cold + sum(k.share for k in told.busiest), abs=1e-9)
        if not told.receivers:
            assert told.imbalance_after in (None, math.inf)
            continue
        whole = sum(x.backup_rate + x.member_rate + x.cold_rate for x in told.receivers)
        assert whole == pytest.approx(told.load, abs=1e-9)
        assert sum(x.backup_keys for x in told.receivers) == sum(k.replicas == 1 for k in told.busiest)
        speed = np.array([options["capacity"][x.destination] for x in told.receivers])
        after = np.array([x.load_after for x in told.receivers])
        if after.sum() > 0:
            assert told.imbalance_after == pytest.approx((after / speed).max() * speed.sum() / after.sum())


def test_explanation_shows_the_level_where_speeds_differ():
    rates = [6.0, 4.0, 3.0]
    table = build_table(rates, destinations=2, q_cap=50.0, slots=3, capacity=[1.0, 3.0])
    # 6 / 3 = 2 on the fast one; then 4 / 1 against 10 / 3; then 3 / 1 against 13 / 3.
    assert [table.members_of(key).tolist() for key in range(3)] == [[1], [1], [0]]
    second = explain_key(table, rates, 1)
    assert second.uneven
    assert (second.members[0].capacity, second.members[0].load_before) == (3.0, 6.0)
    assert second.members[0].level == pytest.approx(10 / 3)
    assert second.members[0].rank == 1
    assert (second.next_destination, second.next_load, second.next_level) == (0, 0.0, 4.0)
    assert not explain_key(build_table(rates, destinations=2, q_cap=50.0, slots=3), rates, 1).uneven
