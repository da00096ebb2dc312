"""The compiled replay against the plain one, queueing theory, and invariants of any trace."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.digests import source_number
from planner.routing import POLICIES, build_table
from planner.routing.policies.base import UNCOUNTED
from planner.simulation import PROFILES, EngineProfile, Fault, Trace, replay, retime
from planner.simulation.kernel import run
from tests.simulation.reference import plain_replay
from tests.simulation.workloads import random_trace, small_profile

WORKLOADS = {
    "seed": st.integers(0, 10**6),
    "requests": st.integers(1, 60),
    "load": st.sampled_from([0.5, 3.0, 30.0]),
    "cache_tokens": st.sampled_from([48, 80, 200, None]),
    "max_sequences": st.sampled_from([1, 2, 5]),
    "max_batched_tokens": st.sampled_from([3, 13, 500]),
}


@settings(max_examples=150, deadline=None)
@given(**WORKLOADS, speed=st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=1, max_size=3), step=st.booleans())
def test_replay_equals_the_plain_model(
    seed, requests, load, cache_tokens, max_sequences, max_batched_tokens, speed, step
):
    trace = random_trace(seed, requests, load=load)
    profile = small_profile(cache_tokens, max_sequences=max_sequences, max_batched_tokens=max_batched_tokens)
    count = len(speed)
    jobs, replicas = plain_replay(trace, lambda i, _: i % count, count, profile, speed)
    result = replay(trace, policy="round-robin", destinations=count, profile=profile, step=step, warmup=0, speed=speed)
    for i, job in enumerate(jobs):
        if job is None:
            assert result.destination[i] == -1
            assert np.isnan(result.latency_s[i])
            continue
        assert result.cached_tokens[i] == job.cached
        assert result.latency_s[i] == pytest.approx(job.finish - job.arrival, abs=1e-9)
        assert result.ttft_s[i] == pytest.approx(job.first - job.arrival, abs=1e-9)
    assert result.refused == jobs.count(None)
    assert result.preemptions.tolist() == [replica.preemptions for replica in replicas]
    assert result.peak_blocks.tolist() == [replica.most_blocks for replica in replicas]


@settings(max_examples=100, deadline=None)
@given(**WORKLOADS, policy=st.sampled_from(sorted(POLICIES)))
def test_leaping_and_stepping_agree_to_a_nanosecond(
    seed, requests, load, cache_tokens, max_sequences, max_batched_tokens, policy
):
    trace = random_trace(seed, requests, load=load)
    profile = small_profile(cache_tokens, max_sequences=max_sequences, max_batched_tokens=max_batched_tokens)
    table = build_table(np.bincount(trace.key, minlength=6) / 10, destinations=3, q_cap=0.2, slots=9)
    given = {"policy": policy, "destinations": 3, "profile": profile, "table": table, "seed": seed}
    leap, step = (replay(trace, **given, step=s) for s in (False, True))
    assert leap.destination.tolist() == step.destination.tolist()
    assert leap.cached_tokens.tolist() == step.cached_tokens.tolist()
    np.testing.assert_allclose(leap.latency_s, step.latency_s, rtol=0, atol=1e-9)
    np.testing.assert_allclose(leap.ttft_s, step.ttft_s, rtol=0, atol=1e-9)
    assert leap.preemptions.tolist() == step.preemptions.tolist()


@settings(max_examples=100, deadline=None)
@given(**WORKLOADS, policy=st.sampled_from(sorted(POLICIES)))
def test_every_request_finishes_once_and_the_cache_never_overflows(
    seed, requests, load, cache_tokens, max_sequences, max_batched_tokens, policy
):
    trace = random_trace(seed, requests, load=load)
    profile = small_profile(cache_tokens, max_sequences=max_sequences, max_batched_tokens=max_batched_tokens)
    table = build_table(np.bincount(trace.key, minlength=6) / 10, destinations=4, q_cap=0.2, slots=9)
    result = replay(trace, policy=policy, destinations=4, profile=profile, table=table, seed=seed)
    served = result.served
    assert served.sum() + result.refused == len(trace) == len(result.latency_s)
    assert (result.latency_s[served] > 0).all()
    assert (result.ttft_s[served] <= result.latency_s[served]).all()
    assert (result.cached_tokens >= 0).all()
    assert (result.cached_tokens <= trace.prompt_tokens).all()
    assert (result.peak_blocks <= result.capacity_blocks).all()
    assert result.requests_per_destination.sum() == served.sum()


def test_pure_decoding_has_the_closed_form_time():
    profile = EngineProfile("p", None, 100.0, 0.01, 0.002, 0.0001, max_batched_tokens=1000)
    trace = Trace(np.zeros(1), np.zeros(1, int), [[0, 1]], np.array([20]), np.array([11]), 16)
    result = replay(trace, policy="flat-lb", destinations=1, profile=profile)
    first = 0.01 + 20 / 100
    assert result.ttft_s[0] == pytest.approx(first)
    # Ten decodes see 21, 22, ... 30 tokens of context.
    assert result.latency_s[0] == pytest.approx(first + 10 * 0.012 + 0.0001 * sum(range(21, 31)))


def test_a_replica_twice_as_fast_needs_half_the_time():
    profile = EngineProfile("p", None, 100.0, 0.01, 0.002, 0.0001, max_batched_tokens=1000)
    trace = Trace(np.zeros(1), np.zeros(1, int), [[0, 1]], np.array([20]), np.array([11]), 16)
    one, two = (replay(trace, policy="flat-lb", destinations=1, profile=profile, speed=[s]) for s in (1.0, 2.0))
    assert two.latency_s[0] == pytest.approx(one.latency_s[0] / 2)
    assert one.latency_s[0] == replay(trace, policy="flat-lb", destinations=1, profile=profile).latency_s[0]


def test_a_request_that_arrives_in_a_leap_joins_at_the_next_iteration():
    profile = EngineProfile("p", None, 100.0, 0.1, max_batched_tokens=1000)
    trace = Trace(np.array([0.0, 1.05]), np.zeros(2, int), [[0], [1]], np.array([10, 10]), np.array([100, 1]), 16)
    result = replay(trace, policy="flat-lb", destinations=1, profile=profile)
    # Boundaries lie at 0.2 + 0.1 i; the next after 1.05 is 1.1, then one iteration with 10 prompt tokens.
    assert result.latency_s[1] == pytest.approx(1.1 + 0.2 - 1.05)


def test_mean_wait_is_that_of_an_m_d_1_queue():
    service, load, n = 0.1, 6.0, 600_000
    profile = EngineProfile("md1", None, 1000.0, 0.0, max_batched_tokens=100, max_sequences=1)
    even = Trace(
        np.arange(n) / load, np.zeros(n, int), (np.arange(n + 1), np.arange(n)), np.full(n, 100), np.ones(n, int), 100
    )
    trace = retime(even, load, arrivals="poisson", seed=3)
    result = replay(trace, policy="flat-lb", destinations=1, profile=profile)
    assert result.hit_rate == 0
    busy = load * service
    expected = busy * service / (2 * (1 - busy))
    assert (result.latency_s - service).mean() == pytest.approx(expected, rel=0.02)


def test_oversize_request_is_refused_and_counted_and_others_are_served():
    trace = Trace(
        np.arange(3.0), np.arange(3), [[1], list(range(10, 60)), [2]], np.array([4, 200, 4]), np.ones(3, int), 4
    )
    result = replay(trace, policy="round-robin", destinations=2, profile=small_profile(80), warmup=0)
    assert result.refused == 1
    assert result.destination.tolist() == [0, -1, 1]
    assert np.isnan(result.latency_s).tolist() == [False, True, False]
    assert np.isfinite(result.p(99))
    assert result.summary()["refused"] == 1


def test_equal_seeds_give_equal_bits_and_another_seed_does_not():
    trace = random_trace(5, 300, load=20.0)
    runs = [replay(trace, policy="flat-lb", destinations=4, profile=small_profile(), seed=s) for s in (1, 1, 2)]
    assert runs[0].latency_s.tobytes() == runs[1].latency_s.tobytes()
    assert runs[0].latency_s.tobytes() != runs[2].latency_s.tobytes()


def test_plan_has_more_hits_than_flat_lb_with_shared_prefixes_and_a_small_cache():
    trace = random_trace(1, 3000, load=20.0, keys=24)
    rates = np.bincount(trace.key) / trace.arrival_s[-1]
    table = build_table(rates, destinations=6, q_cap=5.0, slots=24)
    profile = small_profile(120)
    flat, planned = (
        replay(trace, policy=p, destinations=6, profile=profile, table=table) for p in ("flat-lb", "cacheroute")
    )
    assert planned.hit_rate > flat.hit_rate + 0.1


def test_summary_excludes_the_warm_up_and_is_json():
    trace = random_trace(2, 100)
    result = replay(trace, policy="hash", destinations=2, profile=small_profile(), warmup=0.3)
    figures = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert figures["requests"] == 70
    assert figures["p99_s"] == pytest.approx(np.percentile(result.latency_s[30:], 99))
    assert figures["hit_rate"] == pytest.approx(result.cached_tokens[30:].sum() / trace.prompt_tokens[30:].sum())
    assert result.p(99) == result.p(0.99) == pytest.approx(np.percentile(result.latency_s, 99))


def test_an_empty_trace_gives_empty_figures():
    nothing = Trace(np.empty(0), np.empty(0, int), [], np.empty(0, int), np.empty(0, int), 16)
    result = replay(nothing, policy="flat-lb", destinations=2, profile=small_profile())
    assert result.summary()["p99_s"] is None
    assert np.isnan(result.hit_rate)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "best"}, "policy = 'best': expected one of flat-lb"),
        ({"policy": "cacheroute"}, "needs a routing table"),
        ({"destinations": 0}, "destinations = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 2**63}, "seed = 9223372036854775808"),
        ({"table": "plan"}, "table: expected a RoutingTable, got str"),
        ({"policy": "cacheroute", "switches": [object()]}, r"switches\[0\]: expected a PlanSwitch"),
        ({"warmup": 1.0}, "warmup = 1.0"),
        ({"cache_tokens": 0}, "cache_tokens = 0"),
        ({"speed": [1.0]}, r"speed: expected shape \(2,\), got \(1,\)"),
        ({"speed": [1.0, 0.0]}, r"speed\[1\] = 0.0"),
        ({"faults": [object()]}, r"faults\[0\]: expected a Fault, got object"),
        ({"faults": [Fault("down", 2, 1.0)]}, r"faults\[0\].destination = 2: expected below 2"),
        ({"faults": [Fault("slow", 1, 1.0), Fault("slow", 1, 5.0)]}, r"faults\[1\]: destination 1 has another 'slow'"),
        ({"faults": [Fault("down", 0, 0.0), Fault("drain", 1, 0.0)]}, "no destination is up or returns"),
    ],
)
def test_bad_arguments_are_refused_by_name_and_value(change, message):
    args = {"policy": "flat-lb", "destinations": 2, "profile": small_profile()} | change
    with pytest.raises(ValueError, match=message):
        replay(random_trace(1, 3), **args)


def test_profiles_have_names_sources_and_distinct_fingerprints():
    assert set(PROFILES) == {
        "llama-3.3-70b-fp8-tp2-h100",
        "llama-3.3-70b-fp16-tp2-h100",
        "llama-3.1-8b-h100",
        "qwen-32b-h100",
    }
    assert len({p.fingerprint() for p in PROFILES.values()}) == 4
    flagship = PROFILES["llama-3.3-70b-fp8-tp2-h100"]
    assert flagship.iteration_s == pytest.approx(0.0105, rel=0.01)
    assert 250_000 < flagship.cache_tokens < 500_000
    assert PROFILES["llama-3.3-70b-fp16-tp2-h100"].cache_tokens < flagship.cache_tokens / 10
    assert flagship.fingerprint() != flagship.with_cache(None).fingerprint()
    constants = {"cache_tokens", "prefill_tokens_per_s", "iteration_s", "sequence_s", "context_token_s"}
    assert constants <= set(flagship.provenance)
    json.dumps(flagship.as_dict())
    with pytest.raises(ValueError, match="iteration_s = -1"):
        small_profile(iteration_s=-1.0)


def test_youngest_sequence_is_preempted_without_blocks_and_still_finishes():
    # Two prompts of 4 blocks in a cache of 10: both need 3 more blocks to generate 12 tokens.
    trace = Trace(np.zeros(2), np.arange(2), [[0, 1, 2, 3], [4, 5, 6, 7]], np.full(2, 16), np.full(2, 12), 4)
    profile = small_profile(40, max_batched_tokens=100)
    result = replay(trace, policy="round-robin", destinations=1, profile=profile, warmup=0)
    alone = replay(trace, policy="round-robin", destinations=2, profile=profile, warmup=0)
    assert result.preemptions.tolist() == [1]
    assert alone.preemptions.sum() == 0
    assert result.latency_s[1] > result.latency_s[0] > alone.latency_s[0]
    assert result.peak_blocks[0] == 10


def test_profiles_survive_pickling():
    flagship = PROFILES["llama-3.3-70b-fp8-tp2-h100"]
    copy = pickle.loads(pickle.dumps(flagship))
    assert copy == flagship
    assert copy.fingerprint() == flagship.fingerprint()
    assert hash(copy) == hash(flagship)


def test_cache_below_one_block_refuses_and_counts_every_request():
    result = replay(random_trace(1, 20), policy="hash", destinations=2, profile=small_profile(3))
    assert result.refused == 20
    assert result.summary()["requests"] == 0
    assert result.summary()["p99_s"] is None


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(sorted(POLICIES)), start=st.sampled_from([0.0, 1e7, 1.7e9]))
def test_leaping_and_stepping_agree_where_arrivals_fall_on_boundaries_and_clocks_are_late(seed, policy, start):
    """Stamps in tenths of a second and iterations of a tenth: every arrival may be a tie."""
    rng = np.random.default_rng(seed)
    n = 40
    trace = Trace(
        start + np.cumsum(rng.integers(0, 8, n)) * 0.1,
        rng.integers(0, 3, n),
        [[i] for i in range(n)],
        np.full(n, 10),
        rng.integers(1, 60, n),
        16,
    )
    profile = EngineProfile("grid", 400, 100.0, 0.1, max_batched_tokens=1000, max_sequences=6)
    table = build_table([1.0, 1.0, 1.0], destinations=2, q_cap=9.0, slots=3)
    given = {"policy": policy, "destinations": 2, "profile": profile, "table": table, "seed": seed}
    leap, step = (replay(trace, **given, step=s) for s in (False, True))
    np.testing.assert_allclose(leap.latency_s, step.latency_s, rtol=0, atol=1e-9)
    assert leap.destination.tolist() == step.destination.tolist()


def test_pickled_trace_gives_the_same_replay_without_a_new_compilation():
    trace = random_trace(3, 200)
    replay(trace, policy="sticky", destinations=3, profile=small_profile())
    compiled = len(run.signatures)
    copy = pickle.loads(pickle.dumps(trace))
    results = [replay(t, policy="sticky", destinations=3, profile=small_profile()) for t in (trace, copy)]
    assert results[0].latency_s.tobytes() == results[1].latency_s.tobytes()
    assert len(run.signatures) == compiled
    assert not copy.arrival_s.flags.writeable
    assert len(pickle.dumps(trace)) < 1.1 * (sum(a.nbytes for a in (trace.arrival_s, trace.key, *trace.blocks)) * 2)


def test_compiled_cache_of_the_kernel_depends_on_the_version_of_the_source():
    assert [cell.cell_contents for cell in run.py_func.__closure__] == [source_number()]


def test_compiler_has_the_option_without_reference_counts():
    assert UNCOUNTED == {"_nrt": False}


def test_offered_load_counts_refused_requests():
    trace = Trace(
        np.arange(10.0), np.arange(10), [[i] * 1 if i % 2 else list(range(50 * i, 50 * i + 50)) for i in range(10)],
        np.array([4 if i % 2 else 200 for i in range(10)]), np.ones(10, int), 4,
    )  # fmt: skip
    figures = replay(trace, policy="round-robin", destinations=2, profile=small_profile(80), warmup=0).summary()
    assert (figures["refused"], figures["offered_rps"]) == (5, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_tokens": [2**31], "blocks": [[1]], "block_tokens": 2**31}, r"prompt_tokens\[0\] = 2147483648"),
        ({"output_tokens": [2**63 - 1]}, r"output_tokens\[0\] = "),
        ({"blocks": [[1.5]]}, r"blocks\[0\]: whole numbers expected"),
        ({"block_tokens": 16.5}, "block_tokens = 16.5"),
    ],
)
def test_trace_refuses_values_that_overflow_or_are_truncated(change, message):
    plain = {
        "arrival_s": [0.0], "key": [0], "blocks": [[1]], "prompt_tokens": [8], "output_tokens": [1], "block_tokens": 16,
    }  # fmt: skip
    Trace(**plain)
    with pytest.raises(ValueError, match=message):
        Trace(**plain | change)
