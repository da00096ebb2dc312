"""Keys and destinations of real plans, explained by name; every number of the sentences is worked out by hand."""

import json

import pytest

from planner.errors import Conflict, Invalid
from planner.models import Plan
from planner.selectors.plans.explanations import explain
from planner.services.fleets.destinations import change_destination
from tests import factories as make

pytestmark = pytest.mark.django_db
# Four destinations, q_cap 5, one slot each: `big` needs two, `mid` and `small` one; `tail` and `last` stay cold.
CSV = "key,rate\nbig,9\nmid,3\nsmall,2\ntail,1.5\nlast,0.5\n"


def plan_of(cast, fleet, csv=CSV, q_cap=5.0, slots=1, **options) -> Plan:
    workload, calibration = make.import_rates(cast, fleet, csv), make.make_calibration(cast, fleet, q_cap=q_cap)
    options = {"slots_per_destination": slots, "workload": workload, "calibration": calibration, **options}
    return make.built_plan(cast, fleet, **options)


def test_a_key_on_several_destinations(cast, fleet):
    told = explain(plan_of(cast, fleet), key="big")
    assert told["sentence"] == (
        "big has rank 1 of 5 by rate (9 requests/s, 56.250% of all) and is kept warm on 2 destinations (d0 and d1), "
        "each with 4.5 requests/s. If all of them are lost, it goes to d3."
    )
    assert [member["destination"] for member in told["members"]] == ["d0", "d1"]
    assert (told["wanted"], told["planned"], told["backup"], told["was"]) == (2, 2, "d3", None)
    json.dumps(told, allow_nan=False)


def test_a_key_on_the_lightest_destination_says_what_the_next_one_had(cast, fleet):
    # Cold: 2 requests/s over four. `mid` took d2 (3.5 now); `small` finds d3 with 0.5.
    told = explain(plan_of(cast, fleet), key="small")
    assert told["sentence"] == (
        "small has rank 3 of 5 by rate (2 requests/s, 12.500% of all) and is kept warm on d3, the lightest then with "
        "0.5 requests/s from cold traffic and 0 heavier keys; next was d2 with 3.5. If that is lost, it goes to d2."
    )


def test_a_key_that_found_the_slots_gone(cast, fleet):
    told = explain(plan_of(cast, fleet), key="tail")
    assert told["sentence"] == (
        "tail has rank 4 of 5 by rate (1.5 requests/s, 9.375% of all) and is not kept warm: 3 keys before it took all "
        "4 warm slots; the last of them has 2 requests/s."
    )
    assert (told["reason"], told["members"], told["backup"]) == ("slots_gone", [], None)


def test_a_key_that_was_skipped_and_one_that_needs_more_than_there_is(cast, fleet):
    plan = plan_of(cast, fleet, "key,rate\nhuge,30\nbig,9\nmid,3\n")
    assert explain(plan, key="huge")["sentence"] == (
        "huge has rank 1 of 3 by rate (30 requests/s, 71.429% of all) and is kept warm on 4 destinations "
        "(d0, d1, d2 and d3), each with 7.5 requests/s. It needs 6 destinations at this q_cap, more than are "
        "available; it is planned on 4."
    )
    plan = plan_of(cast, fleet, "key,rate\na,14\nb,9\nc,3\n")
    assert explain(plan, key="b")["sentence"].endswith(
        "is not kept warm: it needs 2 slots and 1 was left after 1 key, so it was skipped."
    )


def test_tenants_tokens_and_value_are_named_with_their_figures(cast, fleet):
    csv = "key,rate,tenant,prefix_tokens\na,5,acme,60\nb,4,acme,50\nc,3,bolt,40\nd,2,bolt,70\n"
    assert explain(plan_of(cast, fleet, csv, tenant_quota={"acme": 1}), key="b")["sentence"].endswith(
        "not kept warm: tenant acme may take 1 slot and its other keys took 1 (this one needs 1)."
    )
    plan = plan_of(cast, fleet, csv, slots=9, tokens_per_destination=50)
    assert explain(plan, key="a")["sentence"].endswith(
        "not kept warm: it needs 1 destination with room for 60 KV tokens; 0 had it in the end."
    )
    names = [d.name for d in fleet.destinations.all()]
    for name in names[1:]:
        change_destination(acting_user=cast.linus, destination=fleet.destinations.get(name=name), state="draining")
    plan = plan_of(cast, fleet, csv, slots=9, tokens_per_destination=120)
    assert explain(plan, key="c")["sentence"].endswith(
        "not kept warm: it needs 40 KV tokens and 10 were left in the fleet."
    )
    plan = plan_of(cast, fleet, csv, slots=2, admission="density")
    assert explain(plan, key="d")["sentence"].endswith(
        "not kept warm: others are worth more: its value is 140 a slot, the lowest that was taken before it 200."
    )
    plan = plan_of(cast, fleet, csv, slots=2, admission="exact")
    assert explain(plan, key="d")["sentence"].endswith(
        "the admitted keys are worth more together than any set with it (its value is 140 a slot, the lowest "
        "admitted 200)."
    )
    plan = plan_of(cast, fleet, csv, slots=2, tenant_floor={"bolt": 1})
    assert explain(plan, key="b")["sentence"].endswith(
        "not kept warm: 2 keys before it took all 2 warm slots, 1 of them in slots reserved for their tenant."
    )
    plan = plan_of(cast, fleet, csv, slots=1, tenant_quota={"acme": 1})
    assert explain(plan, key="b")["sentence"].endswith(
        "not kept warm: each of these alone would keep it out: 1 key before it took all 1 warm slot; the last of "
        "them has 5 requests/s; tenant acme may take 1 slot and its other keys took 1 (this one needs 1)."
    )


