"""Destinations that come, and how fast each is: who may say so, what is refused, and what becomes stale."""

import math

import pytest

from planner.checklist import FAIL, PASS
from planner.errors import Conflict, Invalid, NotAllowed, StaleVersion
from planner.models import AuditEvent, Destination, Plan
from planner.selectors.fleets.routing_tables import routing_table
from planner.services.fleets import destinations, fleets
from planner.services.fleets.destinations import add_destinations, change_destination
from planner.services.gate.evidence import collect_evidence
from planner.services.replays.options import check_options
from planner.services.reviews.submissions import submit_plan
from planner.services.rollouts.starts import start_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db

BAD_WEIGHTS = [0, 0.0, -1, 0.0099, 100.1, 1e9, 10**400, math.nan, math.inf, "fast", "2", True, [2]]
NEW = ("d4", "http://127.0.0.1:9104")
# Control characters, characters that reverse the direction of text or have no width, and invisible blanks.
BAD_NAMES = ["d\n4", "d\t4", "\u202e4d", "d4\u200b", "d\u00a04", " d4", "d4 ", "d  4", " "]
BAD_URLS = [
    "http://ada:secret@d5", "http://ada@d5", "http://@d5", "http://d5:0", "http://d5:65536", "http://d 5", "//d5",
    "http://d5/\u202e", "http://",
]  # fmt: skip


def weigh(cast, fleet, index, weight):
    return change_destination(acting_user=cast.root, destination=fleet.destinations.get(index=index), weight=weight)


# --- a speed -----------------------------------------------------------------------------------------------
def test_a_weight_is_audited_and_publishes_no_table(cast, fleet):
    before = routing_table(fleet)
    changed = weigh(cast, fleet, 1, 2)
    assert (changed.weight, changed.version) == (2.0, 2)
    event = AuditEvent.objects.get(action="fleet.destination_changed")
    assert (event.actor_name, event.subject_label) == ("root", "d1")
    assert (event.before, event.after) == ({"weight": 1.0}, {"weight": 2.0})
    fleet.refresh_from_db()
    assert routing_table(fleet) == before


def test_a_state_and_a_weight_change_together_as_one_event(cast, fleet):
    row = fleet.destinations.get(index=1)
    change_destination(acting_user=cast.root, destination=row, state="draining", weight=0.5)
    event = AuditEvent.objects.get(action="fleet.destination_changed")
    assert event.before == {"state": "up", "weight": 1.0}
    assert event.after == {"state": "draining", "weight": 0.5}
    fleet.refresh_from_db()
    assert fleet.table_version == 2


def test_what_is_so_already_changes_nothing(cast, fleet):
    row = fleet.destinations.get(index=1)
    same = change_destination(acting_user=cast.root, destination=row, state="up", weight=1)
    assert same.version == 1
    assert not AuditEvent.objects.filter(action="fleet.destination_changed").exists()


@pytest.mark.parametrize("weight", BAD_WEIGHTS, ids=lambda weight: repr(weight)[:12])
def test_what_is_no_speed_is_refused(cast, fleet, weight):
    with pytest.raises(Invalid) as refusal:
        weigh(cast, fleet, 1, weight)
    assert refusal.value.field == "weight"
    with pytest.raises(Invalid) as refusal:
        add_destinations(acting_user=cast.root, fleet=fleet, destinations=[(*NEW, weight)])
    assert refusal.value.field == "destinations/0/weight"
    assert set(fleet.destinations.values_list("weight", flat=True)) == {1.0}


@pytest.mark.parametrize("weight", [0.01, 100])
def test_the_slowest_and_the_fastest_speed_are_taken(cast, fleet, weight):
    assert weigh(cast, fleet, 1, weight).weight == weight


def test_a_change_of_nothing_is_refused(cast, fleet):
    with pytest.raises(Invalid):
        change_destination(acting_user=cast.root, destination=fleet.destinations.get(index=0))


def test_operators_set_states_and_managers_speeds(cast, fleet):
    row = fleet.destinations.get(index=0)
    for who in (cast.vera, cast.ada, cast.grace, cast.linus):
        with pytest.raises(NotAllowed):
            change_destination(acting_user=who, destination=row, weight=2)
        with pytest.raises(NotAllowed):  # not the state alone either
            change_destination(acting_user=who, destination=row, state="down", weight=2)
    with pytest.raises(NotAllowed):
        change_destination(acting_user=cast.vera, destination=row, state="down")
    row.refresh_from_db()
    assert (row.state, row.weight) == ("up", 1.0)
    assert change_destination(acting_user=cast.linus, destination=row, state="down").state == "down"


