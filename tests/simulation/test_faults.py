"""Destinations that die, drain and slow down, and plans that are switched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.routing import POLICIES, build_table
from planner.simulation import EngineProfile, Fault, PlanSwitch, Trace, replay
from tests.simulation.workloads import random_trace, small_profile

# A request of 10 prompt and 5 output tokens takes .1 + .1 s of prefill iteration and 4 x .1 s of decoding.
PLAIN = EngineProfile("p", None, 100.0, 0.1, max_batched_tokens=1000)


def arrivals(times, *, keys=None, output=5):
    n = len(times)
    key = np.zeros(n, int) if keys is None else np.array(keys)
    return Trace(np.array(times, float), key, [[i] for i in range(n)], np.full(n, 10), np.full(n, output), 16)


def test_requests_in_flight_at_a_death_are_sent_again_and_counted():
    trace = arrivals([0.0, 0.0])
    result = replay(
        trace, policy="round-robin", destinations=2, profile=PLAIN, faults=[Fault("down", 0, 0.35)], warmup=0
    )
    assert result.redispatched == 1
    assert result.destination.tolist() == [1, 1]
    # It joins destination 1 at its boundary at .4 and takes its whole time there: nothing of its .35 s is kept.
    assert result.ttft_s[0] == pytest.approx(0.4 + 0.2)
    assert result.latency_s[0] == pytest.approx(0.4 + 0.2 + 4 * 0.1)
    assert result.latency_s[1] == pytest.approx(0.7)  # .6, and one of its iterations prefilled the other


def test_a_destination_that_returns_has_an_empty_cache():
    trace = Trace(np.arange(4.0) * 10, np.zeros(4, int), [[1, 2]] * 4, np.full(4, 32), np.full(4, 1), 16)
    alone = {"policy": "flat-lb", "destinations": 1, "profile": PLAIN, "warmup": 0}
    assert replay(trace, **alone).cached_tokens.tolist() == [0, 16, 16, 16]
    died = replay(trace, **alone, faults=[Fault("down", 0, 15.0, 16.0)])
    assert died.cached_tokens.tolist() == [0, 16, 0, 16]
    assert died.redispatched == 0


def test_requests_wait_while_every_destination_is_down():
    trace = arrivals([0.0, 1.0, 2.0])
    result = replay(
        trace, policy="flat-lb", destinations=1, profile=PLAIN, faults=[Fault("down", 0, 0.1, 5.0)], warmup=0
    )
    assert result.redispatched == 1
    assert np.isfinite(result.latency_s).all()
    assert (result.arrival_s + result.latency_s > 5.0).all()
    with pytest.raises(ValueError, match="no destination is up or returns"):
        replay(trace, policy="flat-lb", destinations=1, profile=PLAIN, faults=[Fault("down", 0, 0.1)])


def test_drained_destination_finishes_its_requests_and_keeps_its_cache():
    trace = Trace(np.array([0.0, 0.1, 9.0]), np.zeros(3, int), [[1, 2]] * 3, np.full(3, 32), np.full(3, 9), 16)
    result = replay(
        trace, policy="round-robin", destinations=2, profile=PLAIN, faults=[Fault("drain", 0, 0.05, 8.0)], warmup=0
    )
    assert result.redispatched == 0
    assert result.destination.tolist() == [0, 1, 0]
    assert result.cached_tokens.tolist() == [0, 0, 16]
    assert result.latency_s[0] == pytest.approx(0.1 + 0.32 + 8 * 0.1)


def test_slow_fault_stretches_the_iterations_that_start_in_it():
    trace = arrivals([0.0], output=11)
    run = {"policy": "flat-lb", "destinations": 1, "profile": PLAIN}
    assert replay(trace, **run).latency_s[0] == pytest.approx(0.2 + 10 * 0.1)
    # Iterations start at 0, .2, .3, .4 | .5 (twice .2) .7 | .9 and on.
    slow = replay(trace, **run, faults=[Fault("slow", 0, 0.45, 0.8)])
    assert slow.latency_s[0] == pytest.approx(0.5 + 2 * 0.2 + 5 * 0.1)
    assert replay(trace, **run, faults=[Fault("slow", 0, 0.45, 0.8, factor=3.0)]).latency_s[0] > slow.latency_s[0]
    for_ever = replay(trace, **run, faults=[Fault("slow", 0, 0.45)])
    assert for_ever.latency_s[0] == pytest.approx(0.5 + 7 * 0.2)


def test_key_with_all_members_down_goes_to_its_backup_and_returns():
    table = build_table([1.0, 1.0, 1.0], destinations=3, q_cap=5.0, slots=3)
    home, backup = int(table.members_of(0)[0]), int(table.backup[0])
    trace = arrivals(np.arange(6.0) * 10)
    result = replay(
        trace,
        policy="cacheroute",
        destinations=3,
        profile=PLAIN,
        table=table,
        faults=[Fault("down", home, 15.0, 35.0)],
        warmup=0,
    )
    assert result.destination.tolist() == [home, home, backup, backup, home, home]


def test_a_plan_switch_moves_keys_from_its_time_on_and_costs_a_cold_start():
    first, second = (build_table(r, destinations=2, q_cap=9.0, slots=2) for r in ([2.0, 1.0], [1.0, 2.0]))
    assert first.members_of(0)[0] != second.members_of(0)[0]
    trace = Trace(np.arange(6.0) * 10, np.zeros(6, int), [[1, 2]] * 6, np.full(6, 32), np.full(6, 1), 16)
    run = {"policy": "cacheroute", "destinations": 2, "profile": PLAIN, "table": first, "warmup": 0}
    result = replay(trace, **run, switches=[PlanSwitch(30.0, second)])
    a, b = int(first.members_of(0)[0]), int(second.members_of(0)[0])
    assert result.destination.tolist() == [a, a, a, b, b, b]  # a switch comes before an arrival of its instant
    assert result.cached_tokens.tolist() == [0, 16, 16, 0, 16, 16]
    back = replay(trace, **run, switches=[PlanSwitch(25.0, second), PlanSwitch(45.0, first)])
    assert back.destination.tolist() == [a, a, a, b, b, a]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fault("explode", 0, 1.0), "kind = 'explode'"),
        (lambda: Fault("down", 0, -1.0), "start_s = -1.0"),
        (lambda: Fault("down", 0, 2.0, 2.0), "end_s = 2.0"),
        (lambda: Fault("slow", 0, 2.0, factor=0.0), "factor = 0.0"),
        (lambda: Fault("slow", 0, 2.0, factor=1e9), "factor = "),
        (lambda: Fault("down", -1, 2.0), "destination = -1"),
        (lambda: PlanSwitch(float("nan"), None), "at_s = nan"),
    ],
)
def test_bad_faults_are_refused_by_field_and_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_switches_need_a_plan_and_an_order():
    table = build_table([1.0], destinations=2, q_cap=9.0, slots=2)
    trace = arrivals([0.0])
    with pytest.raises(ValueError, match="policy 'flat-lb' uses no table"):
        replay(trace, policy="flat-lb", destinations=2, profile=PLAIN, switches=[PlanSwitch(1.0, table)])
    with pytest.raises(ValueError, match="in order of time"):
        replay(
            trace,
            policy="cacheroute",
            destinations=2,
            profile=PLAIN,
            table=table,
            switches=[PlanSwitch(2.0, table), PlanSwitch(1.0, table)],
        )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(sorted(POLICIES)),
    kinds=st.lists(st.sampled_from(["down", "drain", "slow"]), min_size=1, max_size=4),
    cache_tokens=st.sampled_from([48, 200, None]),
    step=st.booleans(),
)
def test_with_any_faults_every_request_still_finishes_once_and_leaping_equals_stepping(
    seed, policy, kinds, cache_tokens, step
):
    trace = random_trace(seed, 60, load=5.0)
    rng = np.random.default_rng(seed)
    end = float(trace.arrival_s[-1])
    faults = [
        Fault(kind, r, float(start), float(start + rng.uniform(0.1, end)), factor=float(rng.uniform(0.5, 4)))
        for r, (kind, start) in enumerate(zip(kinds, rng.uniform(0, end, 4), strict=False))
    ]
    table = build_table(np.bincount(trace.key, minlength=6) / 10, destinations=5, q_cap=0.2, slots=9)
    run = {"policy": policy, "destinations": 5, "profile": small_profile(cache_tokens), "table": table, "seed": seed}
    result = replay(trace, **run, faults=faults, warmup=0)
    assert (np.isfinite(result.latency_s) == (result.destination >= 0)).all()
    assert (result.destination >= 0).sum() + result.refused == 60
    assert (result.cached_tokens <= trace.prompt_tokens).all()
    assert (result.ttft_s[result.served] <= result.latency_s[result.served]).all()
    for fault in faults:
        if fault.kind == "down":
            during = (trace.arrival_s >= fault.start_s) & (trace.arrival_s + result.latency_s < fault.end_s)
            assert not (result.destination[during & result.served] == fault.destination).any()
    if step:
        stepped = replay(trace, **run, faults=faults, warmup=0, step=True)
        np.testing.assert_allclose(result.latency_s, stepped.latency_s, rtol=0, atol=1e-9)
        assert result.destination.tolist() == stepped.destination.tolist()


def test_checkpoint_gets_the_progress_and_can_end_a_replay():
    trace = random_trace(1, 200_000, load=500.0)
    heard = []
    result = replay(trace, policy="preble", destinations=8, profile=small_profile(), checkpoint=heard.append)
    assert heard == sorted(heard)
    assert heard
    same = replay(trace, policy="preble", destinations=8, profile=small_profile())
    assert result.latency_s.tobytes() == same.latency_s.tobytes()

    class Stop(Exception):
        pass

    calls = []

    def stop(done: int) -> None:
        calls.append(done)
        if len(calls) > 1:
            raise Stop

    with pytest.raises(Stop):
        replay(trace, policy="preble", destinations=8, profile=small_profile(), checkpoint=stop)


def test_checkpoint_is_called_while_an_overloaded_fleet_drains_its_queues():
    trace = random_trace(1, 60_000, load=1e6)
    heard = []
    result = replay(trace, policy="flat-lb", destinations=2, profile=small_profile(), checkpoint=heard.append)
    assert heard.count(60_000) > 2
    same = replay(trace, policy="flat-lb", destinations=2, profile=small_profile())
    assert result.latency_s.tobytes() == same.latency_s.tobytes()
