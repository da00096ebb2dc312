"""The load bars: loads relative to speeds, and titles that do not cover bars."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards import figures
from planner.analysis.verdict import Verdict
from planner.selectors.plans.page import ChartData


def data(capacity: list[float], planned: list[float], replayed: list[float] | None = None) -> ChartData:
    """Chart data of a plan, with one replayed policy at one load or none."""
    rows = {
        "load_rps": 8.0, "requests_per_destination": replayed, "imbalance": {"mean": 1.25, "half": 0.1},
        "p99_s": {"mean": 1.0},
    }  # fmt: skip
    policies = {"cacheroute": {"loads": [rows]}}
    verdict = {"slo_p99_s": 3.5, "loads_rps": [8.0], "seeds": [1], "policies": policies}
    return ChartData(
        destinations=[f"d{i}" for i in range(len(capacity))],
        capacity=capacity,
        planned=planned,
        planned_imbalance=1.0,
        verdict=Verdict.from_json(verdict) if replayed else None,
        policies=["cacheroute"] if replayed else [],
        first_shown=None,
        capacities={},
        events={},
        simulated=[],
    )


def test_a_fast_destination_with_its_share_of_load_is_at_the_mean() -> None:
    drawn = figures.load_bars(data([1.0, 2.0, 1.0], [5.0, 10.0, 5.0], [40, 120, 80]), "light", 8.0)
    planned, replayed = drawn["data"]
    assert planned["y"] == pytest.approx([1, 1, 1])
    assert replayed["y"] == pytest.approx([40 / 60, 1, 80 / 60])
    assert replayed["customdata"] == [40, 120, 80]
    assert "max/mean 1.333" in drawn["layout"]["annotations"][1]["text"]
    assert drawn["layout"]["yaxis"]["range"][1] > 80 / 60


def test_equal_destinations_keep_the_stored_figure_which_is_the_mean_over_seeds() -> None:
    drawn = figures.load_bars(data([2.0, 2.0], [3.0, 1.0], [30, 10]), "dark", 8.0)
    assert [bar["y"] for bar in drawn["data"]] == [pytest.approx([1.5, 0.5])] * 2
    assert "max/mean 1.250" in drawn["layout"]["annotations"][1]["text"]


def test_nothing_to_serve_is_drawn_as_nothing() -> None:
    assert figures.load_bars(data([1.0, 2.0], [0.0, 0.0]), "light", None)["data"][0]["y"] == [0.0, 0.0]


@pytest.mark.parametrize("panels", [1, 2, 7])
def test_every_title_has_room_above_its_bars_and_below_the_panel_before(panels: int) -> None:
    found = data([1.0, 1.0], [1.0, 1.0], [5, 5] if panels > 1 else None)
    found = replace(found, policies=["cacheroute"] * (panels - 1))
    layout = figures.load_bars(found, "light", 8.0)["layout"]
    plot = panels * figures.PANEL_HEIGHT + figures.AXIS_HEIGHT - layout["margin"]["t"] - layout["margin"]["b"]
    domains = [layout[f"yaxis{at or ''}"]["domain"] for at in [0, *range(2, panels + 1)]]
    above = 1.0
    for (low, high), title in zip(domains, layout["annotations"], strict=True):
        assert (title["y"], title["yanchor"]) == (high, "bottom")
        assert (above - high) * plot >= 18  # a line of 12 px
        assert (high - low) * plot > 70
        above = low
    assert above >= 0
