"""Available reuse against a set of seen blocks, and the figure known for a real trace."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis import reuse
from planner.simulation import Trace
from tests.simulation.test_mooncake import DATA, mooncake
from tests.simulation.workloads import random_trace


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 80))
def test_reuse_is_the_longest_leading_run_of_seen_blocks(seed, requests):
    trace = random_trace(seed, requests) if requests else Trace([], [], [], [], [], 4)
    seen: set[int] = set()
    cached = hits = 0
    for i in range(requests):
        row = trace.blocks.ids[trace.blocks.offsets[i] : trace.blocks.offsets[i + 1]].tolist()
        run, prompt = 0, int(trace.prompt_tokens[i])
        while run < (prompt - 1) // 4 and row[run] in seen:
            run += 1
        cached += run * 4
        hits += run > 0
        seen.update(row[: prompt // 4])  # a part-filled last block is not kept
    found = reuse(trace)
    assert found.cached_tokens == cached
    assert found.hit_rate == (cached / trace.prompt_tokens.sum() if requests else 0.0)
    assert found.request_hit_rate == pytest.approx(hits / requests if requests else 0.0)
    assert found.distinct_blocks == len(set(trace.blocks.ids.tolist()))


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no Mooncake traces at {DATA}")
def test_conversation_trace_offers_the_known_reuse():
    found = reuse(mooncake("conversation", 2))
    assert found.hit_rate == pytest.approx(0.3736, abs=0.0005)
    assert (found.distinct_blocks, found.recurring_blocks) == (182_790, 44_144)
