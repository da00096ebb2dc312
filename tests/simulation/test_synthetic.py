"""Synthetic workloads: the source's rate shape, shared prefixes, the same bytes from the same seed."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.simulation.synthetic import (
    Lengths,
    blocks_from_lengths,
    source_rate_shape,
    synthetic_key_names,
    synthetic_tenants,
    synthetic_trace,
)
from tests.speed import usual_seconds


def gini(rates):
    ascending, n = np.sort(rates), len(rates)
    return 2 * (np.arange(1, n + 1) @ ascending) / (n * ascending.sum()) - (n + 1) / n


def make(rates=None, **changes):
    rates = source_rate_shape(1_000) if rates is None else rates
    settings = {"requests": 3_000, "active_keys": 100, "load_rps": 50.0, "seed": 7} | changes
    return synthetic_trace(rates, **settings)


def fingerprint(trace):
    arrays = (trace.arrival_s, trace.key, *trace.blocks, trace.prompt_tokens, trace.output_tokens)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def rows_of(trace):
    return np.split(trace.blocks.ids, trace.blocks.offsets[1:-1])


def test_rates_have_the_source_shape():
    rates = source_rate_shape()
    assert (len(rates), rates.dtype) == (128_824, np.float64)
    assert (np.diff(rates) <= 0).all()
    assert gini(rates) == pytest.approx(0.756, abs=0.003)
    assert 0.45 <= rates[: int(0.04 * len(rates))].sum() / rates.sum() <= 0.48
    assert rates[0] / rates.sum() <= 0.003
    assert rates.sum() == pytest.approx(100.0)


@pytest.mark.parametrize("wanted", [0.0, 0.3, 0.6])
def test_gini_and_total_are_parameters(wanted):
    rates = source_rate_shape(50_000, total_rps=7.0, gini=wanted)
    assert gini(rates) == pytest.approx(wanted, abs=0.002)
    assert rates.sum() == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"keys": 0}, "keys"),
        ({"keys": 1.5}, "keys"),
        ({"total_rps": 0}, "total_rps"),
        ({"total_rps": float("nan")}, "total_rps"),
        ({"gini": 1.0}, "gini"),
        ({"gini": -0.1}, "gini"),
        ({"gini": float("nan")}, "gini"),
    ],
)
def test_bad_shape_argument_is_named(changes, name):
    with pytest.raises(ValueError, match=name):
        source_rate_shape(**changes)


def test_same_seed_gives_the_same_bytes_and_another_seed_others():
    assert fingerprint(make()) == fingerprint(make())
    assert fingerprint(make()) != fingerprint(make(seed=8))


def test_load_only_scales_the_arrivals():
    slow, fast = make(load_rps=50.0), make(load_rps=200.0)
    assert np.allclose(slow.arrival_s, 4 * fast.arrival_s)
    assert (slow.key == fast.key).all()
    assert (slow.blocks.ids == fast.blocks.ids).all()
    assert (slow.prompt_tokens == fast.prompt_tokens).all()
    assert (slow.output_tokens == fast.output_tokens).all()


def test_arrivals_are_poisson_at_the_load():
    gaps = np.diff(make(requests=30_000, load_rps=80.0).arrival_s)
    assert gaps.mean() == pytest.approx(1 / 80.0, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)


def test_keys_are_the_most_active_and_drawn_by_rate():
    rates = np.ones(1_000)
    rates[[3, 500, 999]] = [600.0, 300.0, 100.0]
    trace = make(rates, active_keys=3, requests=20_000)
    counts = np.bincount(trace.key, minlength=1_000) / 20_000
    assert counts[[3, 500, 999]] == pytest.approx([0.6, 0.3, 0.1], abs=0.015)
    assert counts.sum() == pytest.approx(counts[[3, 500, 999]].sum())


def test_equal_rates_go_to_the_lower_indices():
    assert set(make(np.ones(50), active_keys=10).key.tolist()) == set(range(10))


def test_requests_share_only_the_full_prefix_blocks_of_their_key():
    trace = make(prefix_tokens=Lengths(2_000, 0.5, 100, 9_000))
    seen_by, times = {}, {}
    for key, row in zip(trace.key.tolist(), rows_of(trace), strict=True):
        for block in row.tolist():
            assert seen_by.setdefault(block, key) == key  # no block under two keys
            times[block] = times.get(block, 0) + 1
    shared_of = {}
    for key, row in zip(trace.key.tolist(), rows_of(trace), strict=True):
        shared = [block for block in row.tolist() if times[block] > 1]
        assert shared == row.tolist()[: len(shared)]  # a leading run
        assert len(shared) < len(row)  # the ragged end and suffix are never shared
        if shared:
            assert shared_of.setdefault(key, shared) == shared
    assert len({len(shared) for shared in shared_of.values()}) > 5


def test_prefix_within_one_block_shares_nothing():
    trace = make(prefix_tokens=Lengths(300, 0.1, 200, 511))
    assert len(np.unique(trace.blocks.ids)) == len(trace.blocks.ids)


def test_prefix_that_fills_its_blocks_is_shared_whole():
    trace = make(prefix_tokens=Lengths(1_024, 0.0, 1_024, 1_024), suffix_tokens=Lengths(10, 0.0, 10, 10))
    rows = np.array(rows_of(trace))
    assert rows.shape == (3_000, 3)
    assert len(np.unique(rows[:, 2])) == 3_000
    assert len(np.unique(rows[:, 1])) == len(np.unique(trace.key))


def test_lengths_follow_their_distribution_and_bounds():
    trace = make(
        requests=20_000,
        prefix_tokens=Lengths(1, 0, 1, 1),
        suffix_tokens=Lengths(400, 0.5, 50, 1_500),
        output_tokens=Lengths(100, 0.8, 20, 300),
    )
    suffix = trace.prompt_tokens - 1
    assert np.median(suffix) == pytest.approx(400, rel=0.03)
    assert (suffix.min() >= 50, suffix.max() <= 1_500) == (True, True)
    assert (trace.output_tokens.min(), trace.output_tokens.max()) == (20, 300)


def test_number_replaces_the_median():
    trace = make(prefix_tokens=50_000.0, active_keys=900, requests=9_000)
    assert np.median(trace.prompt_tokens) == pytest.approx(50_000, rel=0.2)
    assert make(suffix_tokens=1, prefix_tokens=1).prompt_tokens.min() >= 2


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"requests": 0}, "requests"),
        ({"active_keys": 0}, "active_keys"),
        ({"active_keys": 1_001}, "active_keys"),
        ({"load_rps": 0.0}, "load_rps"),
        ({"load_rps": float("inf")}, "load_rps"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"prefix_tokens": -5}, "prefix_tokens"),
        ({"suffix_tokens": Lengths(5, 0.1, 0, 9)}, "suffix_tokens"),
        ({"output_tokens": Lengths(5, 0.1, 6, 9)}, "output_tokens"),
        ({"output_tokens": Lengths(5, float("nan"), 1, 9)}, "output_tokens"),
        ({"rates": [1.0, -2.0]}, r"rates\[1\] = -2.0"),
        ({"rates": [1.0, 2.0, float("nan")]}, r"rates\[2\] = nan"),
        ({"rates": [[1.0]]}, "rates"),
        ({"rates": [0.0, 1.0], "active_keys": 2}, "active_keys: 2 is more than the 1"),
    ],
)
def test_bad_trace_argument_is_named(changes, name):
    with pytest.raises(ValueError, match=name):
        make(**changes)


@given(
    requests=st.integers(1, 200),
    active=st.integers(1, 20),
    block=st.integers(1, 700),
    prefix=st.integers(1, 3_000),
    suffix=st.integers(1, 900),
    seed=st.integers(0, 2**64),
)
def test_any_settings_give_a_sound_trace(requests, active, block, prefix, suffix, seed):
    trace = make(
        source_rate_shape(20),
        requests=requests,
        active_keys=active,
        block_tokens=block,
        prefix_tokens=Lengths(prefix, 0.5, 1, 4_000),
        suffix_tokens=Lengths(suffix, 0.5, 1, 1_000),
        seed=seed,
    )
    assert len(trace) == requests  # Trace itself checks order, lengths and tiling
    assert trace.key.max() < active


def test_thirty_thousand_requests_take_under_half_a_second():
    rates = source_rate_shape()
    made = []
    spent = usual_seconds(lambda: made.append(make(rates, requests=30_000, active_keys=128, load_rps=100.0)))
    assert len(made[-1]) == 30_000
    assert spent < 0.5


def test_key_names_carry_the_index_and_are_distinct():
    assert synthetic_key_names(3) == ["k000000", "k000001", "k000002"]
    assert synthetic_key_names(0) == []
    names = synthetic_key_names(1_000_001)
    assert (names[-1], names[5]) == ("k1000000", "k0000005")


def test_tenants_come_from_the_seed_and_cover_all():
    tenants = synthetic_tenants(5_000, tenants=12, seed=3)
    assert tenants == synthetic_tenants(5_000, tenants=12, seed=3)
    assert tenants != synthetic_tenants(5_000, tenants=12, seed=4)
    assert set(tenants) == {f"tenant-{i:02d}" for i in range(12)}
    with pytest.raises(ValueError, match="tenants"):
        synthetic_tenants(5, tenants=0, seed=1)


def test_blocks_follow_from_the_prefix_length_of_the_key():
    blocks = blocks_from_lengths([0, 1, 0, 0], [100, 40, 64, 20], [70, 0], block_tokens=16)
    rows = [blocks.ids[a:b].tolist() for a, b in itertools.pairwise(blocks.offsets)]
    assert [len(row) for row in rows] == [7, 3, 4, 2]
    assert rows[0][:4] == rows[2] == [0, 1, 2, 3]  # 70 tokens fill four blocks
    assert rows[3] == [0, 1]  # a prompt shorter than the prefix
    own = rows[0][4:] + rows[1]
    assert len(set(own)) == len(own) == 6
    assert min(own) > 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (([0, 2], [5, 5], [1, 1]), r"key\[1\] = 2: expected an index below 2"),
        (([0, 1], [5, 0], [1, 1]), r"prompt_tokens\[1\] = 0"),
        (([0, 1], [5, 5], [1, -1]), r"prefix_tokens\[1\] = -1"),
        (([0, 1], [5], [1, 1]), "prompt_tokens: expected one for each of 2 keys"),
    ],
)
def test_lengths_that_give_no_blocks_are_refused(args, message):
    with pytest.raises(ValueError, match=message):
        blocks_from_lengths(*args)
