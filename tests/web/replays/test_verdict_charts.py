"""Charts of a verdict: censored capacities, policies that were not run at a load, the chain, recovery curves."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards import figures, ladder, recovery
from planner.analysis.verdict import Verdict
from planner.selectors.plans.page import ChartData
from planner.selectors.replays.verdict_page import CapacityMark

LOADS = [30.0, 60.0, 90.0]


def rows(p99: list[float], loads: list[float] = LOADS, **other: Any) -> list[dict[str, Any]]:
    """A row a load, with intervals."""
    return [
        {"load_rps": load, "p99_s": {"mean": value, "half": 0.1}, "hit_rate": {"mean": 0.5, "half": None},
         "imbalance": {"mean": 1.2, "half": 0.1}, "requests_per_destination": [3, 1], **other}
        for load, value in zip(loads, p99, strict=True)
    ]  # fmt: skip


def capacity(text: str, low: float | None, high: float | None, left: bool = False, right: bool = False) -> dict:
    mean = None if low is None or high is None else (low + high) / 2
    half = None if mean is None else 5.0
    return {"text": text, "low": low, "high": high, "mean": mean, "half": half, "left": left, "right": right}


def data(**changes: Any) -> dict[str, Any]:
    """Flat-LB fails at the lowest load, CacheRoute passes at the highest."""
    policies = {"cacheroute": {"loads": rows([1, 2, 3])}, "flat-lb": {"loads": rows([5, 9, 20])}}
    found = {
        "destinations": ["d0", "d1"], "capacity": [1.0, 1.0], "planned": [2.0, 2.0], "planned_imbalance": 1.0,
        "verdict": {"slo_p99_s": 3.5, "loads_rps": LOADS, "seeds": [1], "policies": policies},
        "policies": ["cacheroute", "flat-lb"], "simulated": ["simulated replicas"], "events": {}, "first_shown": None,
        "capacities": {"cacheroute": capacity(">=90", 90.0, 90.0, right=True),
                       "flat-lb": capacity("<30", None, None, left=True)},
    }  # fmt: skip
    return found | changes


def chart(found: dict[str, Any]) -> ChartData:
    """The data as the charts take it."""
    verdict = None if found["verdict"] is None else Verdict.from_json(found["verdict"])
    capacities = {name: CapacityMark(**mark) for name, mark in found["capacities"].items()}
    return ChartData(**found | {"verdict": verdict, "capacities": capacities})


def drawn_capacity(figure: dict[str, Any], name: str) -> dict[str, Any]:
    (line,) = (line for line in figure["data"] if line["name"] == name and line.get("yaxis") == "y2")
    return line


def arrows(figure: dict[str, Any]) -> list[dict[str, Any]]:
    return [note for note in figure["layout"]["annotations"] if note["showarrow"]]


def test_a_left_censored_policy_is_an_open_marker_below_the_lowest_load_with_its_text() -> None:
    figure = ladder.p99(chart(data()), "light")
    line = drawn_capacity(figure, "Flat-LB")
    assert line["marker"]["symbol"] == ["square-open"]
    assert line["x"][0] < LOADS[0]
    assert line["text"] == ["\u00a0Flat-LB &lt; 30\u00a0"]  # Plotly reads its text as HTML
    low, high = figure["layout"]["xaxis"]["range"]
    assert low < line["x"][0] < high


def test_a_right_censored_policy_is_an_arrow_beyond_the_highest_load() -> None:
    figure = ladder.p99(chart(data()), "dark")
    line = drawn_capacity(figure, "CacheRoute")
    assert (line["x"], line["marker"]["symbol"], line["text"]) == (
        [90.0],
        ["circle"],
        ["\u00a0CacheRoute ≥ 90\u00a0"],
    )
    (arrow,) = arrows(figure)
    assert arrow["ax"] == 90.0 < arrow["x"] < figure["layout"]["xaxis"]["range"][1]
    assert arrow["y"] == arrow["ay"] == line["y"][0]


def test_a_known_capacity_is_a_filled_marker_without_an_arrow() -> None:
    found = data()
    found["capacities"]["cacheroute"] = capacity("60 ± 5", 30.0, 90.0)
    figure = ladder.p99(chart(found), "light")
    line = drawn_capacity(figure, "CacheRoute")
    assert (line["x"], line["marker"]["size"], line["error_x"]["array"]) == ([60.0, 65.0], [12.0, 0.0], [5.0, 0.0])
    assert line["marker"]["symbol"][0] == "circle"
    assert line["text"] == ["", "\u00a0CacheRoute 60 ± 5\u00a0"]
    assert not arrows(figure)


def test_seeds_that_are_censored_differently_span_both_ends() -> None:
    found = data()
    found["capacities"]["flat-lb"] = capacity("<30 to 60", 60.0, 60.0, left=True)
    line = drawn_capacity(ladder.p99(chart(found), "light"), "Flat-LB")
    assert line["marker"]["symbol"] == ["square-open", "square"]
    assert line["x"][0] < LOADS[0]
    assert line["x"][1] == 60.0
    assert [text for text in line["text"] if text] == ["\u00a0Flat-LB &lt; 30 to 60\u00a0"]


@pytest.mark.parametrize("loads", [[5.0], [2.0, 500.0], [90.0, 100.0]])
def test_capacities_outside_the_tested_loads_are_drawn_inside_the_axis_and_never_below_zero(loads: list[float]) -> None:
    found = data()
    found["verdict"]["loads_rps"] = loads
    found["verdict"]["policies"] = {p: {"loads": rows([9.0] * len(loads), loads)} for p in found["policies"]}
    figure = ladder.p99(chart(found), "light")
    axis, x = figure["layout"]["xaxis"], drawn_capacity(figure, "Flat-LB")["x"][0]
    low, high = (10**end for end in axis["range"]) if axis.get("type") == "log" else axis["range"]
    assert 0 < low < x < loads[0]
    assert loads[-1] < high


def test_a_policy_that_was_not_run_has_no_capacity_and_policies_may_have_different_loads() -> None:
    found = data(policies=["cacheroute", "flat-lb", "sticky"])
    found["verdict"]["policies"]["sticky"] = {"loads": []}
    found["verdict"]["policies"]["cacheroute"]["loads"] += rows([3.2], [105.0])
    found["verdict"]["loads_rps"] = [*LOADS, 105.0]
    found["capacities"]["sticky"] = capacity("not run", None, None)
    figure = ladder.p99(chart(found), "light")
    assert not [line for line in figure["data"] if line["name"] == "Sticky" and line.get("yaxis") == "y2"]
    lines = {line["name"]: line["x"] for line in ladder.imbalance(chart(found), "light")["data"]}
    assert (lines["CacheRoute"], lines["Flat-LB"], lines["Sticky"]) == ([*LOADS, 105.0], LOADS, [])
    titles = [bar["name"] for bar in figures.load_bars(chart(found), "light", 105.0)["data"]]
    assert titles == ["Planned, CacheRoute", "Replayed, CacheRoute"]


def test_charts_grow_with_their_legend_so_that_it_leaves_room_on_a_phone() -> None:
    few, many = data(), data(policies=[f"p{i}" for i in range(9)])
    assert ladder.height(chart(few)) == 320
    assert ladder.height(chart(many)) >= 320 + 6 * 19  # a row of the legend has 19 pixels
    assert ladder.p99_height(chart(many)) - ladder.p99_height(chart(few)) >= 7 * ladder.ROW_HEIGHT + 6 * 19


def test_figures_that_a_verdict_lacks_are_left_out_of_their_line() -> None:
    found = data()
    figure = ladder.imbalance(chart(found), "light", "busy_imbalance")
    assert [line["x"] for line in figure["data"]] == [[], []]


def chained(mine: tuple[float, float, float], flat: float) -> dict[str, Any]:
    found = data()
    names = ("available", "planned", "delivered")
    steps = {name: {"mean": value, "half": 0.01} for name, value in zip(names, mine, strict=True)}
    other = {"available": steps["available"], "planned": None, "delivered": {"mean": flat, "half": 0.01}}
    found["verdict"]["policies"] = {
        "cacheroute": {"loads": rows([1, 2, 3], **steps)},
        "flat-lb": {"loads": rows([1, 2, 3], **other)},
    }
    return found


def test_the_chain_shows_the_loss_of_each_step() -> None:
    figure = figures.chain(chart(chained((0.85, 0.6, 0.55), 0.2)), "light", 60.0)
    assert figure is not None
    (bars,) = figure["data"]
    assert bars["x"] == pytest.approx([85, 60, 55, 20])
    notes = [note["text"] for note in figure["layout"]["annotations"]]
    assert [n.split("</b>")[0] for n in notes] == [
        "<b>Available 85.0%", "<b>Planned 60.0%", "<b>CacheRoute 55.0%", "<b>Flat-LB 20.0%",
    ]  # fmt: skip
    assert "−25.0 points: keys without a warm slot" in notes[1]
    assert "−5.0 points during serving" in notes[2]
    assert "−35.0 points" in notes[3]
    assert figures.chain_height(figure) > 4 * 30


def test_hits_beyond_the_plan_are_a_gain() -> None:
    figure = figures.chain(chart(chained((0.85, 0.6, 0.7), 0.2)), "dark", 60.0)
    assert figure is not None
    assert "+10.0 points during serving" in figure["layout"]["annotations"][2]["text"]


def test_an_old_verdict_and_a_load_that_was_not_run_have_no_chain() -> None:
    assert figures.chain(chart(data()), "light", 60.0) is None
    assert figures.chain(chart(chained((0.8, 0.6, 0.5), 0.2)), "light", 61.0) is None
    assert figures.chain(chart(data(verdict=None)), "light", None) is None


def with_events() -> dict[str, Any]:
    curve = {"width_s": 2.0, "warmup_s": 3.0, "requests": [1, 1, 0, 1], "prompt_tokens": [10, 10, 0, 10],
             "cached_tokens": [8, 8, 0, 2]}  # fmt: skip
    found = data(events={"cacheroute": ["d0 down"], "flat-lb": ["d0 down"]})
    row = {
        "load_rps": 60.0,
        "curve": curve,
        "dips": [
            {
                "at_s": 5.0,
                "seen_s": 3.0,
                "censored": 0,
                "of": 1,
                "before": None,
                "depth_points": None,
                "duration_s": None,
            }
        ],
    }
    found["verdict"]["events"] = {"cacheroute": [row], "flat-lb": [row]}
    return found


def test_the_curve_has_a_gap_without_requests_and_a_line_at_each_event() -> None:
    figure = recovery.recovery(chart(with_events()), "light", 60.0)
    assert figure is not None
    assert [line["name"] for line in figure["data"]] == ["Flat-LB", "CacheRoute"]
    assert figure["data"][0]["y"] == [80.0, 80.0, None, 20.0]
    assert figure["data"][0]["x"] == [1.0, 3.0, 5.0, 7.0]
    warm_up, event = figure["layout"]["shapes"]
    assert (warm_up["x1"], event["x0"]) == (3.0, 5.0)
    assert recovery.moments(chart(with_events()), 60.0) == [(5.0, "d0 down")]


def test_without_an_event_there_is_no_curve() -> None:
    assert recovery.recovery(chart(data()), "light", 60.0) is None
    assert recovery.recovery(chart(with_events()), "light", 30.0) is None
    assert recovery.recovery(chart(data(verdict=None)), "light", None) is None
