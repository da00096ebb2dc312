"""The dispatch rules, each against its definition."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from planner.routing import POLICIES, build_table, canary_share
from planner.routing.hashing import hash_indices, hash_names, mix64, next_random
from planner.routing.policies import KeySpace, Sticky, choose


def key_space(keys: int) -> KeySpace:
    indices = np.arange(keys, dtype=np.int64)
    return KeySpace(indices, hash_indices(indices))


def picks(policy, outstanding, draws, *, key=0, table=None, seed=1):
    tables = policy.prepare(key_space(key + 1), len(outstanding), table)
    rng = np.array([seed], dtype=np.uint64)
    load = np.array(outstanding, dtype=np.int64)
    return np.array([choose(tables, request, key, load, rng) for request in range(draws)])


def test_flat_lb_never_takes_the_heaviest_and_prefers_the_lighter_of_two():
    chosen = np.bincount(picks(POLICIES["flat-lb"], [5, 0, 9], 6000), minlength=3)
    # Of the three pairs, destination 1 wins two and destination 0 one; 2 always loses.
    assert chosen[2] == 0
    assert chosen[1] / 6000 == pytest.approx(2 / 3, abs=0.03)


def test_flat_lb_settles_ties_by_the_draw():
    chosen = np.bincount(picks(POLICIES["flat-lb"], [4] * 5, 10_000), minlength=5)
    assert chosen / 10_000 == pytest.approx([0.2] * 5, abs=0.02)


def test_flat_lb_on_one_destination_takes_it():
    assert picks(POLICIES["flat-lb"], [7], 5).tolist() == [0] * 5


def test_sticky_ignores_load_and_spreads_keys():
    policy = POLICIES["sticky"]
    home = policy.prepare(key_space(20_000), 10, None).home
    assert set(picks(policy, [9, 0, 0], 5)) == {picks(policy, [0, 9, 9], 1)[0]}
    counts = np.bincount(home, minlength=10)
    assert counts.max() / counts.mean() < 1.3


def test_sticky_moves_only_the_keys_of_an_added_destination():
    before = Sticky().prepare(key_space(5000), 9, None).home
    after = Sticky().prepare(key_space(5000), 10, None).home
    moved = before != after
    assert 0 < moved.mean() < 0.2
    assert set(after[moved]) == {9}


def test_sticky_vnodes_change_the_result():
    keys = key_space(500)
    assert (Sticky(vnodes=10).prepare(keys, 9, None).home != Sticky().prepare(keys, 9, None).home).any()
    with pytest.raises(ValueError, match="vnodes = 0"):
        Sticky(vnodes=0)


def test_cacheroute_takes_the_lightest_member_and_the_lower_index_on_a_tie():
    table = build_table([3.0, 1.0], destinations=4, q_cap=1.0, slots=3)
    assert table.members_of(0).tolist() == [0, 1, 2]
    assert set(picks(POLICIES["cacheroute"], [2, 1, 1, 0], 20, table=table)) == {1}


def test_cacheroute_sends_a_cold_or_unknown_key_as_flat_lb_does():
    table = build_table([3.0, 1.0], destinations=4, q_cap=1.0, slots=3)
    for key in (1, 2):  # not admitted; never seen by the plan
        cold = picks(POLICIES["cacheroute"], [2, 1, 1, 0], 50, key=key, table=table)
        assert cold.tolist() == picks(POLICIES["flat-lb"], [2, 1, 1, 0], 50).tolist()


def test_cacheroute_refuses_a_missing_table_or_another_fleet():
    table = build_table([1.0], destinations=4, q_cap=1.0, slots=3)
    with pytest.raises(ValueError, match="needs a routing table"):
        POLICIES["cacheroute"].prepare(key_space(1), 4, None)
    with pytest.raises(ValueError, match="planned for 4 destinations, replayed on 5"):
        POLICIES["cacheroute"].prepare(key_space(1), 5, table)


def test_round_robin_takes_turns():
    assert picks(POLICIES["round-robin"], [0, 0, 0], 7).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_hash_keeps_a_key_on_one_destination():
    home = POLICIES["hash"].prepare(key_space(9000), 8, None).home
    assert set(picks(POLICIES["hash"], [9] * 8, 5, key=3)) == {home[3]}
    assert np.bincount(home).max() / (9000 / 8) < 1.1


def test_compiled_and_vector_hash_agree_and_are_fixed():
    assert hash_indices(np.array([0, 1, 12345])).tolist() == [int(mix64(np.uint64(i))) for i in (0, 1, 12345)]
    assert int(mix64(np.uint64(0))) == 0xE220A8397B1DCDAF  # first output of SplitMix64 from seed 0
    assert hash_names(["tenant-a"]).tolist() == [int.from_bytes(hashlib.sha256(b"tenant-a").digest()[-8:], "big")]


def test_random_draws_are_even_over_the_range():
    rng = np.array([42], dtype=np.uint64)
    counts = np.bincount([next_random(rng, 7) for _ in range(14_000)], minlength=7)
    assert counts / 2000 == pytest.approx([1.0] * 7, abs=0.1)


def test_canary_share_is_fixed_uniform_and_salted():
    shares = np.array([canary_share("salt", f"tenant-{i}") for i in range(20_000)])
    assert (shares < 0.1).mean() == pytest.approx(0.1, abs=0.01)
    assert ((shares >= 0) & (shares < 1)).all()
    assert canary_share("salt", "tenant-0") == shares[0] != canary_share("other", "tenant-0")
