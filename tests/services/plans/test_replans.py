"""A plan that starts from another: by names, over the destinations of both."""

import numpy as np
import pytest
from django.db import DatabaseError, transaction

from planner import artifacts
from planner.errors import Invalid
from planner.models import AuditEvent, Plan
from planner.routing import build_table, replan
from planner.services.fleets.destinations import change_destination
from tests import factories as make

pytestmark = pytest.mark.django_db


def csv(rates, *, tokens=None):
    head = "key,rate,prefix_tokens\n" if tokens else "key,rate\n"
    return head + "".join(f"{key},{rate!r}{f',{tokens}' if tokens else ''}\n" for key, rate in rates.items())


@pytest.fixture
def before():
    return {f"k{n:02d}": float(rate) for n, rate in enumerate(np.linspace(2.0, 0.5, 40))}


@pytest.fixture
def after(before):
    """Some keys gone, among them the busiest; some new, and first in the file, so that every index is another."""
    new = {f"new{n}": 1.9 - n / 10 for n in range(4)}
    return {**new, **{k: v * 1.01 for k, v in reversed(before.items()) if k not in ("k00", "k07", "k31")}}


@pytest.fixture
def incumbent(cast, fleet, before):
    return make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, csv(before, tokens=1_000)))


def homes(plan):
    """Key -> names of its destinations, by the fleet's own indices."""
    names = dict(plan.fleet.destinations.values_list("index", "name"))
    table, keys = artifacts.load_table(plan.table)
    return {
        key: {names[plan.parameters["destinations"][m]] for m in table.members_of(index)}
        for key, index in zip(keys, table.admitted.tolist(), strict=True)
    }


def replanned(cast, fleet, incumbent, rates, **options):
    workload = make.import_rates(cast, fleet, csv(rates, tokens=1_000))
    return make.built_plan(cast, fleet, workload=workload, incumbent=incumbent, **options)


def test_keys_keep_their_homes_by_name_though_every_index_changed(cast, fleet, incumbent, before, after):
    plan = replanned(cast, fleet, incumbent, after)
    was, now = homes(incumbent), homes(plan)
    assert set(now) == set(after)
    stayed = [key for key in now if key in was and now[key] == was[key]]
    moved = [key for key in now if key in was and now[key] != was[key]]
    assert len(moved) == plan.summary["moved_keys"] < 5 < len(stayed)
    assert plan.summary["gone_keys"] == 3
    assert plan.summary["moved_rate"] == pytest.approx(sum(after[key] for key in moved))
    assert plan.summary["moved_share"] == pytest.approx(plan.summary["moved_rate"] / plan.summary["admitted_rate"])
    assert plan.summary["incumbent"] == incumbent.number
    cold_places = 4 + len(moved)  # new keys, and keys that moved
    assert plan.summary["rewarm_tokens"] == pytest.approx(1_000 * cold_places)
    assert plan.incumbent == incumbent


def test_the_same_rates_move_nothing(cast, fleet, incumbent):
    plan = make.built_plan(cast, fleet, workload=incumbent.workload, incumbent=incumbent)
    assert homes(plan) == homes(incumbent)
    assert (plan.summary["moved_keys"], plan.summary["moved_share"], plan.summary["rewarm_tokens"]) == (0, 0.0, 0.0)
    table, _ = artifacts.load_table(incumbent.table)
    _, rates = artifacts.load_rates(incumbent.workload.rates)
    stored, _ = artifacts.load_table(plan.table)
    direct = replan(table, rates, q_cap=8.0, slots=48 * 4, prefix_tokens=np.full(40, 1_000.0))
    assert stored == direct


def test_what_a_drained_destination_held_moves_and_little_else(cast, fleet, incumbent, after):
    drained = fleet.destinations.get(index=1)
    change_destination(acting_user=cast.linus, destination=drained, state="draining")
    plan = replanned(cast, fleet, incumbent, after)
    assert plan.parameters["destinations"] == [0, 2, 3]
    was, now = homes(incumbent), homes(plan)
    assert not any("d1" in members for members in now.values())
    assert all(now[key] != members for key, members in was.items() if "d1" in members and key in now)
    elsewhere = [key for key, members in was.items() if "d1" not in members and key in now]
    assert sum(now[key] == was[key] for key in elsewhere) > 0.8 * len(elsewhere)
    table, _ = artifacts.load_table(plan.table)
    assert table.destinations == len(table.load) == len(table.after_loss) == len(plan.summary["load"]) == 3
    assert table.available.all()
    assert sum(plan.summary["load"]) == pytest.approx(sum(after.values()), rel=1e-5)


