"""The live page in a real browser: charts at both widths and in both themes, and updates without a reload."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from planner.models import Fleet
from planner.services.monitoring import monitor
from planner.services.telemetry import simulator
from tests import factories as make
from tests.factories import Cast

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
URL = "/fleets/sample/live/"
CHARTS = ("hit-rate", "p99", "errors", "imbalance", "load")


@pytest.fixture
def sample(cast: Cast) -> Fleet:
    fleet = make.make_fleet(cast, "sample", simulated_traffic=True, accept_simulated=True)
    make.make_workload(cast, fleet)
    return fleet


def charts_of(page: Page) -> None:
    for chart in CHARTS:
        expect(page.locator(f"#{chart} .main-svg").first).to_be_visible()
        expect(page.locator(f"#{chart}-simulated")).to_have_text("≈ simulated")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_charts_are_drawn_and_nothing_is_wider_than_the_window(enter, cast, sample, width, scheme) -> None:
    simulator.simulate_fleet(sample, minutes=4)
    monitor.watch_fleet(sample)
    vera = enter(cast.vera, width=width, scheme=scheme)
    vera.goto(URL)
    charts_of(vera)
    expect(vera.locator("#p99 .legendtext", has_text="incumbent")).to_be_visible()
    expect(vera.get_by_text("Flat-LB is live. No limits apply.").first).to_be_visible()
    assert vera.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_new_telemetry_is_shown_without_a_reload(enter, cast, sample) -> None:
    vera = enter(cast.vera)
    vera.goto(URL)
    expect(vera.get_by_text("No router telemetry yet")).to_be_visible()
    expect(vera.get_by_text("No charts yet: no router telemetry")).to_be_visible()
    simulator.simulate_fleet(sample, minutes=1)
    monitor.watch_fleet(sample)
    # The state is fetched every quarter of a minute; here at once.
    vera.evaluate("htmx.ajax('GET', '/fleets/sample/live/state/', {target: '#live-state', swap: 'outerHTML'})")
    expect(vera.get_by_text("No router telemetry yet")).to_have_count(0)
    expect(vera.get_by_role("row", name="simulator")).to_be_visible()