def test_against_its_incumbent_a_replan_names_what_a_key_left_even_where_that_is_gone(cast, fleet):
    first = plan_of(cast, fleet)
    change_destination(acting_user=cast.linus, destination=fleet.destinations.get(index=1), state="draining")
    second = make.built_plan(cast, fleet, incumbent=first, slots_per_destination=2)
    told = explain(second, key="big")
    assert (told["was"], told["lost"], told["incumbent"]) == (["d0", "d1"], ["d1"], first.number)
    assert len(told["gained"]) == 1
    assert told["sentence"].endswith(f"Against plan 1 it leaves d1 and is new on {told['gained'][0]}.")
    kept = explain(second, key="mid")
    assert "where it was warm already" in kept["sentence"]
    assert kept["sentence"].endswith("It stays where plan 1 had it.")
    assert explain(second, key="last")["was"] == []


def test_a_destination_by_name(cast, fleet):
    told = explain(plan_of(cast, fleet), destination="d2")
    # d2: cold 0.5 and mid's 3. d0 and d1 carry 5 each, d3 2.5: mid goes to d3, the cold half evenly.
    assert told["sentence"] == (
        "d2 carries 3.5 requests/s, 0.875 times the mean: 1 warm key and 0.5 requests/s of cold traffic. If it is "
        "lost, 1 key with 3 requests/s goes to its backup; d3 takes most (3.167 requests/s more), and max/mean of "
        "the others is 1.062."
    )
    assert told["busiest"] == [{"key": "mid", "rate": 3.0, "share": 3.0, "replicas": 1}]
    assert [row["destination"] for row in told["receivers"]] == ["d3", "d0", "d1"]
    json.dumps(told, allow_nan=False)


def test_the_only_destination_and_one_with_halves_of_keys(cast, fleet):
    assert (
        "no key has to go to its backup; d1 takes most" in explain(plan_of(cast, fleet), destination="d0")["sentence"]
    )
    for destination in fleet.destinations.exclude(index=0):
        change_destination(acting_user=cast.linus, destination=destination, state="draining")
    told = explain(plan_of(cast, fleet), destination="d0")
    assert told["imbalance_after"] is None
    assert told["sentence"].endswith("It is the only one: without it nothing is left to serve.")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("tial", "tail"), ("smal", "small"), ("small-1", "small"), ("x" * 5_000, "no key named"), ("", "no key named")],
)
def test_an_unknown_key_is_refused_with_the_closest_names(cast, fleet, name, hint):
    with pytest.raises(Invalid, match=hint) as refusal:
        explain(plan_of(cast, fleet), key=name)
    assert refusal.value.field == "key"
    assert len(str(refusal.value)) < 300


def test_an_unknown_destination_is_refused_with_the_closest_names(cast, fleet):
    with pytest.raises(Invalid, match="no destination named 'd9'; the closest: d") as refusal:
        explain(plan_of(cast, fleet), destination="d9")
    assert refusal.value.field == "destination"


def test_nothing_or_both_is_refused_and_a_plan_without_a_table_has_nothing_to_explain(cast, fleet):
    plan = plan_of(cast, fleet)
    for wrong in ({}, {"key": "big", "destination": "d0"}):
        with pytest.raises(Invalid, match="not both"):
            explain(plan, **wrong)
    with pytest.raises(Conflict, match="Flat-LB has no table"):
        explain(fleet.plans.get(kind="flat"), key="big")
    waiting, _job = make.order_plan(cast, fleet)
    with pytest.raises(Conflict, match="has no table"):
        explain(waiting, key="big")


def test_a_share_that_rounds_to_nothing_is_not_called_zero(cast, fleet):
    plan = plan_of(cast, fleet, "key,rate\nbig,9\nrare,0.00001\nnever,0\n")
    assert "(1e-05 requests/s, less than 0.001% of all)" in explain(plan, key="rare")["sentence"]
    assert "(0 requests/s, 0.000% of all)" in explain(plan, key="never")["sentence"]
