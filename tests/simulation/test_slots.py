"""Caches that are slots: one sequence each, as a llama.cpp server has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.routing import POLICIES, build_table
from planner.simulation import EngineProfile, Trace, replay
from tests.simulation.workloads import random_trace, small_profile

# One request at a time is served when they come 10 s apart.
SLOTS = EngineProfile("s", 64, 100.0, 0.1, max_batched_tokens=1000, max_sequences=2, cache_shape="slots")


def serve(prompts, *, profile=SLOTS, block_tokens=4, gap=10.0, output=1):
    """Cached tokens of prompts given by their blocks, full ones, one after the other on one destination."""
    n = len(prompts)
    tokens = np.array([len(prompt) * block_tokens for prompt in prompts])
    trace = Trace(np.arange(n) * gap, np.zeros(n, int), prompts, tokens, np.full(n, output), block_tokens)
    return replay(trace, policy="flat-lb", destinations=1, profile=profile, warmup=0)


def test_a_slot_keeps_the_last_sequence_and_the_last_token_is_always_computed():
    a, b, c = [1, 2, 3], [11, 12, 13], [21, 22, 23]
    assert serve([a, a]).cached_tokens.tolist() == [0, 11]
    # Two slots: c takes the one used longest ago, a's; b's is still there.
    assert serve([a, b, c, b, a]).cached_tokens.tolist() == [0, 0, 0, 11, 0]


def test_a_request_goes_to_the_slot_that_shares_most_of_its_prompt():
    a, longer, other = [1, 2], [1, 2, 3], [1, 9, 9]
    # `longer` continues a in its slot; `other` shares one block with it and goes there too, so one block is kept.
    assert serve([a, longer, other, longer]).cached_tokens.tolist() == [0, 8, 4, 4]


def test_match_below_the_similarity_share_uses_the_oldest_slot():
    a, b = [1, 2, 3, 4], [1, 9, 8, 7]  # a quarter in common
    assert serve([a, b, a]).cached_tokens.tolist() == [0, 4, 4]
    # With a similarity of .3 it takes the empty slot, computes all of its prompt, and a's stays whole.
    assert serve([a, b, a], profile=replace(SLOTS, slot_similarity=0.3)).cached_tokens.tolist() == [0, 0, 15]


def test_a_running_slot_is_not_shared():
    # All at once: the second request cannot use the prefix that the first one is computing in its slot.
    assert serve([[1, 2], [1, 2]], gap=0.0, output=5).cached_tokens.tolist() == [0, 0]


def test_request_larger_than_a_slot_is_refused():
    result = serve([[1] * 1, list(range(8))])  # 32 tokens of prompt and one of output; a slot holds 32
    assert result.refused == 1
    assert result.destination.tolist() == [0, -1]


def test_as_many_run_at_once_as_there_are_slots():
    result = serve([[1], [2], [3]], gap=0.0, output=3)
    assert result.latency_s[0] == result.latency_s[1] < result.latency_s[2]
    assert result.preemptions.sum() == 0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(sorted(POLICIES)),
    slots=st.integers(1, 5),
    load=st.sampled_from([0.5, 30.0]),
    step=st.booleans(),
)
def test_slots_serve_every_request_once_whatever_the_policy(seed, policy, slots, load, step):
    trace = random_trace(seed, 60, load=load)
    profile = small_profile(64 * slots, max_sequences=slots, cache_shape="slots")
    table = build_table(np.bincount(trace.key, minlength=6) / 10, destinations=3, q_cap=0.2, slots=9)
    run = {"policy": policy, "destinations": 3, "profile": profile, "table": table, "seed": seed, "warmup": 0}
    result = replay(trace, **run)
    assert result.served.sum() + result.refused == 60
    assert np.isfinite(result.latency_s[result.served]).all()
    assert (result.cached_tokens < trace.prompt_tokens).all()
    if step:
        stepped = replay(trace, **run, step=True)
        np.testing.assert_allclose(result.latency_s, stepped.latency_s, rtol=0, atol=1e-9)


def test_the_shape_is_part_of_the_fingerprint_and_its_names_are_known():
    paged = replace(SLOTS, cache_shape="paged")
    assert paged.fingerprint() != SLOTS.fingerprint() != replace(SLOTS, slot_similarity=0.2).fingerprint()
    with pytest.raises(ValueError, match="cache_shape = 'round'"):
        replace(SLOTS, cache_shape="round")
    with pytest.raises(ValueError, match=r"slot_similarity = 1\.0"):
        replace(SLOTS, slot_similarity=1.0)
