"""The dispatch rules, each against its definition."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from planner.routing import POLICIES, build_table, canary_share
from planner.routing.hashing import hash_indices, hash_names, mix64, next_random
from planner.routing.policies import Costs, KeySpace, choose, propose, quiet_signals
from planner.routing.policies.base import CANDIDATES
from planner.routing.policies.chwbl import CHWBL
from planner.routing.policies.dualmap import DualMap
from planner.routing.policies.preble import Preble
from planner.routing.policies.ring import ring_owners, ring_places, ring_points
from planner.routing.policies.sticky import Sticky

COSTS = Costs(0.001, 0.01, 0.0, 0.0, 1000.0, 100.0)


def key_space(keys: int) -> KeySpace:
    indices = np.arange(keys, dtype=np.int64)
    return KeySpace(indices, hash_indices(indices))


def picks(policy, outstanding, draws, *, key=0, table=None, seed=1, closed=(), prompt=1000, **seen):
    """Return the destinations of ``draws`` requests of one key under constant signals."""
    fleet = len(outstanding)
    tables = policy.prepare(key_space(key + 1), fleet, [] if table is None else [table], COSTS)
    rng = np.array([seed], dtype=np.uint64)
    signals = quiet_signals(fleet)
    signals.outstanding[:] = outstanding
    signals.is_open[list(closed)] = 0
    up = [r for r in range(fleet) if r not in closed]
    signals.open[: len(up)] = up
    signals.counts[0] = len(up)
    for name, values in seen.items():
        getattr(signals, name)[:] = values
    found = []
    for request in range(draws):
        signals.request[:] = request, prompt
        if policy.looks == CANDIDATES:
            propose(tables, signals, key, rng)
        found.append(choose(tables, signals, key, rng))
    return np.array(found)


def homes(policy, keys, destinations):
    return ring_owners(key_space(keys).hashes, destinations, policy.vnodes)


def test_flat_lb_never_takes_the_heaviest_and_prefers_the_lighter_of_two():
    chosen = np.bincount(picks(POLICIES["flat-lb"], [5, 0, 9], 6000), minlength=3)
    # Of the three pairs, destination 1 wins two and destination 0 one; 2 always loses.
    assert chosen[2] == 0
    assert chosen[1] / 6000 == pytest.approx(2 / 3, abs=0.03)


def test_flat_lb_resolves_ties_by_the_draw():
    chosen = np.bincount(picks(POLICIES["flat-lb"], [4] * 5, 10_000), minlength=5)
    assert chosen / 10_000 == pytest.approx([0.2] * 5, abs=0.02)


def test_flat_lb_on_one_destination_takes_it():
    assert picks(POLICIES["flat-lb"], [7], 5).tolist() == [0] * 5


def test_sticky_ignores_load_and_spreads_keys():
    policy = POLICIES["sticky"]
    home = homes(policy, 20_000, 10)
    assert set(picks(policy, [9, 0, 0], 5)) == {picks(policy, [0, 9, 9], 1)[0]}
    assert picks(policy, [0] * 10, 1, key=7).tolist() == [home[7]]
    counts = np.bincount(home, minlength=10)
    assert counts.max() / counts.mean() < 1.3


def test_sticky_moves_only_the_keys_of_an_added_or_a_lost_destination():
    before, after = homes(Sticky(), 5000, 9), homes(Sticky(), 5000, 10)
    moved = before != after
    assert 0 < moved.mean() < 0.2
    assert set(after[moved]) == {9}
    for key in range(60):
        one = picks(Sticky(), [0] * 9, 1, key=key)[0]
        without = picks(Sticky(), [0] * 9, 1, key=key, closed=[4])[0]
        assert without == one if one != 4 else without != 4


def test_sticky_vnodes_change_the_result():
    assert (homes(Sticky(vnodes=10), 500, 9) != homes(Sticky(), 500, 9)).any()
    for kind in (Sticky, CHWBL, DualMap):
        for vnodes in (0, 10_001, 10**400):
            with pytest.raises(ValueError, match=f"vnodes = {vnodes}"):
                kind(vnodes=vnodes)
    with pytest.raises(ValueError, match="look_back = 10001"):
        DualMap(look_back=10_001)


@pytest.mark.parametrize(
    ("sessions", "ring", "hashed"), [(64, (0.142, 1.324), (0.123, 1.281)), (512, (0.0841, 1.168), (0.0432, 1.097))]
)
def test_spread_of_sessions_over_ring_and_hash_equals_published_figures(sessions, ring, hashed):
    """CV of sessions a rank and max/expected over 10 workers x 4 ranks; the published ring fits 200 points a rank."""
    ranks, trials = 40, 50
    points, owners = ring_points(ranks * trials, 200)
    spread = {"ring": [], "hash": []}
    for trial in range(trials):
        hashes = hash_indices(np.arange(sessions * ranks), salt=100 + trial)
        mine = owners // ranks == trial  # every trial has a ring of its own
        found = owners[mine][ring_places(hashes, points[mine])] % ranks
        spread["ring"].append(np.bincount(found, minlength=ranks))
        spread["hash"].append(np.bincount((hashes % np.uint64(ranks)).astype(int), minlength=ranks))
    for name, (cv, largest) in (("ring", ring), ("hash", hashed)):
        counts = np.array(spread[name])
        assert (counts.std(axis=1) / counts.mean(axis=1)).mean() == pytest.approx(cv, rel=0.06)
        assert (counts.max(axis=1) / sessions).mean() == pytest.approx(largest, rel=0.04)


def test_chwbl_walks_on_from_a_destination_beyond_its_bound():
    policy = CHWBL()
    home = picks(policy, [0] * 6, 1)[0]
    load = np.full(6, 2)
    assert picks(policy, load, 1)[0] == home  # 2 <= 1.25 * 13 / 6
    load[home] = 9
    assert picks(policy, load, 1)[0] != home
    # bound 1.25 * 20 / 6 = 4.17; with a factor of 3 it is 10
    assert picks(CHWBL(load_factor=3.0), load, 1)[0] == home
    assert picks(CHWBL(load_factor=1.0), [20, 20, 20, 20, 20, 0], 1)[0] == 5  # 20 > 101 / 6


def test_chwbl_counts_only_destinations_that_are_up():
    # Bound over the two that are up: 1.25 * (4 + 1) / 2 = 3.1; over all six it would be 1.04.
    load = [4, 0, 0, 0, 0, 0]
    assert set(picks(CHWBL(), load, 3, closed=[2, 3, 4, 5])) == {1}
    assert len({picks(CHWBL(), [0] * 6, 1, key=k, closed=[2, 3, 4, 5])[0] for k in range(40)}) == 2


@pytest.mark.parametrize(
    ("change", "message"), [({"load_factor": 0.9}, "load_factor = 0.9"), ({"vnodes": 0}, "vnodes = 0")]
)
def test_chwbl_refuses_parameters_out_of_range(change, message):
    with pytest.raises(ValueError, match=message):
        CHWBL(**change)


def test_chwbl_vnodes_change_the_result():
    few, many = ([picks(CHWBL(vnodes=v), [0] * 9, 1, key=k)[0] for k in range(40)] for v in (2, 256))
    assert few != many


def test_dualmap_takes_the_longer_prefix_unless_its_queue_is_beyond_the_budget():
    policy = DualMap(slo_s=2.0)  # B = 2 s / 0.001 s a token = 2000 tokens
    a, b = _two_candidates(policy)
    matched = np.zeros(8, dtype=int)
    matched[b] = 512
    pending = np.zeros(8, dtype=int)
    assert picks(policy, [0] * 8, 1, matched=matched, pending=pending)[0] == b
    pending[b] = 2000
    assert picks(policy, [0] * 8, 1, matched=matched, pending=pending)[0] == b
    pending[b] = 2001
    assert picks(policy, [0] * 8, 1, matched=matched, pending=pending)[0] == a
    assert picks(DualMap(slo_s=3.0), [0] * 8, 1, matched=matched, pending=pending)[0] == b


def test_dualmap_takes_the_less_loaded_of_equal_prefixes():
    policy = DualMap()
    a, b = _two_candidates(policy)
    pending = np.zeros(8, dtype=int)
    pending[a] = 10
    assert picks(policy, [0] * 8, 1, pending=pending)[0] == b
    outstanding = np.zeros(8, dtype=int)
    outstanding[a] = 1
    assert picks(policy, outstanding, 1)[0] == b
    assert picks(policy, [0] * 8, 1)[0] == a


def test_dualmap_has_two_candidates_for_all_hashes_and_vnodes_move_them():
    for key in range(200):
        assert len(set(_two_candidates(DualMap(), key=key, fleet=2))) == 2
    assert any(_two_candidates(DualMap(vnodes=3), key=k) != _two_candidates(DualMap(), key=k) for k in range(20))


def test_dualmap_on_one_destination_takes_it():
    assert picks(DualMap(), [7], 3).tolist() == [0] * 3


def test_policy_with_contradictory_flags_or_outside_the_package_is_refused():
    class Blind(Sticky):
        needs_cache = True

    with pytest.raises(ValueError, match="needs_cache requires looks"):
        Blind().prepare(key_space(3), 2, [], COSTS)

    class Elsewhere(Sticky):
        pass

    with pytest.raises(ValueError, match=r"Elsewhere: its class must be in a file of planner.routing.policies"):
        Elsewhere().prepare(key_space(3), 2, [], COSTS)


def _two_candidates(policy, key=0, fleet=8):
    tables = policy.prepare(key_space(key + 1), fleet, [], COSTS)
    signals = quiet_signals(fleet)
    propose(tables, signals, key, np.array([1], dtype=np.uint64))
    assert signals.counts[1] == 2
    return tuple(signals.candidates[:2].tolist())


def test_preble_exploits_when_more_is_cached_than_not_and_explores_otherwise():
    matched = [0, 600, 0]
    missed = [0, 300, 500]  # within 1.5 x of each other with two running: no rebalancing
    assert picks(Preble(rebalance=1e9), [2, 2, 2], 1, matched=matched, missed=missed)[0] == 1
    # At exactly half it explores: cost 0 has 0 + 1000 missed, cost 1 has 300 + 500.
    assert picks(Preble(rebalance=1e9), [2, 2, 2], 1, matched=[0, 500, 0], missed=[0, 600, 900])[0] == 0
    assert (
        picks(Preble(exploit_share=0.4, rebalance=1e9), [2, 2, 2], 1, matched=[0, 500, 0], missed=[0, 600, 900])[0] == 1
    )


def test_preble_explores_by_load_eviction_and_misses_together():
    assert picks(Preble(), [0, 1, 1], 1)[0] == 0  # decode of the running one
    assert picks(Preble(), [0, 0, 0], 1, missed=[5, 0, 9])[0] == 1
    # To evict 100 tokens that 3 of 4 requests hold costs 75 tokens of prefill.
    assert picks(Preble(), [0, 0], 1, evicted=[300.0, 0.0], served=[4, 4], missed=[0, 74])[0] == 1
    assert picks(Preble(), [0, 0], 1, evicted=[300.0, 0.0], served=[4, 4], missed=[0, 76])[0] == 0
    assert picks(Preble(), [0, 0], 1, matched=[0, 200], missed=[0, 199])[0] == 1
    assert picks(Preble(), [0, 0], 1, matched=[0, 200], missed=[0, 201])[0] == 0


def test_preble_redirects_exploits_of_the_heaviest_to_the_lightest_under_imbalance():
    seen = {"matched": [900, 0, 0], "missed": [1600, 1100, 1000]}
    assert picks(Preble(), [0] * 3, 1, **seen)[0] == 2
    assert picks(Preble(rebalance=1.7), [0] * 3, 1, **seen)[0] == 0


def test_preble_50_matches_sent_prompts_and_preble_matches_caches():
    assert POLICIES["preble-50"].name == "preble-50"
    seen = {"known": [0, 900], "matched": [0, 0], "missed": [0, 100]}
    assert picks(POLICIES["preble-50"], [1, 1], 1, **seen)[0] == 1
    assert picks(POLICIES["preble"], [1, 1], 1, **seen)[0] == 0


@pytest.mark.parametrize("change", [{"window_s": 0.0}, {"exploit_share": 1.5}, {"rebalance": 0.5}])
def test_preble_refuses_parameters_out_of_range(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        Preble(**change)


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
        POLICIES["cacheroute"].prepare(key_space(1), 4, [], COSTS)
    with pytest.raises(ValueError, match="planned for 4 destinations, replayed on 5"):
        POLICIES["cacheroute"].prepare(key_space(1), 5, [table], COSTS)


def test_round_robin_takes_turns():
    assert picks(POLICIES["round-robin"], [0, 0, 0], 7).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_skips_destinations_that_are_down():
    assert picks(POLICIES["round-robin"], [0] * 3, 4, closed=[1]).tolist() == [0, 2, 0, 2]


def test_hash_keeps_a_key_on_one_destination():
    home = (key_space(9000).hashes % np.uint64(8)).astype(int)
    assert set(picks(POLICIES["hash"], [9] * 8, 5, key=3)) == {home[3]}
    assert set(picks(POLICIES["hash"], [9] * 8, 5, key=3, closed=[home[3]])) == {(home[3] + 1) % 8}
    assert np.bincount(home).max() / (9000 / 8) < 1.1


def test_random_is_uniform_and_least_outstanding_takes_the_minimum():
    chosen = np.bincount(picks(POLICIES["random"], [0, 5, 9], 9000, closed=[0]), minlength=3)
    assert chosen[0] == 0
    assert chosen[1:] / 4500 == pytest.approx([1, 1], abs=0.05)
    assert set(picks(POLICIES["least-outstanding"], [3, 1, 1, 2], 4)) == {1}
    assert set(picks(POLICIES["least-outstanding"], [3, 1, 1, 2], 4, closed=[1])) == {2}


def test_cacheroute_skips_members_that_are_down_and_then_takes_the_backup():
    table = build_table([3.0, 1.0], destinations=5, q_cap=1.0, slots=3)
    assert table.members_of(0).tolist() == [0, 1, 2]
    assert set(picks(POLICIES["cacheroute"], [0] * 5, 9, table=table, closed=[0])) == {1}
    backup = int(table.backup[0])
    assert backup in (3, 4)
    assert set(picks(POLICIES["cacheroute"], [9] * 5, 9, table=table, closed=[0, 1, 2])) == {backup}
    rest = {3, 4} - {backup}
    assert set(picks(POLICIES["cacheroute"], [9] * 5, 9, table=table, closed=[0, 1, 2, backup])) == rest


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
