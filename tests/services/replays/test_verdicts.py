"""The verdict over cells as they come: refined ladders, missing cells, other plans, tenants, faults, old rows."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from planner.analysis import paired_difference, t_interval
from planner.services.replays.verdicts import MEANS, PAIRED, verdict_of

SLO = 3.5
SEEDS = (1, 2, 3)


def figures(p99_s: float, **other: Any) -> dict[str, Any]:
    """Figures of a cell as they were kept before tenants and chains were."""
    names = ("hit_rate", "request_hit_rate", "p50_s", "p95_s", "ttft_p99_s", "imbalance", "busy_imbalance")
    found: dict[str, Any] = dict.fromkeys(names, 0.5)
    found |= {"p99_s": p99_s, "requests_per_destination": [30, 10], "requests": 40, "preemptions": 1, "refused": 0}
    return found | other


class Cells(list):
    """Stands where a replay has its cells; all of these succeeded."""

    def filter(self, **_: Any) -> Cells:
        return self


def judge(cells: dict[tuple[str, float, int], dict[str, Any]], policies: tuple[str, ...] = ()) -> dict[str, Any]:
    """The verdict on cells of (policy, load, seed), having been through JSON."""
    rows = [SimpleNamespace(policy=p, load_rps=load, seed=s, figures=f) for (p, load, s), f in cells.items()]
    names = list(policies or dict.fromkeys(p for p, _, _ in cells))
    row = SimpleNamespace(policies=names, seeds=list(SEEDS), slo_p99_s=SLO, cells=Cells(rows))
    return json.loads(json.dumps(verdict_of(row).to_json(), allow_nan=False))


def ladder(policy: str, p99: dict[float, float], **other: Any) -> dict[tuple[str, float, int], dict[str, Any]]:
    """Cells of three seeds; each seed is a hundredth slower than the one before."""
    return {(policy, load, seed): figures(p + seed / 100, **other) for load, p in p99.items() for seed in SEEDS}


def both(**other: Any) -> dict[tuple[str, float, int], dict[str, Any]]:
    """CacheRoute within the SLO throughout, Flat-LB at no load."""
    flat = ladder("flat-lb", {30.0: 5.0, 60.0: 9.0, 90.0: 20.0}, **other)
    return flat | ladder("cacheroute", {30.0: 1.0, 60.0: 1.5, 90.0: 2.0}, **other)


def test_a_ladder_whose_lowest_load_fails_is_left_censored_and_its_top_right_censored():
    found = judge(both())
    assert found["capacity"] == {"flat-lb": "<30", "cacheroute": ">=90"}
    flat = found["policies"]["flat-lb"]["capacity"]
    assert (flat["censored"], flat["steps"], flat["of"]) == (["left"], [0, 0, 0], 3)
    assert found["against_flat"]["cacheroute"]["capacity_steps"]["mean"] == 3


def test_seeds_that_are_censored_differently_are_both_named():
    cells = ladder("flat-lb", {30.0: 3.475, 60.0: 9.0})  # 3.485, 3.495, 3.505
    assert judge(cells)["capacity"]["flat-lb"] == "<30 to 30"


def test_rows_from_before_tenants_and_chains_are_judged_without_them():
    found = judge(both())
    row = found["policies"]["cacheroute"]["loads"][1]
    assert row["p99_s"] == {
        "mean": pytest.approx(1.52),
        "half": pytest.approx(t_interval([1.51, 1.52, 1.53]).half_width),
    }
    assert {name for name in MEANS if row[name] is None} == {
        "throughput_rps", "available", "planned", "delivered", "delivered_planned", "jain_hit", "jain_p99",
        "worst_tenant_ratio",
    }  # fmt: skip
    assert (row["preemptions"], row["redispatched"]) == (3, 0)
    assert not {"tenants", "events", "against_candidate"} & set(found)
    assert found["against_flat"]["cacheroute"]["throughput_rps"] == []


def test_differences_are_seed_by_seed_for_every_paired_figure():
    cells = both(throughput_rps=20.0)
    for seed in SEEDS:
        cells["cacheroute", 60.0, seed] |= {
            "hit_rate": 0.8 + seed / 10, "p50_s": 0.4, "busy_imbalance": 1.1, "throughput_rps": 19.0 + seed,
        }  # fmt: skip
    against = judge(cells)["against_flat"]["cacheroute"]
    assert set(against) == {*PAIRED, "capacity_steps"}
    at = {name: against[name][1] for name in PAIRED}
    assert {row["load_rps"] for row in at.values()} == {60.0}
    expected = paired_difference([0.9, 1.0, 1.1], [0.5, 0.5, 0.5])
    assert (at["hit_rate"]["mean"], at["hit_rate"]["half"]) == (
        pytest.approx(expected.mean),
        pytest.approx(expected.half_width),
    )
    assert at["throughput_rps"]["mean"] == pytest.approx(1)
    assert at["p50_s"]["mean"] == pytest.approx(-0.1)
    assert at["busy_imbalance"]["mean"] == pytest.approx(0.6)


def test_several_looks_need_a_stronger_difference_than_one():
    cells = both()
    for seed, hit in zip(SEEDS, (0.51, 0.55, 0.58), strict=True):
        cells["cacheroute", 60.0, seed]["hit_rate"] = hit
    row = judge(cells)["against_flat"]["cacheroute"]["hit_rate"][1]
    one, three = (paired_difference([0.51, 0.55, 0.58], [0.5] * 3, c).excludes_zero for c in (0.95, 1 - 0.05 / 3))
    assert (row["excludes_zero"], row["excludes_zero_all_loads"]) == (one, three)


def test_loads_that_only_one_policy_was_run_at_stand_in_its_own_row_and_are_compared_nowhere():
    cells = both() | ladder("cacheroute", {120.0: 2.5, 105.0: 2.2}) | ladder("flat-lb", {15.0: 1.0})
    found = judge(cells)
    assert found["loads_rps"] == [15.0, 30.0, 60.0, 90.0, 105.0, 120.0]
    assert [row["load_rps"] for row in found["policies"]["cacheroute"]["loads"]] == [30.0, 60.0, 90.0, 105.0, 120.0]
    assert found["capacity"] == {"flat-lb": "15", "cacheroute": ">=120"}
    against = found["against_flat"]["cacheroute"]
    assert [row["load_rps"] for row in against["p99_s"]] == [30.0, 60.0, 90.0]
    assert against["capacity_steps"]["mean"] == 3  # of the three loads that both were run at


def test_a_cell_of_one_seed_that_is_missing_leaves_the_pairs_that_are_there():
    cells = both()
    del cells["flat-lb", 60.0, 2]
    found = judge(cells)
    assert found["policies"]["flat-lb"]["loads"][1]["seeds"] == 2
    assert found["against_flat"]["cacheroute"]["p99_s"][1]["mean"] == pytest.approx(-7.5)
    assert found["policies"]["flat-lb"]["capacity"]["text"] == "<30"


def test_a_policy_without_cells_is_not_run_and_has_no_differences():
    found = judge(both(), ("flat-lb", "cacheroute", "sticky"))
    assert found["policies"]["sticky"]["loads"] == []
    assert found["capacity"]["sticky"] == "not run"
    assert found["against_flat"]["sticky"]["capacity_steps"]["mean"] is None


def test_what_an_older_plan_loses_is_paired_with_the_candidate():
    cells = both() | ladder("cacheroute@3", {30.0: 1.2, 60.0: 2.3, 90.0: 4.0}, hit_rate=0.47)
    found = judge(cells)
    lost = found["against_candidate"]["cacheroute@3"]
    assert [row["mean"] for row in lost["p99_s"]] == [pytest.approx(d) for d in (0.2, 0.8, 2.0)]
    assert lost["hit_rate"][0]["mean"] == pytest.approx(-0.03)
    assert lost["capacity_steps"]["mean"] == -1
    assert set(found["against_flat"]) == {"cacheroute", "cacheroute@3"}


def tenants(worst: str | None = "b", **p99: float | None) -> dict[str, Any]:
    """Tenants of a cell, the first named with most requests."""
    listed = [
        {"tenant": name, "requests": 100 - at, "unserved": 0, "hit_rate": 0.5, "request_hit_rate": 0.6, "p50_s": 0.5,
         "p99_s": value} for at, (name, value) in enumerate(p99.items())
    ]  # fmt: skip
    return {
        "count": len(p99) + 40, "silent": 2, "too_few": 1, "min_requests": 100, "without_tenant": 5, "unserved": 0,
        "worst": worst, "listed": listed, "rest": {"tenants": 40, "requests": 400},
    }  # fmt: skip


def test_tenants_are_averaged_over_seeds_bounded_and_the_rest_counted():
    many = {f"t{i:02d}": 1.0 for i in range(30)}
    cells = both(tenants=tenants("t29", **many), jain_hit=0.9, jain_p99=0.8, worst_tenant_ratio=2.0)
    cells["cacheroute", 30.0, 3]["tenants"] = tenants("t00", **{**many, "t00": 4.0})
    cells["cacheroute", 30.0, 3]["worst_tenant_ratio"] = None
    found = judge(cells)
    at = found["tenants"]["cacheroute"][0]
    assert [row["tenant"] for row in at["rows"]] == [f"t{i:02d}" for i in range(20)] + ["t29"]
    assert at["rows"][0]["p99_s"]["mean"] == pytest.approx(2.0)
    assert at["worst"] == {"t29": 2, "t00": 1}
    assert (at["count"], at["not_listed"], at["without_tenant"], at["too_few"]) == (70, 49, 5, 1)
    assert found["policies"]["cacheroute"]["loads"][0]["worst_tenant_ratio"] == {"mean": 2.0, "half": 0.0, "missing": 1}
    assert found["policies"]["cacheroute"]["loads"][0]["jain_hit"]["mean"] == pytest.approx(0.9)


def test_a_tenant_without_a_p99_in_some_seed_is_averaged_over_the_others():
    cells = both(tenants=tenants(None, a=None, b=2.0))
    cells["cacheroute", 30.0, 1]["tenants"] = tenants("a", a=3.0, b=2.0)
    at = judge(cells)["tenants"]["cacheroute"][0]
    assert at["rows"][0]["p99_s"] == {"mean": 3.0, "half": None, "missing": 2}
    assert judge(both(tenants=tenants(None, a=None)))["tenants"]["flat-lb"][0]["rows"][0]["p99_s"] is None


def test_curves_of_seeds_are_added_up_in_the_same_bins_and_dips_that_never_end_are_counted():
    def curve(width: float, *cached: int) -> dict[str, Any]:
        bins = len(cached)
        return {"width_s": width, "warmup_s": 4.0, "requests": [1] * bins, "prompt_tokens": [10] * bins,
                "cached_tokens": list(cached)}  # fmt: skip

    def dipped(at: float, duration: float | None) -> dict[str, Any]:
        return {"at_s": at, "before": 0.8, "within": 0.02, "lowest": 0.3, "depth_points": 50.0,
                "duration_s": duration, "censored": duration is None, "seen_s": 30.0 - at}  # fmt: skip

    cells = both()
    for seed, width, cached, duration in (
        (1, 2.0, (1, 2, 3, 4, 5), 6.0),
        (2, 4.0, (10, 10, 10), 8.0),
        (3, 4.0, (0, 0), None),
    ):
        cells["cacheroute", 60.0, seed] |= {"curve": curve(width, *cached), "dips": [dipped(10.0 + seed, duration)]}
    found = judge(cells)["events"]
    assert set(found) == {"cacheroute"}
    (row,) = found["cacheroute"]
    assert row["load_rps"] == 60.0
    assert (row["curve"]["width_s"], row["curve"]["cached_tokens"]) == (4.0, [13, 17, 15])
    assert row["curve"]["requests"] == [4, 4, 2]
    (dip,) = row["dips"]
    assert (dip["duration_s"]["mean"], dip["duration_s"]["missing"], dip["censored"], dip["of"]) == (7.0, 1, 1, 3)
    assert (dip["at_s"], dip["seen_s"]) == (12.0, 17.0)
