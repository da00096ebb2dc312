"""Replanning under a budget of KV tokens for each destination."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.routing import build_table, replan
from tests.routing.test_replan_fleet import EPS, check_table, plain_recount


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**20), st.integers(2, 5), st.integers(5, 40), st.sampled_from([None, 0.0, 0.1]))
def test_token_budget_holds_after_prefixes_grew(seed, fleet, keys, share):
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(0, 1.5, keys)
    tokens = rng.integers(1, 50, keys).astype(float)
    budget = float(np.ceil(tokens.sum() / fleet))
    options = {"q_cap": 5.0, "slots": 2 * keys, "token_budget": budget}
    before = build_table(rates, destinations=fleet, prefix_tokens=tokens, **options)
    longer = np.floor(tokens * rng.uniform(0.8, 1.6, keys))
    now = rates * np.exp(0.3 * rng.standard_normal(keys))
    after = replan(before, now, prefix_tokens=longer, max_moved_share=share, **options)
    fresh = build_table(now, destinations=fleet, prefix_tokens=longer, **options)
    kept = np.bincount(after.members, weights=np.repeat(longer[after.admitted], after.replicas), minlength=fleet)
    assert (kept <= budget).all()
    check_table(before, after, now, fresh, same_keys=False)
    assert after.rewarm_tokens == pytest.approx(plain_recount(before, after, now, longer)[2], rel=1e-12)
    if share is None:
        assert after.imbalance <= 1.02 * fresh.imbalance * (1 + EPS)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**20), st.integers(2, 5), st.integers(5, 40), st.sampled_from([0.0, 0.01, 0.1]))
def test_under_a_token_budget_the_moved_rate_stays_within_the_share(seed, fleet, keys, share):
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(0, 1.5, keys)
    tokens = rng.integers(1, 50, keys + 5).astype(float)
    options = {"q_cap": 5.0, "slots": 2 * keys, "token_budget": float(np.ceil(1.05 * tokens.sum() / fleet))}
    before = build_table(rates, destinations=fleet, prefix_tokens=tokens[:keys], **options)
    now = np.concatenate([rates * np.exp(0.3 * rng.standard_normal(keys)), rng.lognormal(0, 1, 5)])
    after = replan(before, now, prefix_tokens=tokens, max_moved_share=share, **options)
    assert after.moved_rate <= share * after.admitted_rate * (1 + EPS)


def test_new_key_without_room_beside_warm_keys_stays_cold_within_the_moved_share():
    options = {"q_cap": 1e9, "slots": 9, "prefix_tokens": [1.0, 5.0, 2.0], "token_budget": 5.0}
    before = build_table([7.0, 3.0, 7.0], destinations=2, **options)
    after = replan(before, [6.0, 5.0, 4.0], max_moved_share=0, **options)
    assert (after.moved, after.moved_rate) == (0, 0.0)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**20), st.integers(2, 4), st.integers(4, 30))
def test_a_warm_key_stays_where_its_tokens_still_fit(seed, fleet, keys):
    rng = np.random.default_rng(seed)
    rates = rng.lognormal(0, 1.0, keys)
    tokens = rng.random(keys) * 50  # sums of fractions depend on their order
    budget = float(1.02 * tokens.sum() / fleet)
    options = {"q_cap": 1e9, "slots": keys, "prefix_tokens": tokens, "token_budget": budget, "max_moved_share": 0}
    del options["max_moved_share"]
    before = build_table(rates, destinations=fleet, **options)
    after = replan(before, rates * np.exp(0.2 * rng.standard_normal(keys)), max_moved_share=0, **options)
    fleet_admits = build_table(rates, destinations=fleet, **options).admitted
    for key in before.admitted.tolist():
        if tokens.sum() <= budget * fleet and key in fleet_admits:
            assert after.members_of(key).tolist() == before.members_of(key).tolist()
