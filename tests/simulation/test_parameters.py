"""Every parameter of every policy changes the replay, and the policies balance traffic as published."""

from __future__ import annotations

import csv
import gzip
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from planner.routing import POLICIES, build_table
from planner.routing.hashing import hash_indices
from planner.routing.policies.chwbl import CHWBL
from planner.routing.policies.dualmap import DualMap
from planner.routing.policies.preble import Preble
from planner.routing.policies.ring import ring_places, ring_points
from planner.routing.policies.sticky import Sticky
from planner.simulation import EngineProfile, Fault, Trace, replay
from planner.simulation.synthetic import source_rate_shape, synthetic_trace
from tests.simulation.workloads import random_trace, small_profile

SERVEGEN = Path(__file__).resolve().parents[3] / "shared" / "data" / "servegen"

CHANGES = {
    Sticky: {"vnodes": 20},
    CHWBL: {"vnodes": 20, "load_factor": 2.0},
    DualMap: {"slo_s": 0.3, "vnodes": 20, "look_back": 0},
    Preble: {"window_s": 3.0, "exploit_share": 0.9, "rebalance": 1.0, "by_history": True},
}


@pytest.fixture(scope="module")
def crowded():
    """A trace under which queues form, prefixes are shared and caches are small."""
    return random_trace(7, 3000, load=45.0, keys=40)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, field.name) for kind in CHANGES for field in fields(kind)],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_each_parameter_changes_the_replay(crowded, kind, name):
    run = {"destinations": 6, "profile": small_profile(200), "warmup": 0}
    plain, other = kind(), replace(kind(), **{name: CHANGES[kind][name]})
    if kind is DualMap and name == "look_back":  # moves need both candidates beyond the budget
        plain, other = DualMap(slo_s=0.5), DualMap(slo_s=0.5, look_back=0)
    results = [replay(crowded, policy=policy, **run) for policy in (plain, other)]
    assert results[0].latency_s.tobytes() != results[1].latency_s.tobytes()


def test_policies_without_parameters_have_none():
    listed = {type(policy) for policy in POLICIES.values()}
    assert {kind for kind in listed if fields(kind)} == set(CHANGES)


def test_dualmap_moves_waiting_requests_that_are_served_sooner(crowded):
    run = {"destinations": 6, "profile": small_profile(200), "warmup": 0}
    slo = 0.5
    stay = replay(crowded, policy=DualMap(slo_s=slo, look_back=0), **run)
    move = replay(crowded, policy=DualMap(slo_s=slo), **run)
    assert np.isfinite(move.latency_s).all()
    assert move.p(99) < stay.p(99)


def test_dualmap_uses_the_neighbour_when_both_hashes_have_one_owner():
    """A third of the keys of three destinations have both hashes on one; their waiting requests move all the same."""
    policy = DualMap(slo_s=0.3)  # B = .3 s x 150 tokens a second = 45 tokens
    points, owners = ring_points(3, policy.vnodes)
    hashes = hash_indices(np.arange(500))
    places = [ring_places(h, points) for h in (hashes, hash_indices(hashes, salt=5))]
    first, second = (owners[at] for at in places)
    neighbour = np.array(
        [next(o for o in np.roll(owners, -at) if o != r) for at, r in zip(places[1], first, strict=True)]
    )
    meeting = np.flatnonzero((first == 0) & (second == 0) & (neighbour == 2))
    pair = np.flatnonzero((first == 0) & (second == 1))[0]
    # 2 is drained while both others fill up; when it is back, one more request of the pair finds both overloaded.
    key = np.concatenate((np.column_stack((meeting[:20], np.full(20, pair))).ravel(), np.full(41, pair)))
    n = len(key)
    arrival = np.append(np.zeros(n - 1), 0.1)
    trace = Trace(arrival, key, [[1000 + i] for i in range(n)], np.full(n, 4), np.full(n, 3), 4)
    run = {"destinations": 3, "profile": small_profile(200), "warmup": 0, "faults": [Fault("drain", 2, 0.0, 0.05)]}
    stay = replay(trace, policy=replace(policy, look_back=0), **run)
    move = replay(trace, policy=policy, **run)
    assert not (stay.destination == 2).any()
    moved = move.destination == 2
    assert moved.any()
    assert np.isin(trace.key[moved], meeting).all()
    assert move.latency_s[moved].mean() < stay.latency_s[moved].mean()


