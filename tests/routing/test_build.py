"""Algorithm 1: exact sizes, admission with skips, LPT placement, and hazards of floats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfinv
from scipy.stats import norm

from planner.routing import build_table
from tests.routing.reference import plain_table
from tests.speed import usual_seconds

RATES = st.lists(
    st.one_of(
        st.sampled_from([0.0, 1.0, 2.0, 3.0, 0.1, 0.3, 1e-300, 1e300]),
        st.floats(0, 50, allow_nan=False),
    ),
    max_size=40,
)


def lognormal_rates(keys: int, total: float) -> np.ndarray:
    weight = np.exp(2 * erfinv(0.756) * norm.ppf((np.arange(keys) + 0.5) / keys))
    return weight / weight.sum() * total


@settings(max_examples=300, deadline=None)
@given(
    rates=RATES,
    destinations=st.integers(1, 9),
    q_cap=st.sampled_from([0.1, 0.3, 1.0, 7.0, 1e-300]),
    slots=st.integers(0, 80),
    cold=st.sampled_from(["zeros", "ramp"]),
)
def test_table_equals_the_plain_algorithm(rates, destinations, q_cap, slots, cold):
    baseline = np.zeros(destinations) if cold == "zeros" else np.arange(destinations)[::-1] * 1.0
    table = build_table(rates, destinations=destinations, q_cap=q_cap, slots=slots, cold_load=baseline)
    admitted, members, load, used = plain_table(rates, destinations, q_cap, slots, baseline)
    assert table.admitted.tolist() == admitted
    assert [table.members_of(b).tolist() for b in admitted] == members
    assert table.load.tolist() == load
    assert table.slots_used == used <= slots
    for b in set(range(len(rates))) - set(admitted):
        assert table.members_of(b).size == 0


@settings(max_examples=200, deadline=None)
@given(rates=RATES, destinations=st.integers(1, 9), slots=st.integers(0, 60))
def test_backup_is_a_non_member_or_minus_one_when_all_are_members(rates, destinations, slots):
    table = build_table(rates, destinations=destinations, q_cap=1.0, slots=slots)
    for row, key in enumerate(table.admitted):
        members = table.members_of(key)
        if len(members) == destinations:
            assert table.backup[row] == -1
        else:
            assert 0 <= table.backup[row] < destinations
            assert table.backup[row] not in members


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 60), slots=st.integers(0, 90))
def test_shuffled_keys_get_the_same_destinations(seed, size, slots):
    rng = np.random.default_rng(seed)
    rates = rng.permutation(np.arange(1, size + 1)).astype(float)  # distinct, so no tie depends on the order
    order = rng.permutation(size)
    cold = np.zeros(7)
    one = build_table(rates, destinations=7, q_cap=9.0, slots=slots, cold_load=cold)
    two = build_table(rates[order], destinations=7, q_cap=9.0, slots=slots, cold_load=cold)
    for new, old in enumerate(order):
        assert two.members_of(new).tolist() == one.members_of(old).tolist()


@pytest.mark.parametrize("q_cap", [0.1, 0.3, 0.7, 1 / 3, 1e-9, 123.456])
def test_replicas_are_exact_at_multiples_of_q_cap(q_cap):
    whole = np.arange(1, 500)
    table = build_table(whole * q_cap, destinations=600, q_cap=q_cap, slots=10**9)
    assert table.replicas.tolist() == whole[::-1].tolist()
    above = build_table(np.nextafter(whole * q_cap, np.inf), destinations=600, q_cap=q_cap, slots=10**9)
    assert above.replicas.tolist() == (whole[::-1] + 1).tolist()


def test_key_that_does_not_fit_is_skipped_and_a_smaller_one_is_taken():
    table = build_table([5.0, 3.0, 1.0], destinations=5, q_cap=1.0, slots=6)
    assert table.admitted.tolist() == [0, 2]
    assert table.slots_used == 6


def test_key_beyond_the_fleet_is_clamped_and_flagged():
    table = build_table([1.0, 99.0, 1e300], destinations=4, q_cap=1.0, slots=100)
    assert table.cannot_fit.tolist() == [1, 2]
    assert table.members_of(1).tolist() == [0, 1, 2, 3]


def test_cold_rate_is_spread_evenly_by_default_and_kept_when_given():
    table = build_table([4.0, 2.0, 2.0], destinations=2, q_cap=10.0, slots=1)
    assert table.load.tolist() == [6.0, 2.0]
    assert table.load.sum() == table.total_rate
    given_cold = build_table([4.0, 2.0, 2.0], destinations=2, q_cap=10.0, slots=1, cold_load=[5.0, 0.0])
    assert given_cold.load.tolist() == [5.0, 4.0]
    assert given_cold.imbalance == pytest.approx(5 / 4.5)


def test_balance_target_splits_a_key_that_alone_would_tilt_its_destination():
    rates = [52.0] + [1.0] * 48
    plain = build_table(rates, destinations=8, q_cap=1000.0, slots=1000)
    assert plain.imbalance == pytest.approx(52 / 12.5)
    spread = build_table(rates, destinations=8, q_cap=1000.0, slots=1000, balance_target=1.1)
    assert spread.replicas[0] == 4  # 52 / 4 = 13 <= 1.1 * 12.5 < 52 / 3
    assert spread.imbalance < 1.1


@pytest.mark.parametrize("rates", [[], [0.0] * 5, [1.0] * 5, [1e-300] * 5, [1e300] * 5, [1e-300, 1e300]])
@pytest.mark.parametrize("destinations", [1, 3])
@pytest.mark.parametrize("slots", [0, 2, 10**30])
def test_degenerate_inputs_give_a_consistent_table(rates, destinations, slots):
    table = build_table(rates, destinations=destinations, q_cap=1.0, slots=slots)
    assert np.isfinite(table.load).all()
    assert 1.0 <= table.imbalance <= destinations * (1 + 1e-12)
    assert table.load.sum() == pytest.approx(sum(rates), rel=1e-12, abs=0)
    assert len(table.offsets) == len(table.admitted) + 1
    if slots == 0:
        assert table.admitted.size == table.members.size == 0


def test_equal_inputs_give_equal_tables_and_different_ones_differ():
    args = {"destinations": 3, "q_cap": 2.0, "slots": 4}
    assert build_table([3.0, 1.0, 1.0], **args) == build_table([3.0, 1.0, 1.0], **args)
    assert build_table([3.0, 1.0, 1.0], **args) != build_table([3.0, 1.0, 1.5], **args)


def test_prefix_tokens_are_reported_over_all_members():
    table = build_table([3.0, 1.0, 1.0], destinations=3, q_cap=2.0, slots=3, prefix_tokens=[100, 50, 7])
    assert table.warm_tokens == 250.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rates": [1.0, np.nan]}, r"rates\[1\] = nan"),
        ({"rates": [1.0, np.inf]}, r"rates\[1\] = inf"),
        ({"rates": [0.0, 1.0, -2.0]}, r"rates\[2\] = -2.0"),
        ({"rates": [[1.0]]}, r"rates: expected shape \(n,\), got \(1, 1\)"),
        ({"rates": [[1.0], [1.0, 2.0]]}, "rates: not a vector of numbers"),
        ({"rates": ["a"]}, "rates: numbers expected"),
        ({"rates": [1.7e308, 1.7e308]}, r"rates: the sum overflows; largest is rates\[0\]"),
        ({"q_cap": 0.0}, "q_cap = 0.0"),
        ({"q_cap": float("nan")}, "q_cap = nan"),
        ({"q_cap": "many"}, "q_cap = 'many'"),
        ({"slots": -1}, "slots = -1"),
        ({"slots": 1.5}, "slots = 1.5"),
        ({"destinations": 0}, "destinations = 0"),
        ({"cold_load": [1.0]}, r"cold_load: expected shape \(2,\), got \(1,\)"),
        ({"cold_load": [1.0, -1.0]}, r"cold_load\[1\] = -1.0"),
        ({"prefix_tokens": [1.0, 2.0]}, r"prefix_tokens: expected shape \(1,\)"),
        ({"admission": "bytes"}, "admission = 'bytes'"),
        ({"balance_target": 0.5}, "balance_target = 0.5: expected a finite number at least 1.0"),
    ],
)
def test_bad_input_is_refused_by_name_index_and_value(change, message):
    args = {"rates": [1.0], "destinations": 2, "q_cap": 1.0, "slots": 2} | change
    with pytest.raises(ValueError, match=message):
        build_table(args.pop("rates"), **args)


def test_key_outside_the_table_is_an_index_error():
    table = build_table([1.0], destinations=1, q_cap=1.0, slots=1)
    with pytest.raises(IndexError, match="key_index = 1: the table has 1 keys"):
        table.members_of(1)


@pytest.mark.parametrize("slots", [3840, 10**9])
def test_main_workload_is_planned_within_100_ms(slots):
    rates = np.random.default_rng(1).permutation(lognormal_rates(128_824, 100.0))
    build_table(rates[:100], destinations=30, q_cap=1.0, slots=slots)  # loads the compiled kernels
    made = []
    spent = usual_seconds(lambda: made.append(build_table(rates, destinations=30, q_cap=1.0, slots=slots)))
    assert spent < 0.1
    table = made[-1]
    assert table.imbalance < 1.001
    assert len(table.admitted) == min(slots, 128_824)


def test_ties_among_many_keys_go_by_index():
    rates = np.random.default_rng(2).integers(0, 50, 20_000).astype(float)
    table = build_table(rates, destinations=5, q_cap=100.0, slots=10**6)
    assert table.admitted.tolist() == np.lexsort((np.arange(20_000), -rates)).tolist()
