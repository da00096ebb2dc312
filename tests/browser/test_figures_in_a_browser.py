"""Figures of pages without Dash in a real browser: drawn at both widths and in both colours, and redrawn by theme."""

from __future__ import annotations

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from planner.models import Calibration, Fleet, Workload
from tests import factories as make
from tests.factories import Cast

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
POINTS = [{"load_rps": float(n), "p50_s": 0.2 * n, "p95_s": 0.3 * n, "p99_s": 0.2 * n**2 + 0.3} for n in range(1, 9)]


@pytest.fixture
def addresses(cast: Cast, fleet: Fleet) -> list[str]:
    workload: Workload = make.make_workload(cast, fleet)
    measured: Calibration = make.make_calibration(cast, fleet, points=POINTS, q_cap=8.0, q_cap_censored="right")
    return [
        reverse("workload", args=[fleet.slug, workload.pk]),
        reverse("calibration", args=[fleet.slug, measured.pk]),
    ]


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_figures_are_drawn_within_the_window_and_follow_the_theme(enter, cast, addresses, width, scheme) -> None:
    vera = enter(cast.vera, width=width, scheme=scheme)
    for address in addresses:
        vera.goto(address)
        figure = vera.locator(".plot-box")
        expect(figure.locator(".main-svg").first).to_be_visible()
        expect(figure.locator(".in-words")).to_have_count(0)
        assert vera.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        line = figure.locator("path.js-line").last
        before = line.get_attribute("style")
        vera.get_by_role("button", name="Switch to").click()
        expect(line).not_to_have_attribute("style", before)
        vera.get_by_role("button", name="Switch to").click()
        expect(line).to_have_attribute("style", before)


def test_the_load_of_the_plan_charts_is_chosen_from_a_list(enter, cast, fleet) -> None:
    plan = make.replayed_plan(cast, fleet)
    vera = enter(cast.vera, width=390, scheme="dark")
    vera.goto(reverse("plan", args=[fleet.slug, plan.number]))
    box = vera.locator("#load")
    expect(box).to_contain_text("requests/s")
    shown = box.inner_text()
    ink, ground = (box.evaluate(f"e => getComputedStyle(e).{name}") for name in ("color", "backgroundColor"))
    assert ink != ground
    assert ground != "rgb(255, 255, 255)"
    box.click()
    options = vera.get_by_role("option")
    other = next(option for option in options.all() if option.inner_text().strip() not in shown)
    text = other.inner_text().strip()
    other.click()
    expect(box).to_contain_text(text)
    expect(vera.locator("#load-bars .main-svg").first).to_be_visible()
    assert vera.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
