"""A trace that is played over and over, and one table out of the arms of a published one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.routing import build_table, canary_share
from planner.services.telemetry.simulated_requests import canary_shares, combined_table, looped
from planner.simulation import Trace

N = 40


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Forty requests, the first two blocks of which are those of their key and the last their own."""
    rng = np.random.default_rng(4)
    key = rng.integers(0, 5, N)
    return Trace(
        arrival_s=np.sort(rng.random(N)) * 10,
        key=key,
        blocks=[[2 * k, 2 * k + 1, 100 + at] for at, k in enumerate(key)],
        prompt_tokens=np.full(N, 48),
        output_tokens=np.arange(1, N + 1),
        block_tokens=16,
    )


def test_a_lap_is_the_trace_at_the_rate(trace):
    found = looped(trace, rate_rps=8.0, from_s=0.0, until_s=5.0)
    assert found.key.tolist() == trace.key.tolist()
    assert found.blocks.ids.tolist() == trace.blocks.ids.tolist()
    gaps = np.diff(trace.arrival_s)
    assert np.diff(found.arrival_s) == pytest.approx(gaps / gaps.mean() / 8.0)


@given(st.integers(0, 10**7), st.integers(0, 200), st.integers(0, 200))
def test_stretches_that_follow_each_other_fit_together(start, first, second):
    # Arrivals are eighths of a second; stretches begin and end between them.
    at = [(steps + 0.5) / 8 for steps in (start, start + first, start + first + second)]
    before, after, whole = (
        looped(small(), rate_rps=8.0, from_s=at[a], until_s=at[b]) for a, b in ((0, 1), (1, 2), (0, 2))
    )
    assert [*before.output_tokens, *after.output_tokens] == whole.output_tokens.tolist()
    assert whole.output_tokens.tolist() == [(start + 1 + n) % N + 1 for n in range(first + second)]
    assert whole.arrival_s == pytest.approx([(n + 0.5) / 8 for n in range(first + second)], abs=1e-6)


def small() -> Trace:
    return Trace(
        arrival_s=np.arange(N, dtype=float),
        key=np.arange(N) % 5,
        blocks=[[k % 5, 100 + k] for k in range(N)],
        prompt_tokens=np.full(N, 32),
        output_tokens=np.arange(1, N + 1),
        block_tokens=16,
    )


def test_what_one_request_alone_asked_for_is_new_in_every_lap(trace):
    found = looped(trace, rate_rps=8.0, from_s=2.5, until_s=17.5)  # parts of four laps
    rows = [
        found.blocks.ids[a:b].tolist() for a, b in zip(found.blocks.offsets, found.blocks.offsets[1:], strict=False)
    ]
    assert all(row[:2] == [2 * k, 2 * k + 1] for row, k in zip(rows, found.key, strict=True))
    own = [row[2] for row in rows]
    assert len(set(own)) == len(own) == 120


def test_requests_that_all_came_at_once_are_spread(trace):
    at_once = Trace(
        arrival_s=np.zeros(2),
        key=[0, 1],
        blocks=[[1], [2]],
        prompt_tokens=[8, 8],
        output_tokens=[1, 1],
        block_tokens=16,
    )
    assert looped(at_once, rate_rps=2.0, from_s=0, until_s=2).arrival_s.tolist() == [0.0, 0.5, 1.0, 1.5]


def test_a_stretch_without_a_request_is_empty(trace):
    assert len(looped(small(), rate_rps=0.001, from_s=1.0, until_s=2.0)) == 0


def test_shares_equal_the_shares_that_routers_compute():
    names = ["tenant-a", "tenant-b", "ключ"]
    assert canary_shares("salt", names).tolist() == [canary_share("salt", name) for name in names]


def test_each_key_goes_by_the_arm_that_takes_it():
    names = [f"k{at}" for at in range(6)]
    plain = build_table([6.0, 5.0, 4.0, 3.0], destinations=2, q_cap=4.0, slots=8)
    other = build_table([9.0, 1.0, 1.0], destinations=2, q_cap=10.0, slots=2)
    takes = np.array([True, False, False, True, True, True])
    # The plans know other keys in another order, and destinations 5 and 2 of the fleet.
    of_plain, of_other = [f"k{i}" for i in plain.admitted], [f"k{[0, 4, 9][i]}" for i in other.admitted]
    table = combined_table([(~takes, of_plain, plain, [5, 2]), (takes, of_other, other, [0, 1])], names, 7)
    found = {name: table.members_of(at).tolist() for at, name in enumerate(names)}
    assert found["k0"] == other.members_of(0).tolist()
    assert found["k1"] == sorted([5, 2][m] for m in plain.members_of(1))
    assert found["k2"] == sorted([5, 2][m] for m in plain.members_of(2))
    assert found["k3"] == []  # of the canary, whose plan does not admit it
    assert found["k5"] == []
    assert table.destinations == 7
    backups = dict(zip(table.admitted.tolist(), table.backup.tolist(), strict=True))
    assert backups[0] == other.backup[other.row[0]]


def test_flat_lb_is_a_table_without_a_key():
    table = combined_table([], ["a", "b"], 3)
    assert (len(table.admitted), table.keys, table.destinations) == (0, 2, 3)
