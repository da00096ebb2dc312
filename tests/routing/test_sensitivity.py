"""W, q_cap and skew varied together: against single plans, sets of members, and monotone figures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.routing import build_table
from planner.routing.sensitivity import FACTORS, HEAD_SHARES, raise_head, sensitivity

RATES = np.random.default_rng(5).lognormal(0, 1.648, 400)
PLAN = {"destinations": 8, "q_cap": float(RATES.sum()) / 60, "slots": 160}


def fields_but_share(setting):
    """Return the fields that two settings of equal rates share; NaN as text, so that it equals itself."""
    hidden = ("head_share", "head_left")
    return {name: str(value) for name, value in vars(setting).items() if name not in hidden}


@pytest.fixture(scope="module")
def study():
    return sensitivity(RATES, **PLAN)


def test_every_combination_is_planned_once_in_the_given_order(study):
    wanted = list(itertools.product(HEAD_SHARES, FACTORS, FACTORS))
    assert [(s.head_share, s.w_factor, s.q_cap_factor) for s in study] == wanted
    assert len(study) == 125


def test_the_base_has_no_churn_and_the_given_slots_and_q_cap(study):
    bases = [s for s in study if s.w_factor == s.q_cap_factor == 1.0]
    assert [(s.churn_keys, s.churn_rate, s.slots, s.q_cap) for s in bases] == [(0, 0, 160, PLAN["q_cap"])] * 5


def test_setting_equals_the_single_plan(study):
    setting = next(s for s in study if (s.head_share, s.w_factor, s.q_cap_factor) == (0.25, 1.25, 0.75))
    rates, raised = raise_head(RATES, 0.25)
    base = build_table(rates, **PLAN)
    table = build_table(rates, destinations=8, q_cap=PLAN["q_cap"] * 0.75, slots=200)
    assert raised
    assert not setting.head_left
    assert (setting.slots, setting.admitted, setting.slots_used) == (200, len(table.admitted), table.slots_used)
    assert setting.admitted_share == pytest.approx(rates[table.admitted].sum() / RATES.sum())
    assert (setting.imbalance, setting.worst_loss) == (table.imbalance, table.worst_loss)
    assert setting.replicated == sum(k > 1 for k in table.replicas.tolist()) > 1
    assert setting.largest_k == table.members_of(int(np.argmax(rates))).size == 8
    assert setting.cannot_fit == len(table.cannot_fit) == 1

    keys, rate = 0, 0.0
    for key in table.admitted.tolist():
        old, new = set(base.members_of(key).tolist()), set(table.members_of(key).tolist())
        lost = min(len(old), len(new)) - len(old & new)
        keys += lost > 0
        rate += lost * rates[key] / len(new)
    assert setting.churn_keys == keys / len(base.admitted) > 0
    assert setting.churn_rate == pytest.approx(rate / base.admitted_rate)


def test_a_lower_q_cap_needs_more_destinations_and_admits_no_more(study):
    by_rest = itertools.groupby(study, key=lambda s: (s.head_share, s.w_factor))
    grew = 0
    for _, group in by_rest:
        rows = list(group)  # q_cap ascends
        for lower, higher in itertools.pairwise(rows):
            assert lower.largest_k >= higher.largest_k
            assert lower.cannot_fit >= higher.cannot_fit
            assert lower.admitted <= higher.admitted
        grew += rows[0].largest_k > rows[-1].largest_k
    assert grew > 0


def test_k_is_above_one_in_the_study_and_slots_are_never_exceeded(study):
    assert all(0 < s.slots_used <= s.slots == math.floor(160 * s.w_factor) for s in study)
    assert all(s.largest_k > 1 for s in study if s.head_share)
    assert all(0 < s.admitted_share <= 1 and s.imbalance >= 1 for s in study)
    assert all(0 <= s.churn_keys <= 1 and s.churn_rate >= 0 for s in study)


@settings(max_examples=200, deadline=None)
@given(
    rates=st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=1, max_size=30),
    share=st.floats(0.01, 0.99),
    scale=st.sampled_from([1e-290, 1.0, 1e290]),
)
def test_busiest_key_gets_the_share_of_an_unchanged_total_or_keeps_its_rate(rates, share, scale):
    given_rates = np.array(rates) * scale
    head, total = int(np.argmax(given_rates)), given_rates.sum()
    result, raised = raise_head(given_rates, share)
    if not raised:
        assert np.array_equal(result, given_rates)
        assert total == 0 or given_rates[head] >= share * total
        return
    assert result[head] == share * total > given_rates[head]
    assert result.sum() == pytest.approx(total, rel=1e-12)
    others = np.delete(np.arange(len(rates)), head)
    assert result[others] / total == pytest.approx(
        given_rates[others] / given_rates[others].sum() * (1 - share), rel=1e-9
    )


def test_head_with_a_higher_share_is_kept_and_flagged():
    measured, asked = sensitivity(
        [8.0, 1.0, 1.0], destinations=2, q_cap=5.0, slots=3, factors=[1], head_shares=[None, 0.5]
    )
    assert (measured.head_left, asked.head_left) == (False, True)
    assert (measured.held_share, asked.held_share) == (0.8, 0.8)
    assert fields_but_share(measured) == fields_but_share(asked)


def test_slots_are_rounded_down_from_the_factor_as_written():
    plans = sensitivity([1.0], destinations=1, q_cap=1.0, slots=100, factors=[0.29, 1.0, 1.1], head_shares=[None])
    assert sorted({s.slots for s in plans}) == [29, 100, 110]


def test_options_reach_the_planner():
    rates, tokens = [5.0, 4.0, 3.0], [1.0, 1.0, 100.0]
    options = {"destinations": 2, "q_cap": 10.0, "slots": 1, "factors": [1.0], "head_shares": [None]}
    by_rate = sensitivity(rates, **options, prefix_tokens=tokens)[0]
    by_density = sensitivity(rates, **options, prefix_tokens=tokens, admission="density")[0]
    assert (by_rate.admitted_share, by_density.admitted_share) == (5 / 12, 3 / 12)


@pytest.mark.parametrize("rates", [[], [0.0, 0.0]])
def test_no_load_is_planned_without_a_division_by_zero(rates):
    plans = sensitivity(rates, destinations=2, q_cap=1.0, slots=2)
    assert {(s.admitted, s.held_share, s.admitted_share, s.churn_rate) for s in plans if s.w_factor == 1} == {
        (len(rates), 0.0, 1.0, 0.0)
    }
    assert [s.head_left for s in plans[::25]] == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factors": [0.9, 1.1]}, r"factors = \(0\.9, 1\.1\): 1\.0.* is missing"),
        ({"factors": [1.0, 1.0]}, "each may be given once"),
        ({"factors": [1.0, 0.0]}, r"factors\[1\] = 0\.0"),
        ({"head_shares": [None, 1.0]}, r"head_shares\[1\] = 1\.0: expected a number below 1"),
        ({"head_shares": [-0.1]}, r"head_shares\[0\] = -0\.1"),
    ],
)
def test_factors_and_shares_out_of_range_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        sensitivity([1.0], destinations=1, q_cap=1.0, slots=1, **arguments)
