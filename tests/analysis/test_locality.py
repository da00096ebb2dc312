"""Available tokens against a set of seen blocks, by both ways of remembering them; and the chain of hit rates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis import available_tokens, hit_chain

BLOCK = 4


def requests_of(seed, n):
    """Prompts that share beginnings of ten, each with a tail of its own or another's."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(1, 40, n)
    rows = [100 * rng.integers(0, 10) + np.arange(-(-tokens // BLOCK)) for tokens in prompt]
    for row in rows:
        own = rng.integers(0, len(row) + 1)
        row[own:] += 1_000 * rng.integers(1, 4)
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows), prompt


def plain(offsets, ids, prompt):
    """The definition, block by block."""
    block, seen, found = BLOCK, set(), []
    for i, tokens in enumerate(prompt.tolist()):
        first = int(offsets[i])
        full = ids[first : first + tokens // block].tolist()
        run = 0
        while run < len(full) and full[run] in seen:
            run += 1
        found.append(min(run, (tokens - 1) // block) * block)
        seen.update(full)
    return found


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 80), st.booleans())
def test_available_is_the_longest_leading_run_of_full_blocks_seen_before(seed, requests, sparse):
    offsets, ids, prompt = requests_of(seed, requests)
    found = available_tokens(offsets, ids * (2**40 + 15) if sparse else ids, prompt, BLOCK)
    assert found.dtype == np.int64
    assert found.tolist() == plain(offsets, ids, prompt)


def test_hash_table_grows_for_many_sparse_ids_without_loss():
    numbers = np.random.default_rng(1).choice(2**62, 5_000, replace=False)
    ids, n = np.concatenate([numbers, numbers]), 10_000
    found = available_tokens(np.arange(n + 1) * 1, ids, np.full(n, 4), 4)
    assert found.tolist() == [0] * n  # one full block of four tokens: the last token is always computed
    ids = np.repeat(ids, 2) + np.tile([0, 1], n)
    found = available_tokens(np.arange(n + 1) * 2, ids, np.full(n, 8), 4)
    assert found.tolist() == [0] * 5_000 + [4] * 5_000


def test_a_part_filled_last_block_is_neither_found_nor_kept():
    found = available_tokens([0, 2, 4, 6], [1, 2, 1, 2, 1, 2], [6, 6, 8], 4)
    assert found.tolist() == [0, 4, 4]


def test_no_requests_have_no_tokens():
    assert available_tokens([0], np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 16).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [-3], [4], 4), r"ids\[0\] = -3"),
        (([0, 1], [3], [0], 4), r"prompt_tokens\[0\] = 0"),
        (([0, 1], [3], [5], 4), r"offsets\[0\] = 1: expected ceil"),
        (([0, 2], [3], [4], 4), "offsets: must be 2 non-decreasing values from 0 to 1"),
        (([0, 1], [3], [4], 0), "block_tokens = 0"),
        (([0, 1], [3.5], [4], 4), "ids: whole numbers"),
    ],
)
def test_faults_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        available_tokens(*arguments)


def test_hit_chain_shares_refer_to_all_prompt_tokens():
    chain = hit_chain([80, 50, 0], [100, 50, 50], [60, 10, 0], admitted=np.array([True, False, True]))
    assert chain.as_dict() == {"available": 0.65, "planned": 0.4, "delivered": 0.35, "delivered_planned": 0.3}


def test_planned_is_none_without_a_table_and_all_shares_without_tokens():
    assert hit_chain([5], [10], [5]).as_dict() == {
        "available": 0.5,
        "planned": None,
        "delivered": 0.5,
        "delivered_planned": None,
    }
    assert hit_chain([], [], []).available is None
    with pytest.raises(ValueError, match=r"admitted: expected shape \(1,\)"):
        hit_chain([5], [10], [5], admitted=np.array([True, False]))


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_planned_is_never_above_available(seed, n):
    rng = np.random.default_rng(seed)
    prompt = rng.integers(1, 50, n)
    chain = hit_chain(rng.integers(0, prompt + 1), prompt, rng.integers(0, prompt + 1), admitted=rng.random(n) < 0.5)
    assert 0 <= chain.planned <= chain.available <= 1
    assert 0 <= chain.delivered_planned <= chain.delivered <= 1