def test_a_destination_that_came_takes_its_part(cast, fleet, incumbent, before, after):
    gone = fleet.destinations.get(index=0)
    change_destination(acting_user=cast.linus, destination=gone, state="down")
    three = make.built_plan(cast, fleet, workload=incumbent.workload)
    assert three.parameters["destinations"] == [1, 2, 3]
    gone.refresh_from_db()
    change_destination(acting_user=cast.linus, destination=gone, state="up")
    fleet.destinations.create(index=9, name="d9", url="http://127.0.0.1:9109")
    plan = replanned(cast, fleet, three, after)
    assert plan.parameters["destinations"] == [0, 1, 2, 3, 9]
    was, now = homes(three), homes(plan)
    fresh = build_table(list(after.values()), destinations=5, q_cap=8.0, slots=48 * 5)
    assert plan.summary["imbalance"] <= 1.02 * fresh.imbalance + 1e-9
    moved = {key for key in now if key in was and now[key] != was[key]}
    assert moved
    assert set().union(*(now[key] for key in moved)) >= {"d0", "d9"}
    assert plan.summary["moved_keys"] == len(moved)


def test_no_more_of_the_rate_moves_than_was_allowed(cast, fleet, incumbent, after):
    fleet.destinations.create(index=4, name="d4", url="http://127.0.0.1:9104")
    free = replanned(cast, fleet, incumbent, after)
    held = replanned(cast, fleet, incumbent, after, max_moved_share=0.02)
    assert free.summary["moved_share"] > 0.02 >= held.summary["moved_share"]
    assert held.parameters["max_moved_share"] == 0.02
    assert held.parameters["max_imbalance_factor"] == 1.02


def test_a_replan_and_its_incumbents_table_are_among_the_inputs(cast, fleet, incumbent, after):
    workload = make.import_rates(cast, fleet, csv(after))
    scratch = make.order_plan(cast, fleet, workload=workload)[0]
    one = make.order_plan(cast, fleet, workload=workload, incumbent=incumbent)[0]
    same = make.order_plan(cast, fleet, workload=workload, incumbent=incumbent)[0]
    other_base = make.built_plan(cast, fleet, workload=incumbent.workload, slots_per_destination=5)
    other = make.order_plan(cast, fleet, workload=workload, incumbent=other_base)[0]
    assert one.inputs_digest == same.inputs_digest
    assert len({scratch.inputs_digest, one.inputs_digest, other.inputs_digest}) == 3


def test_the_audit_trail_says_from_what_it_was_replanned_and_how_much_moves(cast, fleet, incumbent, after):
    plan = replanned(cast, fleet, incumbent, after, max_imbalance_factor=1.1)
    ordered, built = (
        AuditEvent.objects.get(action=f"plan.{what}", subject_id=plan.pk).after for what in ("ordered", "built")
    )
    assert (ordered["incumbent"], ordered["max_imbalance_factor"]) == (incumbent.number, 1.1)
    assert built["moved_share"] == plan.summary["moved_share"]


def test_a_replanned_table_is_replayed_like_any_other(cast, fleet):
    incumbent = make.built_plan(cast, fleet)
    change_destination(acting_user=cast.linus, destination=fleet.destinations.get(index=2), state="draining")
    plan = make.built_plan(cast, fleet, incumbent=incumbent)
    row = make.run_replay(cast, plan)
    assert row.state == "succeeded"
    assert {len(cell.figures["requests_per_destination"]) for cell in row.cells.all()} == {3}


def test_the_incumbent_of_a_built_plan_stays(cast, fleet, incumbent, after):
    plan = replanned(cast, fleet, incumbent, after)
    with pytest.raises(DatabaseError, match="Cannot update"), transaction.atomic():
        Plan.objects.filter(pk=plan.pk).update(incumbent=None)
    with pytest.raises(DatabaseError, match="Cannot update"), transaction.atomic():
        Plan.objects.filter(pk=incumbent.pk).update(incumbent=plan)
    plan.refresh_from_db()
    assert plan.incumbent == incumbent


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_imbalance_factor": 0.99}, "max_imbalance_factor"),
        ({"max_imbalance_factor": float("nan")}, "max_imbalance_factor"),
        ({"max_moved_share": -0.1}, "max_moved_share"),
        ({"max_moved_share": 1.1}, "max_moved_share"),
        ({"max_moved_share": float("nan")}, "max_moved_share"),
    ],
)
def test_replan_options_that_cannot_be_used_name_their_field(cast, fleet, incumbent, options, field):
    with pytest.raises(Invalid) as refusal:
        make.order_plan(cast, fleet, incumbent=incumbent, **options)
    assert refusal.value.field == field


def test_only_a_plan_of_the_fleet_that_has_a_table_can_be_replanned(cast, fleet):
    flat = fleet.plans.get(kind="flat")
    queued, _ = make.order_plan(cast, fleet)
    other = make.built_plan(cast, make.make_fleet(cast, "beta"))
    for plan, message in ((flat, "Flat-LB has no table"), (queued, "has no table"), (other, "another fleet")):
        with pytest.raises(Invalid, match=message) as refusal:
            make.order_plan(cast, fleet, incumbent=plan)
        assert refusal.value.field == "incumbent"
