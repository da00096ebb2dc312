"""The replay against three real llama.cpp servers: what it says of hit rates is what they report."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("xllamacpp", exc_type=ImportError, reason="needs xllamacpp and gguf (requirements/test.txt)")

from benchmarks import engine_runs
from benchmarks.llama_fleet import FIRST_TOKEN, fleet, write_model
from planner.simulation import EngineProfile, Trace, replay

pytestmark = [pytest.mark.integration]


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> dict[str, engine_runs.Comparison]:
    """Each policy simulated, and served by engines that were cold."""
    return {found.policy: found for found in engine_runs.compare(tmp_path_factory.mktemp("llama"))}


@pytest.mark.parametrize("policy", engine_runs.POLICY_NAMES)
def test_the_replay_predicts_the_hit_rate_that_engines_report(compared, policy):
    found = compared[policy]
    assert found.simulated == pytest.approx(found.engines.hit_rate, abs=0.05)


@pytest.mark.parametrize("policy", engine_runs.POLICY_NAMES)
def test_a_replay_of_what_an_engine_was_sent_reuses_what_it_reused(compared, policy):
    found = compared[policy]
    assert found.as_sent == pytest.approx(found.engines.hit_rate, abs=0.05)


@pytest.mark.parametrize("policy", engine_runs.POLICY_NAMES)
def test_answers_and_metrics_of_an_engine_count_the_same_tokens(compared, policy):
    done = compared[policy].engines
    assert len(done.answers) == engine_runs.REQUESTS
    for r, (computed, reused) in enumerate(compared[policy].metrics):
        here = done.destination == r
        assert reused == done.cached_tokens[here].sum()
        assert computed + reused == done.prompt_tokens[here].sum()


def test_planned_placement_beats_power_of_two_in_the_replay_and_in_the_engines(compared):
    planned, blind = compared["cacheroute"], compared["flat-lb"]
    assert planned.simulated > blind.simulated + 0.1
    assert planned.engines.hit_rate > blind.engines.hit_rate + 0.1


def test_engines_are_sent_requests_where_the_policy_of_the_replay_sends_them(compared):
    # Sticky does not see load, so not even the pace of this machine can make a difference.
    workload = engine_runs.make_workload(compared["sticky"].load_rps, seed=1)
    profile = EngineProfile("any", None, 1e5, 1e-4)
    simulated = replay(workload.trace, policy="sticky", destinations=engine_runs.ENGINES, profile=profile, seed=1)
    np.testing.assert_array_equal(compared["sticky"].engines.destination, simulated.destination)


@pytest.mark.parametrize(
    "order",
    [
        pytest.param("ABAB", id="slots for both"),
        pytest.param("ABCABC", id="the slot used longest ago is overwritten"),
        pytest.param("ABACAB", id="use renews a slot"),
        pytest.param("AaBAb", id="what continues a prompt goes to its slot"),
        pytest.param("AxBA", id="less in common than the similarity takes another slot"),
        pytest.param("AyBA", id="more in common than the similarity takes that slot"),
    ],
)
def test_a_slot_is_chosen_and_kept_as_the_model_says(tmp_path, order):
    """One request after the other on two slots, token for token."""
    rng = np.random.default_rng(5)
    words = {name: rng.integers(FIRST_TOKEN + 50, 1024, 200).tolist() for name in "ABC"}
    for at, name in enumerate("ABC"):
        words[name][0] = FIRST_TOKEN + at
    words |= {"a": [*words["A"], *words["C"][:40]], "b": [*words["B"][:150], *words["A"][150:]]}
    # A tenth of the 200 tokens is 20.
    words |= {"x": [*words["A"][:15], *words["C"][15:]], "y": [*words["A"][:30], *words["C"][30:]]}
    numbers: dict[tuple[int, ...], int] = {}
    rows = [
        [numbers.setdefault(tuple(words[name][: at + 1]), len(numbers)) for at in range(len(words[name]))]
        for name in order
    ]
    tokens = np.array([len(row) for row in rows])
    n = len(order)
    trace = Trace(np.arange(n) * 10.0, np.zeros(n, int), rows, tokens, np.full(n, 2), 1)
    profile = EngineProfile("s", 1024, 1e5, 1e-4, max_sequences=2, cache_shape="slots")
    simulated = replay(trace, policy="round-robin", destinations=1, profile=profile)
    with fleet(1, write_model(tmp_path / "tiny.gguf"), slots=2, slot_tokens=512) as servers:
        reported = [servers[0].complete(words[name], 2).cached_tokens for name in order]
    assert reported == simulated.cached_tokens.tolist()


def test_a_server_that_cannot_start_says_why(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    with pytest.raises(RuntimeError, match="did not start"), fleet(1, broken, slots=1, slot_tokens=64):
        pass
