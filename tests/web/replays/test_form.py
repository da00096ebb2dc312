"""The form that orders a replay on a plan's page, and the progress that the page shows."""

import pytest
from django.utils import timezone

from planner.models import Job, Replay, ReplayCell
from planner.services.replays import cells
from tests import factories as make

pytestmark = pytest.mark.django_db
LADDER = {"loads_rps": "4, 8", "seeds": "1", "arrivals": "poisson", "requests": "500"}


@pytest.fixture
def plan(cast, fleet):
    return make.built_plan(cast, fleet)


@pytest.fixture
def ada(cast, sign_in):
    return sign_in(cast.ada)


@pytest.fixture
def page(plan):
    return f"/fleets/{plan.fleet.slug}/plans/{plan.number}/"


def test_every_field_of_the_form_reaches_the_replay(ada, cast, fleet, plan, page):
    older = make.built_plan(cast, fleet)
    more = {
        "policies": ["sticky"], "policy_parameters": "sticky.vnodes = 20\n\n", "warmup": "0.1", "refine": "2",
        "extend": "on", "also": [str(older.number)], "switch_from": str(older.number), "switch_at": "0.5",
        "faults": "down d1 0.4 0.6\nslow d2 0.1 x3",
    }  # fmt: skip
    answer = ada.post(page + "replays/", {**LADDER, **more})
    assert answer.status_code == 302, answer.content.decode()
    row = Replay.objects.get()
    assert row.policies == ["flat-lb", "cacheroute", "sticky", f"cacheroute@{older.number}"]
    stored = row.parameters
    assert stored["policy_parameters"] == {"sticky": {"vnodes": 20}}
    assert (stored["warmup"], stored["refine"], stored["extend"]) == (0.1, 2, True)
    assert [(f["kind"], f["destination"], f["start"], f["end"], f.get("factor")) for f in stored["faults"]] == [
        ("down", "d1", 0.4, 0.6, None), ("slow", "d2", 0.1, None, 3.0)
    ]  # fmt: skip
    assert (stored["switch"]["plan"], stored["switch"]["at"]) == (older.number, 0.5)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("faults", "down d1", "Line 1: write a kind"),
        ("faults", "down d1 soon", "&#x27;soon&#x27; is not a number"),
        ("faults", "down d9 0.5", "is not a destination of this plan"),
        ("policy_parameters", "sticky.vnodes", "Line 1: write a policy"),
        ("policy_parameters", "sticky.vnodes = 1\nsticky.vnodes = 2", "vnodes"),
        ("policy_parameters", "sticky.points = 1", "has no parameter"),
        ("run_length", "7", "only bootstrap arrivals"),
        ("extend", "on", "say how many with refine"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field_and_the_field_is_visible(ada, page, field, value, says):
    answer = ada.post(page + "replays/", {**LADDER, field: value})
    assert answer.status_code == 400
    text = answer.content.decode()
    assert says.lower() in text.lower()
    assert '<details class="advanced" open>' in text
    assert not Replay.objects.exists()


def test_a_switch_needs_both_the_plan_and_the_time(ada, cast, fleet, plan, page):
    older = make.built_plan(cast, fleet)
    answer = ada.post(page + "replays/", {**LADDER, "switch_from": str(older.number)})
    assert answer.status_code == 400
    assert "A switch needs the plan before the switch and its time" in answer.content.decode()


def test_the_only_plan_of_a_fleet_has_no_choice_of_other_plans(ada, page):
    text = ada.get(page).content.decode()
    assert 'name="faults"' in text
    assert 'name="switch_from"' not in text


def test_the_page_shows_the_progress_and_the_remaining_time_of_a_replay(ada, cast, plan, page):
    ada.post(page + "replays/", LADDER)
    row = Replay.objects.get()
    address = page + "progress/"
    waiting = ada.get(address).content.decode()
    assert "0 of 6 cells" in waiting
    assert "elapsed" not in waiting
    Job.objects.filter(subject_id=row.pk, kind="replay").update(state="running", started_at=timezone.now())
    assert "remaining time unknown" in ada.get(address).content.decode()
    cells.run_cell(row.cells.first().pk)
    begun = timezone.now() - timezone.timedelta(seconds=30)
    Job.objects.filter(subject_id=row.pk, kind="replay").update(started_at=begun)
    ReplayCell.objects.filter(replay=row, state="succeeded").update(started_at=begun)
    shown = ada.get(address).content.decode()
    assert "1 of 6 cells" in shown
    assert "30 s elapsed, about 2.5 min remaining" in shown
