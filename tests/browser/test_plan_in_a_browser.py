"""The way of a plan from its figures to traffic and back, by hand, in a real browser."""

from __future__ import annotations

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from planner.models import AuditEvent, Fleet, Plan
from tests import factories as make
from tests.factories import Cast

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
WIDTHS = (390, 1440)


@pytest.fixture
def replayed(cast: Cast, fleet: Fleet) -> Plan:
    return make.replayed_plan(cast, fleet)


def address(plan: Plan) -> str:
    return reverse("plan", args=[plan.fleet.slug, plan.number])


def charts_of(page: Page) -> None:
    """Wait until every chart is drawn."""
    for chart in ("hit-rate", "p99", "load-bars"):
        expect(page.locator(f"#{chart} .main-svg").first).to_be_visible()
    expect(page.locator("#p99 .legendtext", has_text="CacheRoute")).to_be_visible()


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def test_a_plan_is_submitted_approved_brought_to_traffic_and_taken_back(enter, cast: Cast, replayed: Plan) -> None:
    ada = enter(cast.ada)
    ada.goto(address(replayed))
    expect(ada.get_by_text("All six checks pass.")).to_be_visible()
    charts_of(ada)
    ada.get_by_role("button", name="Submit for review").click()
    expect(ada.get_by_role("status")).to_contain_text("in review")
    expect(ada.get_by_text("A second person must approve it")).to_be_visible()
    expect(ada.get_by_role("button", name="Approve")).to_have_count(0)

    grace = enter(cast.grace)
    grace.get_by_role("row", name="Plan 1").get_by_role("link", name="Plan 1").click()
    expect(grace.get_by_text(make.evaluation_of(replayed).evidence_digest, exact=True)).to_be_visible()
    grace.get_by_role("textbox", name="Comment (optional)").fill("the figures hold")
    grace.get_by_role("button", name="Approve").click()
    expect(grace.get_by_role("status")).to_contain_text("is approved")

    linus = enter(cast.linus)
    linus.goto(address(replayed))
    linus.get_by_role("button", name="Start canary with 10% of keys").click()
    expect(linus.locator(".message-success")).to_contain_text("in canary with 10% of keys")
    expect(linus.get_by_text("is not analysed yet")).to_be_visible()
    make.pass_step(replayed.rollouts.get())
    linus.reload()
    linus.get_by_role("button", name="Advance to active").click()
    expect(linus.locator(".message-success")).to_contain_text("is active")
    linus.get_by_role("button", name="Fall back to Flat-LB").click()
    expect(linus.locator(".message-success")).to_contain_text("Fell back")
    expect(linus.locator(".live")).to_contain_text("Flat-LB")

    trail = list(AuditEvent.objects.order_by("id").values_list("action", "actor_name"))
    assert trail[-5:] == [
        ("plan.submitted", "ada"),
        ("plan.approved", "grace"),
        ("rollout.started", "linus"),
        ("rollout.activated", "linus"),
        ("fleet.fell_back", "linus"),
    ]
    assert all(AuditEvent.objects.order_by("-id").values_list("ip_address", flat=True)[:5])


def test_charts_follow_the_switch_between_light_and_dark_and_the_choice_is_kept(
    enter, cast: Cast, replayed: Plan
) -> None:
    page = enter(cast.vera, scheme="dark")
    page.goto(address(replayed))
    charts_of(page)
    ink = page.locator("#p99 .legendtext").first
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    expect(ink).to_have_css("fill", "rgb(228, 232, 238)")
    page.get_by_role("button", name="Switch to light colours").click()
    expect(ink).to_have_css("fill", "rgb(31, 39, 51)")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "light")


def test_both_hit_rates_stand_side_by_side_and_the_load_of_the_charts_can_be_chosen(
    enter, cast: Cast, replayed: Plan
) -> None:
    page = enter(cast.vera)
    page.goto(address(replayed))
    charts_of(page)
    tokens, requests = (page.locator(f"#{chart}-card").bounding_box() for chart in ("hit-rate", "request-hit-rate"))
    assert tokens is not None
    assert requests is not None
    assert (tokens["y"], tokens["x"] < requests["x"]) == (requests["y"], True)
    page.get_by_role("group", name="Load").get_by_role("button").click()
    page.get_by_role("option", name="24 requests/s").click()
    row = next(r for r in replayed.replays.get().verdict["policies"]["sticky"]["loads"] if r["load_rps"] == 24)
    title = page.locator("#load-bars .annotation-text", has_text="Replayed, Sticky")
    expect(title).to_contain_text(f"max/mean {row['imbalance']['mean']:.3f}")


def test_a_ladder_whose_lowest_load_fails_is_drawn_as_left_censored(enter, cast: Cast, fleet: Fleet) -> None:
    plan = make.built_plan(cast, fleet)
    make.run_replay(cast, plan, loads_rps=[200.0, 400.0, 800.0])
    page = enter(cast.vera)
    page.goto(address(plan))
    charts_of(page)
    expect(page.locator("#p99 .textpoint", has_text="Flat-LB < 200")).to_be_visible()
    expect(page.locator("#p99 .textpoint", has_text="CacheRoute < 200")).to_be_visible()
    expect(page.get_by_text("the SLO is missed at 200 requests/s")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways_on_a_phone_or_a_wide_screen(enter, cast: Cast, replayed: Plan, scheme: str) -> None:
    fleet = replayed.fleet
    pages = ["/", "/audit/", "/tokens/", "/fleets/new/", address(replayed), reverse("plan", args=[fleet.slug, 0])]
    pages += [reverse(name, args=[fleet.slug]) for name in ("fleet", "workload-new", "calibration-new", "plan-new")]
    pages.append(reverse("workload", args=[fleet.slug, replayed.workload_id]))
    for width in WIDTHS:
        page = enter(cast.root, width=width, scheme=scheme)
        for at in pages:
            page.goto(at)
            if at == address(replayed):
                charts_of(page)
            assert overflow(page) <= 0, (at, width)


def test_the_import_form_works_by_keyboard_and_names_row_and_field(
    enter, watch, cast: Cast, fleet: Fleet, tmp_path
) -> None:
    watch.refusal = "400"
    broken = tmp_path / "rates.csv"
    broken.write_text("key,rate\na,1\nb,-2\n")
    page = enter(cast.ada)
    page.goto(reverse("workload-new", args=[fleet.slug]))
    page.get_by_label("File").set_input_files(broken)
    page.get_by_role("button", name="Import").focus()
    page.keyboard.press("Enter")
    problem = page.get_by_role("alert").filter(has_text="Nothing was imported")
    expect(problem).to_contain_text("rates.csv")
    expect(problem).to_contain_text("rate")
    expect(problem.locator("dd").nth(1)).to_have_text("3")


def test_the_first_stop_of_the_tab_key_skips_the_navigation(enter, cast: Cast) -> None:
    page = enter(cast.vera)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
