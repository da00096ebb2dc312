"""Options of a plan: what they do to its table, and how they are refused."""

import json

import numpy as np
import pytest

from planner import artifacts
from planner.errors import Invalid
from planner.models import AuditEvent, Job, Plan
from planner.routing import build_table
from tests import factories as make

pytestmark = pytest.mark.django_db

# Key, rate, tenant and prefix length: the busiest key is short, the second tenant's keys are rare and long.
ROWS = [("a1", 5.0, "acme", 100), ("a2", 4.0, "acme", 2_000), ("a3", 3.0, "acme", 1_000)]
ROWS += [(f"b{n}", 1.0 + n / 10, "bolt", 8_000) for n in range(6)]
NAMES, RATES, TENANTS, TOKENS = (list(column) for column in zip(*ROWS, strict=True))
SMALL = {"q_cap": 8.0, "slots_measured": 2, "margin": 1.0}  # W = 2, so 8 slots for 9 keys


@pytest.fixture
def known(cast, fleet):
    """A workload that knows tenants and prefix lengths, and a calibration under which not every key fits."""
    rows = "".join(f"{key},{rate},{tenant},{tokens}\n" for key, rate, tenant, tokens in ROWS)
    workload = make.import_rates(cast, fleet, "key,rate,tenant,prefix_tokens\n" + rows)
    return {"workload": workload, "calibration": make.make_calibration(cast, fleet, **SMALL)}


def table_of(plan):
    table, names = artifacts.load_table(plan.table)
    return table, {name: table.members_of(key).tolist() for name, key in zip(names, table.admitted, strict=True)}


@pytest.mark.parametrize("admission", ["top_rate", "density", "exact"])
def test_the_table_is_the_one_of_the_ordered_admission_with_all_that_the_workload_knows(cast, fleet, known, admission):
    plan = make.built_plan(cast, fleet, **known, admission=admission, tokens_per_destination=16_000)
    expected = build_table(
        RATES, destinations=4, q_cap=8.0, slots=8, prefix_tokens=TOKENS, admission=admission, token_budget=16_000,
        tenants=[TENANTS.index("acme") if t == "acme" else 1 for t in TENANTS],
    )  # fmt: skip
    table, _ = table_of(plan)
    assert table == expected
    assert plan.summary["admission"] == admission
    assert plan.summary["admitted_value"] == expected.admitted_value
    assert plan.summary["value_bound"] == expected.value_bound
    assert plan.summary["value_gap"] == expected.value_gap
    assert plan.summary["value_unit"] == "tokens/s"


def test_admission_by_density_prefers_what_saves_more_prefill(cast, fleet, known):
    _, by_rate = table_of(make.built_plan(cast, fleet, **known))
    _, by_density = table_of(make.built_plan(cast, fleet, **known, admission="density"))
    assert set(NAMES) - set(by_rate) == {"b0"}
    assert set(NAMES) - set(by_density) == {"a1"}


def test_a_tenant_takes_no_more_than_its_quota_and_the_summary_says_who_is_warm(cast, fleet, known):
    plan = make.built_plan(cast, fleet, **known, tenant_quota={"acme": 2})
    _, homes = table_of(plan)
    assert {name for name in homes if name.startswith("a")} == {"a1", "a2"}
    warm = {row["tenant"]: row for row in plan.summary["tenants"]}
    assert list(warm) == ["bolt", "acme"]  # most slots first
    assert (warm["acme"]["slots"], warm["bolt"]["slots"]) == (2, 6)
    assert warm["acme"]["rate"] == pytest.approx(9.0)
    assert warm["acme"]["share_of_slots"] == pytest.approx(2 / 8)
    assert warm["acme"]["share_of_rate"] == pytest.approx(9.0 / (9.0 + sum(RATES[3:])))
    assert warm["acme"]["warm_share"] == pytest.approx(9.0 / 12.0)
    assert warm["bolt"]["warm_share"] == pytest.approx(1.0)
    assert plan.summary["tenant_count"] == 2


def test_what_is_reserved_for_a_tenant_comes_before_busier_keys(cast, fleet, known):
    one_slot = {**known, "slots_per_destination": 1}
    _, homes = table_of(make.built_plan(cast, fleet, **one_slot))
    assert "b0" not in homes
    _, homes = table_of(make.built_plan(cast, fleet, **one_slot, tenant_floor={"bolt": 4}))
    assert sorted(homes) == ["b2", "b3", "b4", "b5"]


def test_a_faster_destination_takes_more_and_its_speed_is_recorded_in_the_order_of_the_destinations(cast, fleet, known):
    fleet.destinations.filter(index=0).update(state="down")
    fleet.destinations.filter(index=2).update(weight=3.0)
    plan = make.built_plan(cast, fleet, **known)
    assert plan.parameters["destinations"] == [1, 2, 3]
    assert plan.parameters["capacity"] == [1.0, 3.0, 1.0]
    load = plan.summary["load"]
    assert load[1] > 1.5 * max(load[0], load[2])
    table, _ = table_of(plan)
    assert table.capacity.tolist() == [1.0, 3.0, 1.0]