def test_a_stale_version_is_refused(cast, fleet):
    row = fleet.destinations.get(index=0)
    weigh(cast, fleet, 0, 2)
    with pytest.raises(StaleVersion):
        change_destination(acting_user=cast.root, destination=row, weight=3, expected_version=1)
    assert fleet.destinations.get(index=0).weight == 2


# --- new ones ----------------------------------------------------------------------------------------------
def test_destinations_are_added_after_the_last_index_and_published(cast, fleet):
    rows = [NEW, ("d5", "http://127.0.0.1:9105", 2.5)]
    added = add_destinations(acting_user=cast.root, fleet=fleet, destinations=rows, expected_version=1)
    assert [(d.index, d.name, d.weight, d.state) for d in added] == [(4, "d4", 1.0, "up"), (5, "d5", 2.5, "up")]
    fleet.refresh_from_db()
    assert (fleet.table_version, fleet.version) == (2, 2)
    assert routing_table(fleet)["destinations"][5] == {
        "index": 5, "name": "d5", "url": "http://127.0.0.1:9105", "state": "up",
    }  # fmt: skip
    event = AuditEvent.objects.get(action="fleet.destinations_added")
    assert event.after == {
        "destinations": [
            {"index": 4, "name": "d4", "url": "http://127.0.0.1:9104", "weight": 1.0},
            {"index": 5, "name": "d5", "url": "http://127.0.0.1:9105", "weight": 2.5},
        ],
        "table_version": 2,
    }


def test_an_index_is_never_given_again(cast, fleet):
    fleet.destinations.create(index=9, name="d9", url="http://127.0.0.1:9109")
    (added,) = add_destinations(acting_user=cast.root, fleet=fleet, destinations=[NEW])
    assert added.index == 10


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ([], "destinations"),
        ([NEW, NEW], "destinations/1/name"),
        ([("", NEW[1])], "destinations/0/name"),
        ([("x" * 121, NEW[1])], "destinations/0/name"),
        ([NEW, ("d5", "ftp://d5")], "destinations/1/url"),
        ([("d4", "http://" + "x" * 500)], "destinations/0/url"),
        *[([(name, NEW[1])], "destinations/0/name") for name in BAD_NAMES],
        *[([NEW, ("d5", url)], "destinations/1/url") for url in BAD_URLS],
    ],
)
def test_a_row_that_cannot_be_used_is_named(cast, fleet, rows, field):
    with pytest.raises(Invalid) as refusal:
        add_destinations(acting_user=cast.root, fleet=fleet, destinations=rows)
    assert refusal.value.field == field
    assert fleet.destinations.count() == make.DESTINATIONS
    with pytest.raises(Invalid) as refusal:
        fleets.create_fleet(
            acting_user=cast.root, slug="new-one", name="New", destinations=rows, engine_profile="llama-3.1-8b-h100"
        )
    assert refusal.value.field == field


def test_a_password_in_a_url_is_not_repeated(cast, fleet):
    with pytest.raises(Invalid, match="without user and password") as refusal:
        add_destinations(acting_user=cast.root, fleet=fleet, destinations=[("d4", "http://ada:secret@d4")])
    assert "secret" not in refusal.value.message


def test_one_blank_inside_a_name_and_any_script_are_fine(cast, fleet):
    rows = [("rack 4", NEW[1]), ("Köln-端", "https://koeln:443/v1?x=a@b")]
    assert [d.name for d in add_destinations(acting_user=cast.root, fleet=fleet, destinations=rows)] == [
        "rack 4", "Köln-端",
    ]  # fmt: skip


def test_a_name_that_the_fleet_has_is_taken(cast, fleet):
    with pytest.raises(Conflict) as refusal:
        add_destinations(acting_user=cast.root, fleet=fleet, destinations=[NEW, ("d2", NEW[1])])
    assert (refusal.value.code, refusal.value.field) == ("exists", "destinations/1/name")
    assert fleet.destinations.count() == make.DESTINATIONS


