"""The page that explains a plan, by keyboard, on a phone and in both colour schemes."""

from __future__ import annotations

import os

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from planner.models import Fleet, Job, Plan
from planner.tasks import run_job
from tests import factories as make
from tests.factories import Cast

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
SHOTS = os.environ.get("CACHEROUTE_SHOTS")  # a folder, to look at the pages


@pytest.fixture
def plan(cast: Cast, fleet: Fleet) -> Plan:
    return make.built_plan(cast, fleet, slots_per_destination=30)


def address(plan: Plan) -> str:
    return reverse("plan-explain", args=[plan.fleet.slug, plan.number])


def test_a_key_is_asked_for_and_the_study_is_run_by_keyboard_alone(enter, cast: Cast, plan: Plan) -> None:
    page = enter(cast.ada)
    page.goto(address(plan))
    page.get_by_label("Key", exact=True).focus()
    page.keyboard.type("k000399")
    page.keyboard.press("Enter")
    expect(page.locator(".headline")).to_contain_text("k000399 has rank 400 of 400 by rate")
    page.get_by_role("button", name="Run study").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#study-progress")).to_contain_text("0 of 6 steps")
    run_job(Job.objects.get(kind="study").pk)
    expect(page.get_by_role("table", name="Admitted share of requests")).to_be_visible()
    page.get_by_label("Figure").select_option("Slots used")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("td.base")).to_contain_text(str(plan.summary["slots_used"]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_a_phone_and_a_wide_screen(enter, cast: Cast, plan: Plan, scheme: str, width: int) -> None:
    page = enter(cast.ada, width=width, scheme=scheme)
    page.goto(address(plan))
    page.get_by_role("button", name="Run study").click()
    expect(page.locator("#study-progress")).to_be_visible()
    run_job(Job.objects.get(kind="study").pk)
    for query in ("key=k000000", "key=k000399&metric=churn_rate&head=4", "destination=d1&metric=imbalance&head=3"):
        page.goto(f"{address(plan)}?{query}")
        expect(page.locator("td.base")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, query
        if SHOTS:
            page.screenshot(path=f"{SHOTS}/{scheme}-{width}-{query.split('&')[0]}.png", full_page=True)