def test_the_summary_knows_what_the_loss_of_each_destination_does_and_which_is_worst(cast, fleet, known):
    plan = make.built_plan(cast, fleet, **known)
    table, _ = table_of(plan)
    assert plan.summary["after_loss"] == table.after_loss.tolist()
    assert plan.summary["worst_loss"] == table.worst_loss == max(plan.summary["after_loss"])
    at = plan.parameters["destinations"].index(plan.summary["worst_loss_destination"])
    assert plan.summary["after_loss"][at] == plan.summary["worst_loss"]
    assert AuditEvent.objects.get(action="plan.built").after["worst_loss"] == plan.summary["worst_loss"]


def test_with_one_destination_its_loss_is_no_number_and_still_json(cast, fleet, known):
    fleet.destinations.exclude(index=3).update(state="down")
    plan = make.built_plan(cast, fleet, **known)
    assert plan.summary["after_loss"] == [None]
    assert (plan.summary["worst_loss"], plan.summary["worst_loss_destination"]) == (None, None)
    json.dumps(plan.summary, allow_nan=False)
    table, _ = table_of(plan)
    assert table.after_loss.tolist() == [np.inf]


def test_a_workload_of_names_and_rates_alone_is_valued_by_rate(cast, fleet):
    plan = make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, "key,rate\na,2\nb,1\n"))
    assert plan.summary["value_unit"] == "requests/s"
    assert plan.summary["admitted_value"] == 3.0
    assert (plan.summary["tenants"], plan.summary["tenant_count"], plan.summary["warm_tokens"]) == ([], 0, None)


def test_the_audit_trail_keeps_what_was_ordered(cast, fleet, known):
    make.order_plan(cast, fleet, **known, admission="density", tenant_quota={"acme": 2}, tokens_per_destination=9_000)
    after = AuditEvent.objects.get(action="plan.ordered").after
    assert after["admission"] == "density"
    assert after["tenant_quota"] == {"acme": 2}
    assert after["tokens_per_destination"] == 9_000
    assert after["incumbent"] is None


def test_other_options_are_other_inputs(cast, fleet, known):
    digests = [
        make.order_plan(cast, fleet, **known, **options)[0].inputs_digest
        for options in ({}, {"admission": "exact"}, {"tenant_quota": {"acme": 2}}, {"tenant_floor": {"acme": 2}}, {})
    ]
    assert digests[0] == digests[4]
    assert len(set(digests)) == 4


def test_a_plan_ordered_before_these_options_existed_is_built_as_before(cast, fleet, known):
    plan, job = make.order_plan(cast, fleet, **known)
    old = ("admission", "balance_target", "q_cap", "slots_per_destination", "slots", "destinations")
    Plan.objects.filter(pk=plan.pk).update(parameters={name: plan.parameters[name] for name in old})
    make.build(job)
    plan.refresh_from_db()
    assert plan.state == Plan.State.BUILT
    assert plan.table_id == make.built_plan(cast, fleet, **known).table_id


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"admission": "by lot"}, "admission", "'by lot' is not one of top_rate, density, exact"),
        ({"tokens_per_destination": 0}, "tokens_per_destination", "from 1"),
        ({"tenant_quota": {"acme": 1, "nobody": 2}}, "tenant_quota", "has no tenant 'nobody'"),
        ({"tenant_floor": {"nobody": 2}}, "tenant_floor", "has no tenant 'nobody'"),
        ({"tenant_quota": {"acme": -1}}, "tenant_quota", "'acme': -1 is not a whole number"),
        ({"tenant_quota": {"acme": True}}, "tenant_quota", "'acme': True"),
        ({"tenant_quota": {"acme": 1.5}}, "tenant_quota", "'acme': 1.5"),
        ({"tenant_quota": {"acme": 1}, "tenant_floor": {"acme": 2}}, "tenant_floor", "2 slots are reserved and 1"),
        ({"tenant_floor": {"acme": 5, "bolt": 4}}, "tenant_floor", "9 slots are reserved and the fleet has 8"),
        ({"max_imbalance_factor": 1.1}, "max_imbalance_factor", "only a replan"),
        ({"max_moved_share": 0.1}, "max_moved_share", "only a replan"),
    ],
)
def test_an_option_that_cannot_be_used_names_its_field_and_why(cast, fleet, known, options, field, message):
    with pytest.raises(Invalid) as refusal:
        make.order_plan(cast, fleet, **known, **options)
    assert refusal.value.field == field
    assert message in refusal.value.message
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"tokens_per_destination": 10}, "tokens_per_destination", "needs the prefix length of each key"),
        ({"tenant_quota": {"acme": 1}}, "tenant_quota", "has no tenants"),
        ({"tenant_floor": {"acme": 1}}, "tenant_floor", "has no tenants"),
    ],
)
def test_an_option_that_the_workload_cannot_serve_is_refused(cast, fleet, options, field, message):
    workload = make.import_rates(cast, fleet, "key,rate\na,2\nb,1\n")
    with pytest.raises(Invalid) as refusal:
        make.order_plan(cast, fleet, workload=workload, **options)
    assert refusal.value.field == field
    assert message in refusal.value.message
