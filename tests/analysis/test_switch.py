"""A switch of tables against a plain count, and the cooling of cold pairs against its formula."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis import Homes, cold_rate_at, cooling_time, switch

KEYS, PLACES = 12, 5
TABLES = st.dictionaries(st.integers(0, KEYS - 1), st.sets(st.integers(0, PLACES - 1), min_size=1), max_size=KEYS)
RATES = st.lists(st.floats(0, 1e6), min_size=KEYS, max_size=KEYS)


def homes(table, unknown=0):
    rows = [*table.items(), *((-1, {n % PLACES}) for n in range(unknown))]
    members = [sorted(places) for _, places in rows]
    return Homes(
        np.array([key for key, _ in rows], dtype=np.int64),
        np.concatenate(([0], np.cumsum([len(m) for m in members]))).astype(np.int64),
        np.array([place for m in members for place in m], dtype=np.int64),
    )


@settings(max_examples=300, deadline=None)
@given(TABLES, TABLES, RATES, st.integers(0, 3))
def test_switch_equals_a_plain_comparison(new, old, rates, unknown):
    prefix = [3 * key + 1 for key in range(KEYS)]
    found = switch(homes(new), homes(old, unknown), rates, prefix_tokens=prefix)
    assert found.gained.tolist() == sorted(new.keys() - old.keys())
    assert found.lost.tolist() == sorted(old.keys() - new.keys())
    assert found.moved.tolist() == sorted(key for key in new.keys() & old.keys() if new[key] != old[key])
    assert found.gone == unknown
    cold = sorted((key, place) for key, places in new.items() for place in places - old.get(key, set()))
    assert sorted(found.cold_keys.tolist()) == [key for key, _ in cold]
    assert found.cold_rates.sum() == pytest.approx(sum(rates[key] / len(new[key]) for key, _ in cold))
    assert found.rewarm_tokens == sum(prefix[key] for key, _ in cold)


@given(TABLES, RATES)
def test_switch_to_the_same_table_changes_no_key(table, rates):
    found = switch(homes(table), homes(table), rates)
    assert len(found.gained) == len(found.lost) == len(found.moved) == len(found.cold_rates) == found.gone == 0
    assert found.rewarm_tokens is None  # prefixes are not known
    assert cooling_time(found.cold_rates, 0.5) == 0.0


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.floats(0.01, 0.99))
def test_the_cooling_time_is_when_the_cold_rate_is_down_to_its_share(rates, left):
    at = cooling_time(rates, left)
    assert cold_rate_at(rates, at) == pytest.approx(left * sum(rates), rel=1e-6)


def test_cooling_of_one_pair_follows_its_rate():
    assert cooling_time([2.0], 0.5) == pytest.approx(math.log(2) / 2)
    assert cold_rate_at([2.0], 1.0) == pytest.approx(2 * math.exp(-2))
    assert cooling_time([0.0, 0.0], 0.1) == 0.0  # pairs without requests


def test_the_cooling_agrees_with_requests_that_arrive_at_random():
    rng, rates, at = np.random.default_rng(5), np.array([0.2, 1.0, 3.0]), 0.7
    # Cold at t: no request of the pair before t.
    still_cold = rng.exponential(1 / rates, (40_000, 3)) > at
    assert cold_rate_at(rates, at) == pytest.approx(float((still_cold * rates).sum(axis=1).mean()), rel=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rates": [1.0, math.nan]}, r"rates\[1\] = nan"),
        ({"rates": [1.0, -1.0]}, r"rates\[1\] = -1"),
        ({"new": Homes([2], [0, 1], [0])}, r"new.keys\[0\] = 2"),
        ({"new": Homes([0], [0, 2], [0])}, "new.offsets"),
        ({"old": Homes([0, 1], [0, 2, 1], [0])}, r"old.offsets\[1\] = 1"),
        ({"old": Homes([0], [0, 1], [-1])}, r"old.members\[0\] = -1"),
        ({"prefix_tokens": [1]}, "prefix_tokens"),
    ],
)
def test_bad_argument_is_refused_by_name(change, message):
    values = {"new": Homes([0], [0, 1], [0]), "old": Homes([], [0], []), "rates": [1.0, 2.0], **change}
    with pytest.raises(ValueError, match=message):
        switch(values.pop("new"), values.pop("old"), values.pop("rates"), **values)


@pytest.mark.parametrize("left", [0.0, 1.0, -1.0, math.nan])
def test_cooling_time_refuses_shares_outside_zero_and_one(left):
    with pytest.raises(ValueError, match="left"):
        cooling_time([1.0], left)
