"""What a cell keeps of its requests: the same numbers that its arrays give, bounded, and JSON without NaN."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from planner.routing import build_table
from planner.services.replays import cell_figures
from planner.services.replays.cell_figures import figures_of_result
from planner.simulation import PROFILES, Trace, replay
from planner.simulation.synthetic import Lengths, source_rate_shape, synthetic_trace

DESTINATIONS, KEYS = 4, 120


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthetic_trace(
        source_rate_shape(KEYS, total_rps=12.0),
        requests=3_000,
        active_keys=KEYS,
        load_rps=12.0,
        prefix_tokens=Lengths(4_000, 0.3, 512, 16_384),
        suffix_tokens=Lengths(100, 0.3, 8, 1_000),
        output_tokens=Lengths(40, 0.4, 1, 200),
        seed=3,
    )


@pytest.fixture(scope="module")
def table():
    return build_table(source_rate_shape(KEYS, total_rps=12.0), destinations=DESTINATIONS, q_cap=8.0, slots=10)


@pytest.fixture(scope="module")
def result(trace, table):
    profile = PROFILES["llama-3.3-70b-fp8-tp2-h100"]
    return replay(trace, policy="cacheroute", destinations=DESTINATIONS, profile=profile, table=table, seed=1)


def figures(result, trace, *args, **kwargs):
    """The figures, having been through JSON, which refuses NaN."""
    return json.loads(json.dumps(figures_of_result(result, trace, *args, **kwargs).to_json(), allow_nan=False))


def test_the_summary_is_all_there_and_the_chain_is_of_the_measured_requests(result, trace, table):
    found = figures(result, trace, table, None)
    assert {k: found[k] for k in result.summary()} == json.loads(json.dumps(result.summary()))
    part = result.measured()
    tokens = result.prompt_tokens[part].sum()
    own = np.isin(result.key[part], table.admitted)
    assert found["delivered"] == pytest.approx(found["hit_rate"])
    assert found["delivered_planned"] == pytest.approx(result.cached_tokens[part][own].sum() / tokens)
    assert found["planned"] < found["available"] <= 1  # the table has ten slots a destination for 120 keys
    assert found["delivered_planned"] <= found["delivered"]
    assert "tenants" not in found
    assert "curve" not in found


def test_without_a_table_nothing_was_planned(result, trace):
    found = figures(result, trace, None, None)
    assert (found["planned"], found["delivered_planned"]) == (None, None)
    assert found["available"] > 0


def test_available_is_found_once_for_all_cells_of_a_trace_and_anew_for_another(result, trace):
    first = figures(result, trace, None, None)["available"]
    kept = cell_figures._last
    assert figures(result, trace, None, None)["available"] == first
    assert cell_figures._last is kept
    other = synthetic_trace(np.ones(KEYS), requests=3_000, active_keys=KEYS, load_rps=12.0, seed=9)
    figures(result, other, None, None)
    assert cell_figures._last is not kept


def test_throughput_is_what_was_finished_until_the_last_answer(result, trace):
    part = result.measured()
    span = (result.arrival_s[part] + result.latency_s[part]).max() - result.arrival_s[part].min()
    assert figures(result, trace, None, None)["throughput_rps"] == pytest.approx(part.sum() / span)


def test_tenants_are_the_measured_requests_of_their_keys(result, trace):
    tenant_of_key = np.arange(KEYS) % 3
    found = figures(result, trace, None, (["a", "b", "c"], tenant_of_key))
    part = result.measured()
    rows = {row["tenant"]: row for row in found["tenants"]["listed"]}
    assert [row["requests"] for row in found["tenants"]["listed"]] == sorted(
        (row["requests"] for row in rows.values()), reverse=True
    )
    p99s = []
    for at, name in enumerate("abc"):
        own = part & (tenant_of_key[result.key] == at)
        assert rows[name]["requests"] == own.sum()
        assert rows[name]["p99_s"] == pytest.approx(np.percentile(result.latency_s[own], 99))
        p99s.append(rows[name]["p99_s"])
    assert found["worst_tenant_ratio"] == pytest.approx(max(p99s) / np.median(p99s))
    assert found["tenants"]["worst"] == "abc"[int(np.argmax(p99s))]
    assert 0 < found["jain_hit"] <= 1
    assert found["tenants"]["rest"] == {"tenants": 0, "requests": 0}


def test_many_tenants_are_bounded_the_worst_is_kept_and_the_rest_counted(result, trace, monkeypatch):
    monkeypatch.setattr(cell_figures, "LISTED_TENANTS", 5)
    names = [f"t{i:03d}" for i in range(KEYS + 7)]
    found = figures(result, trace, None, (names, np.arange(KEYS)))
    tenants = found["tenants"]
    listed = [row["tenant"] for row in tenants["listed"]]
    assert len(listed) <= 6
    assert tenants["worst"] in listed
    assert tenants["silent"] >= 7  # no key of theirs
    assert tenants["too_few"] > 0
    assert sum(row["requests"] for row in tenants["listed"]) + tenants["rest"]["requests"] == found["requests"]
    assert len(listed) + tenants["rest"]["tenants"] == tenants["count"]


def test_keys_of_no_tenant_are_counted(result, trace):
    found = figures(result, trace, None, (["a"], np.zeros(1, dtype=np.int64)))
    own = (result.key[result.warmup_requests :] == 0).sum()
    assert found["tenants"]["without_tenant"] == len(trace) - result.warmup_requests - own
    assert figures(result, trace, None, ([], np.zeros(0, dtype=np.int64)))["worst_tenant_ratio"] is None


def test_events_ask_for_a_bounded_curve_and_a_dip_each(result, trace):
    end = float(trace.arrival_s[-1])
    found = figures(result, trace, None, None, at_s=(0.7 * end, 0.5 * end))
    curve = found["curve"]
    assert sum(curve["requests"]) == len(trace)
    assert len(curve["requests"]) <= cell_figures.CURVE_BINS
    assert [d["at_s"] for d in found["dips"]] == [0.5 * end, 0.7 * end]
    assert found["dips"][0]["seen_s"] == pytest.approx(0.2 * end)
    assert found["dips"][0]["before"] > 0
    assert curve["warmup_s"] == pytest.approx(trace.arrival_s[result.warmup_requests])


def test_nothing_served_after_the_warm_up_gives_figures_that_say_so(result, trace):
    nothing = replace(result, destination=np.full(len(trace), -1, dtype=np.int32))
    found = figures(nothing, trace, None, (["a"], np.zeros(KEYS, dtype=np.int64)), at_s=(1.0,))
    assert (found["requests"], found["throughput_rps"], found["available"], found["delivered"]) == (0, None, None, None)
    assert found["tenants"]["listed"][0]["p99_s"] is None
    assert found["tenants"]["unserved"] == len(trace) - result.warmup_requests
    assert found["dips"][0]["before"] is None