def test_a_fleet_takes_only_so_many_destinations_in_all(cast, fleet, monkeypatch):
    monkeypatch.setattr(destinations, "MAX_DESTINATIONS", make.DESTINATIONS + 1)
    with pytest.raises(Invalid, match="at most 5 destinations"):
        add_destinations(acting_user=cast.root, fleet=fleet, destinations=[NEW, ("d5", NEW[1])])
    add_destinations(acting_user=cast.root, fleet=fleet, destinations=[NEW])


def test_only_managers_add_and_never_by_a_stale_page(cast, fleet):
    for who in (cast.vera, cast.ada, cast.grace, cast.linus):
        with pytest.raises(NotAllowed):
            add_destinations(acting_user=who, fleet=fleet, destinations=[NEW])
    weigh(cast, fleet, 0, 2)  # a destination's own version, not the fleet's
    change_destination(acting_user=cast.linus, destination=fleet.destinations.get(index=0), state="down")
    with pytest.raises(StaleVersion):
        add_destinations(acting_user=cast.root, fleet=fleet, destinations=[NEW], expected_version=1)
    assert fleet.destinations.count() == make.DESTINATIONS


def test_a_fleet_is_created_with_speeds(cast):
    fleet = fleets.create_fleet(
        acting_user=cast.root,
        slug="mixed",
        name="Mixed",
        destinations=[("a", "http://a:1"), ("b", "http://b:1", 2.0)],
        engine_profile="llama-3.1-8b-h100",
    )
    assert list(fleet.destinations.order_by("index").values_list("name", "weight")) == [("a", 1.0), ("b", 2.0)]
    assert AuditEvent.objects.get(action="fleet.created", fleet=fleet).after["weights"] == {"b": 2.0}


# --- what it does to plans ----------------------------------------------------------------------------------
def test_a_changed_speed_makes_an_approval_stale_and_the_checklist_fail(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    changed = weigh(cast, fleet, 1, 2)
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert "the speeds of the destinations" in refusal.value.message
    evaluation = make.judge_again(cast, plan)
    item = evaluation.items.get(number=6)
    assert (item.verdict, item.numbers["speeds_changed"]) == (FAIL, [1])
    assert "speed of 1 of 4 destinations" in item.explanation
    with pytest.raises(Conflict) as refusal:
        submit_plan(acting_user=cast.ada, plan=Plan.objects.get(pk=plan.pk))
    assert refusal.value.code == "gate-not-passed"
    change_destination(acting_user=cast.root, destination=changed, weight=1)
    evaluation = make.judge_again(cast, plan)
    assert evaluation.items.get(number=6).verdict == PASS
    assert evaluation.passed


def test_a_destination_that_came_makes_an_approval_stale(cast, fleet):
    plan = make.approved_plan(cast, fleet)
    add_destinations(acting_user=cast.root, fleet=fleet, destinations=[NEW])
    with pytest.raises(Conflict) as refusal:
        start_rollout(acting_user=cast.linus, plan=plan)
    assert "the destinations that are up" in refusal.value.message
    assert make.judge_again(cast, plan).items.get(number=6).verdict == FAIL


def test_a_plan_made_for_the_speeds_of_now_passes_that_item(cast, fleet):
    weigh(cast, fleet, 1, 2)
    plan = make.replayed_plan(cast, fleet)
    evidence = collect_evidence(plan).document
    assert evidence["capacity_up"] == evidence["plan"]["capacity"] == [1.0, 2.0, 1.0, 1.0]
    assert make.evaluation_of(plan).items.get(number=6).verdict == PASS


def test_a_plan_from_before_speeds_were_recorded_was_made_for_equal_ones(cast, fleet):
    plan, _ = make.order_plan(cast, fleet)
    del plan.parameters["capacity"]
    assert plan.capacity == [1.0] * make.DESTINATIONS


def test_loads_of_a_replay_go_by_the_speeds_unless_they_are_given(cast, fleet):
    equal = make.built_plan(cast, fleet)
    own = float(f"{equal.workload.total_rps:.3g}")
    # Of q_cap 8 times 4; and the workload's own rate, without which nothing would be shown of it.
    assert check_options(equal).to_json()["loads_rps"] == sorted({12.8, 22.4, 32.0, own})
    Destination.objects.filter(fleet=fleet, index=0).update(weight=7.0)
    faster = make.built_plan(cast, fleet)
    assert check_options(faster).to_json()["loads_rps"] == sorted({32.0, 56.0, 80.0, own})
    assert check_options(faster, loads_rps=[5.0]).to_json()["loads_rps"] == [5.0]