def test_preble_excludes_matched_blocks_from_the_eviction_cost():
    profile = EngineProfile("p", 64, 1000.0, 0.01)
    # 0 and 1 hold one prefix each, and both are full; the third request finds half of its prompt on 0.
    rows = [[1, 2, 50, 51], [3, 4, 52, 53], [1, 2, 60, 61], [3, 4, 70, 71], [1, 2, 80, 81]]
    trace = Trace(np.arange(5) * 10.0, np.array([0, 1, 0, 1, 0]), rows, np.full(5, 64), np.ones(5, int), 16)
    result = replay(trace, policy=Preble(rebalance=1e9), destinations=2, profile=profile, warmup=0)
    assert result.destination.tolist() == [0, 1, 0, 1, 0]
    assert result.cached_tokens.tolist() == [0, 0, 32, 32, 32]


def test_preble_ignores_requests_before_its_window():
    trace = Trace(np.array([0.0, 50.0]), np.array([0, 1]), [[1, 2], [3, 4]], np.full(2, 32), np.ones(2, int), 16)
    run = {"destinations": 2, "profile": EngineProfile("p", 10_000, 1000.0, 0.01), "warmup": 0}
    # The misses of the first request count as load on 0 within the window only; ties go to the lower index.
    assert replay(trace, policy=Preble(window_s=60.0), **run).destination.tolist() == [0, 1]
    assert replay(trace, policy=Preble(window_s=40.0), **run).destination.tolist() == [0, 0]


def test_preble_50_matches_prompts_that_were_evicted():
    # 0 takes a, then b, whose tail pushes a's blocks out of the cache; 1 takes c; then a comes again.
    rows = [[1, 2, 3, 4], list(range(10, 17)), [30, 31], [1, 2, 3, 4]]
    tokens = np.array([64, 112, 32, 64])
    trace = Trace(np.array([0.0, 5.0, 8.0, 10.0]), np.array([0, 1, 2, 0]), rows, tokens, np.ones(4, int), 16)
    run = {"destinations": 2, "profile": EngineProfile("p", 112, 1000.0, 0.01), "warmup": 0}
    drains = [Fault("drain", 1, 0.0, 7.0), Fault("drain", 0, 7.0, 9.0)]
    by_history, by_cache = (
        replay(trace, policy=Preble(by_history=h, rebalance=1e9), faults=drains, **run) for h in (True, False)
    )
    assert by_history.destination.tolist() == [0, 0, 1, 0]
    assert by_cache.destination.tolist() == [0, 0, 1, 1]
    assert by_history.cached_tokens[3] == 0


def test_leaping_takes_a_twentieth_of_the_iterations_at_256_output_tokens():
    trace = synthetic_trace(
        source_rate_shape(200), requests=3000, active_keys=200, load_rps=20.0, output_tokens=256.0, seed=1
    )
    profile = EngineProfile("p", 400_000, 12_000.0, 0.0105, 4e-5, 2e-8)
    leap, step = (replay(trace, policy="flat-lb", destinations=30, profile=profile, step=s) for s in (False, True))
    assert step.iterations >= 20 * leap.iterations
    np.testing.assert_allclose(leap.latency_s, step.latency_s, rtol=0, atol=1e-9)


def test_replicas_balance_one_heavy_client_and_strict_affinity_does_not():
    """ServeGen m-mid on 8 destinations: one client is 52% of the traffic, so max/mean cannot be below 4.18."""
    file = SERVEGEN / "language__m-mid.client_rates.csv.gz"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    total: dict[str, float] = {}
    with gzip.open(file, "rt") as lines:
        for row in csv.DictReader(lines):
            total[row["client_id"]] = total.get(row["client_id"], 0.0) + float(row["rate_rps"])
    rates = np.array(list(total.values()))
    rates *= 100 / rates.sum()
    assert rates.max() / rates.sum() * 8 == pytest.approx(4.18, abs=0.01)
    strict = build_table(rates, destinations=8, q_cap=rates.max(), slots=8 * len(rates))
    shared = build_table(rates, destinations=8, q_cap=3.0, slots=8 * len(rates))
    assert strict.imbalance == pytest.approx(4.18, abs=0.01)
    assert shared.imbalance < 1.02

    rng = np.random.default_rng(1)
    n = 20_000
    key = rng.choice(len(rates), n, p=rates / rates.sum())
    trace = Trace(np.arange(n) / 100, key, [[k] for k in key], np.full(n, 16), np.full(n, 30), 16)
    profile = EngineProfile("p", None, 1e5, 0.01)
    run = {"policy": "cacheroute", "destinations": 8, "profile": profile}
    assert replay(trace, **run, table=strict).imbalance == pytest.approx(4.18, rel=0.03)
    assert replay(trace, **run, table=shared).imbalance < 1.1
    for policy in ("sticky", "hash"):
        assert replay(trace, policy=policy, destinations=8, profile=profile).imbalance > 4.0
