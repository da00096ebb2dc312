"""The pages of rollouts: state, actions, roll back and freezes, without JavaScript."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from planner.models import Fleet, Freeze, Rollout
from planner.services.rollouts import freezes
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.starts import fire_schedules, start_rollout
from planner.services.rollouts.steps import abort_rollout, pause_rollout
from tests import factories as make
from tests.factories import Cast
from tests.web.conftest import texts

pytestmark = pytest.mark.django_db


@pytest.fixture
def stepped(cast: Cast) -> Fleet:
    return make.make_fleet(cast, "stepped", canary_weights=[0.005, 0.5], canary_holds_s=[300.0])


@pytest.fixture
def canary(cast: Cast, stepped: Fleet) -> Rollout:
    return make.canary(cast, stepped)


def page_of(client: Client, rollout: Rollout) -> str:
    response = client.get(reverse("rollout", args=[rollout.fleet.slug, rollout.pk]))
    assert response.status_code == 200
    return response.content.decode()


def send(client: Client, action: str, rollout: Rollout, **data: object):
    rollout.refresh_from_db()
    values = {"expected_version": rollout.version, **data}
    return client.post(reverse(f"rollout-{action}", args=[rollout.fleet.slug, rollout.pk]), values, follow=True)


def test_the_page_of_a_canary_shows_its_step_and_its_holds(sign_in, cast: Cast, canary: Rollout) -> None:
    make.pass_step(canary, "inconclusive", "412 of 1,000 requests so far")
    page = page_of(sign_in(cast.linus), canary)
    for words in (
        "0.5%",
        "watched for 5 min",
        "412 of 1,000 requests so far",
        "Advance to 50% of keys",
        "Blast radius",
    ):
        assert words in page, words
    assert "Advance" not in page_of(sign_in(cast.vera), canary)


def test_an_analysis_shows_its_checks_and_both_arms(sign_in, cast: Cast, canary: Rollout) -> None:
    arm = {"requests": 1_200, "p99_s": {"value": 1.5, "low": 1.25, "high": 1.75}, "error_rate": {"value": 0.0025}}
    canary.analyses.create(
        step=1, verdict="pass", explanation="All of it.", simulated=True,
        numbers={
            "checks": [{"name": "p99", "text": "p99 is within 3.5 s.", "verdict": "pass"}],
            "canary": {**arm, "hit_rate": 0.825}, "incumbent": {**arm, "hit_rate": 0.25},
        },
    )  # fmt: skip
    page = page_of(sign_in(cast.vera), canary)
    for words in ("p99 is within 3.5 s.", "1.5 (1.25 to 1.75)", "0.25%", "82.5%", "simulated", "All numbers"):
        assert words in page, words


def test_every_state_has_its_page(sign_in, cast: Cast, fleet: Fleet) -> None:
    client, later = sign_in(cast.linus), timezone.now() + dt.timedelta(hours=1)
    rollout = start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet), scheduled_for=later)
    assert "Change start time" in page_of(client, rollout)
    fire_schedules(later)
    rollout.refresh_from_db()
    assert "No analyses yet. A step is judged when" in page_of(client, rollout)
    make.activate(cast, rollout)
    assert "Roll back to an earlier plan" in page_of(client, rollout)
    fall_back(acting_user=cast.linus, fleet=fleet, reason="drill")
    assert "fell back to Flat-LB: drill" in page_of(client, rollout)
    assert "only canaries are judged" in page_of(client, fleet.rollouts.get(state="active"))


def test_all_actions_on_a_canary_by_forms(sign_in, cast: Cast, canary: Rollout) -> None:
    client = sign_in(cast.linus)
    assert texts(send(client, "advance", canary))[0].startswith("Plan 1 is held: ")
    assert "paused" in texts(send(client, "pause", canary, reason="lunch"))[0]
    assert "is resumed" in texts(send(client, "resume", canary))[0]
    make.pass_step(make.watched(canary, 301))
    assert texts(send(client, "advance", canary)) == ["Plan 1 is in canary with 50% of keys."]
    make.pass_step(canary)
    assert texts(send(client, "promote", canary, reason=""))[0].startswith("Reason: ")
    page = send(client, "promote", canary, reason="the fix cannot wait")
    assert texts(page) == ["Plan 1 is active: it routes all keys of Stepped."]
    assert "roll back to an earlier plan, or fall back" in texts(send(client, "abort", canary))[0]


def test_a_stale_form_of_a_rollout_changes_nothing(sign_in, cast: Cast, canary) -> None:
    client, version = sign_in(cast.linus), canary.version
    pause_rollout(acting_user=cast.grace, rollout=canary)
    page = send(client, "abort", canary, expected_version=version)
    assert "another user changed this" in texts(page)[0]
    canary.refresh_from_db()
    assert canary.state == "canary"


def test_a_start_is_scheduled_moved_and_cancelled_by_forms(sign_in, cast: Cast, fleet: Fleet) -> None:
    client, plan = sign_in(cast.linus), make.approved_plan(cast, fleet)
    start = reverse("canary-start", args=[fleet.slug, plan.number])
    plan_page = client.get(reverse("plan", args=[fleet.slug, plan.number])).content.decode()
    assert "Scheduled start" in plan_page
    assert "Blast radius" in plan_page
    assert "Scheduled for: " in texts(client.post(start, {"scheduled_for": "soon"}, follow=True))[0]
    assert "in the past" in texts(client.post(start, {"scheduled_for": "2001-01-01T00:00"}, follow=True))[0]
    at = (timezone.now() + dt.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    page = client.post(start, {"scheduled_for": at}, follow=True)
    assert at.replace("T", " ") in texts(page)[0]
    rollout = plan.rollouts.get()
    assert f'value="{at}"' in page.content.decode()  # ready to be moved
    assert "write a time" in texts(send(client, "reschedule", rollout, scheduled_for=""))[0]
    later = (timezone.now() + dt.timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    assert later.replace("T", " ") in texts(send(client, "reschedule", rollout, scheduled_for=later))[0]
    assert texts(send(client, "abort", rollout)) == ["The scheduled canary of Plan 1 is cancelled."]


def test_rolling_back_by_the_form(sign_in, cast: Cast, fleet: Fleet) -> None:
    client, address = sign_in(cast.linus), reverse("rollouts", args=[fleet.slug])
    assert "No earlier plan was active" in client.get(address).content.decode()
    first, second = make.active_plan(cast, fleet), make.active_plan(cast, fleet)
    page = client.get(address)
    assert [plan.pk for plan in page.context["retained"]] == [first.pk]
    back = reverse("roll-back", args=[fleet.slug])
    assert texts(client.post(back, {"plan": "x", "reason": "p99 up"}, follow=True)) == [
        "Plan: choose a plan of the list"
    ]
    assert texts(client.post(back, {"plan": first.number}, follow=True))[0].startswith("Reason: ")
    page = client.post(back, {"plan": first.number, "reason": "p99 up"}, follow=True)
    assert texts(page)[0].startswith("Rolled back: Plan 1 routes all keys of Alpha")
    assert [plan.pk for plan in page.context["retained"]] == [second.pk]
    assert "rolled back to an earlier plan" in client.get(
        reverse("plan", args=[fleet.slug, second.number])
    ).content.decode()  # fmt: skip


def test_freezes_are_set_seen_everywhere_and_lifted_by_forms(sign_in, cast: Cast, fleet: Fleet) -> None:
    linus, root = sign_in(cast.linus), sign_in(cast.root)
    freeze = reverse("freeze", args=[fleet.slug])
    assert texts(linus.post(freeze, {"scope": "fleet"}, follow=True))[0].startswith("Reason: ")
    assert linus.post(freeze, {"scope": "all", "reason": "holidays"}).status_code == 403
    page = linus.post(freeze, {"scope": "fleet", "reason": "holidays"}, follow=True).content.decode()
    assert "Freeze all fleets" not in page
    assert "Frozen by linus since" in sign_in(cast.vera).get(reverse("fleet", args=[fleet.slug])).content.decode()
    root.post(freeze, {"scope": "all", "reason": "audit week"})
    every = Freeze.objects.get(fleet=None)
    assert linus.post(reverse("freeze-lift", args=[fleet.slug, every.pk])).status_code == 403
    for row in Freeze.objects.all():
        root.post(reverse("freeze-lift", args=[fleet.slug, row.pk]))
    assert not Freeze.objects.filter(lifted_at=None).exists()
    other = freezes.freeze(acting_user=cast.root, fleet=make.make_fleet(cast, "beta"), reason="x")
    assert root.post(reverse("freeze-lift", args=[fleet.slug, other.pk])).status_code == 404


def test_the_fleet_bar_shows_canary_pause_schedule_and_cool_down(sign_in, cast: Cast, fleet: Fleet) -> None:
    def bar() -> str:
        body = sign_in(cast.linus).get(reverse("fleet", args=[fleet.slug])).content.decode()
        return body[body.index('class="fleet-bar"') : body.index('<main id="main"')]

    assert "Fall back to Flat-LB" in bar()
    rollout = make.canary(cast, fleet)
    assert "90% of keys" in bar()
    assert "10% of keys" in bar()
    pause_rollout(acting_user=cast.linus, rollout=rollout, reason="lunch")
    assert "is paused by linus since" in bar()
    fall_back(acting_user=cast.linus, fleet=fleet)
    assert "No canary starts before" not in bar()  # a person fell back
    later = timezone.now() + dt.timedelta(hours=1)
    scheduled = start_rollout(acting_user=cast.linus, plan=rollout.plan, scheduled_for=later)
    assert f"{later:%Y-%m-%d %H:%M}" in bar()
    abort_rollout(acting_user=cast.linus, rollout=scheduled)
    make.activate(cast, make.canary(cast, fleet, rollout.plan))
    fall_back(acting_user=None, fleet=fleet, reason="left the envelope")
    assert "No canary starts before" in bar()
