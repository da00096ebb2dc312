"""What a plan would touch, counted from the stored tables by plain loops."""

import pytest
from django.core.files.storage import default_storage

from planner import artifacts
from planner.digests import digest
from planner.errors import ArtifactLost, Conflict
from planner.models import Plan
from planner.selectors.rollouts import blast_radius as selector
from planner.selectors.rollouts.blast_radius import blast_radius
from tests import factories as make

pytestmark = pytest.mark.django_db

RATES = "key,rate,tenant,prefix_tokens\n" + "".join(f"k{n},{4 / (n + 1)},t{n % 3},{100 + n}\n" for n in range(40))
OTHER = "key,rate,tenant,prefix_tokens\n" + "".join(f"k{n},{1 + n % 7},t{n % 3},{100 + n}\n" for n in range(20, 60))


@pytest.fixture(autouse=True)
def _nothing_kept():
    selector._between.cache_clear()


def table_of(plan):
    """{key: destinations} by name and the fleet's index, as routers get it."""
    table, names = artifacts.load_table(plan.table)
    index_of = plan.parameters["destinations"]
    return {
        name: {index_of[m] for m in table.members[table.offsets[i] : table.offsets[i + 1]].tolist()}
        for i, name in enumerate(names)
    }


def built(cast, fleet, content=RATES):
    make.make_calibration(cast, fleet, q_cap=2.0, slots_measured=10)
    return make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, content))


def rows_of(content):
    return {
        key: (float(rate), tenant, int(prefix))
        for key, rate, tenant, prefix in (line.split(",") for line in content.split()[1:])
    }


def check(found, new, old, content):
    rows = rows_of(content)
    total = sum(rate for rate, _, _ in rows.values())
    gained, lost = new.keys() - old.keys(), (old.keys() - new.keys()) & rows.keys()
    moved = {key for key in new.keys() & old.keys() if new[key] != old[key]}
    cold = [(key, place) for key in new for place in new[key] - old.get(key, set())]
    assert (found["keys_gained"], found["keys_lost"], found["keys_moved"]) == (len(gained), len(lost), len(moved))
    assert found["keys_gone"] == len(old.keys() - rows.keys())
    assert found["rate_moved"] == pytest.approx(sum(rows[key][0] for key in gained | lost | moved) / total)
    assert found["rewarm_tokens"] == sum(rows[key][2] for key, _ in cold)
    assert found["dip"]["first_misses"] == len(cold)
    assert found["dip"]["cold_share"] == pytest.approx(sum(rows[k][0] / len(new[k]) for k, _ in cold) / total)
    tenants = {}
    for key in gained | lost | moved:
        count, rate = tenants.get(rows[key][1], (0, 0.0))
        tenants[rows[key][1]] = count + 1, rate + rows[key][0]
    assert {t["tenant"]: t["keys"] for t in found["tenants"]} == {name: n for name, (n, _) in tenants.items()}
    for row in found["tenants"]:
        own = sum(rate for rate, tenant, _ in rows.values() if tenant == row["tenant"])
        assert row["rate_rps"] == pytest.approx(tenants[row["tenant"]][1])
        assert row["share_of_own"] == pytest.approx(tenants[row["tenant"]][1] / own)
    assert digest(found)  # it may stand in evidence


def test_against_flat_lb_every_admitted_key_becomes_warm_somewhere(cast, fleet):
    plan = built(cast, fleet)
    found = blast_radius(plan).to_json()
    assert found["against"] == 0
    assert found["keys_gained"] == plan.summary["admitted"] > 0
    assert found["rate_moved"] == pytest.approx(plan.summary["admitted_share"])
    assert found["dip"]["tenth_s"] > found["dip"]["half_s"] > 0
    check(found, table_of(plan), {}, RATES)


def test_against_another_plan_keys_are_gained_lost_and_moved(cast, fleet):
    old, new = built(cast, fleet), built(cast, fleet, OTHER)
    found = blast_radius(new, against=old).to_json()
    assert min(found["keys_gained"], found["keys_gone"], found["rate_moved"]) > 0
    check(found, table_of(new), table_of(old), OTHER)
    check(blast_radius(old, against=new).to_json(), table_of(old), table_of(new), RATES)


def test_destinations_are_compared_by_the_fleets_index_not_by_position(cast, fleet):
    old = built(cast, fleet)
    fleet.destinations.filter(index=0).update(state="down")
    new = make.built_plan(cast, fleet, workload=old.workload, calibration=old.calibration)
    assert new.parameters["destinations"] == [1, 2, 3]
    check(blast_radius(new, against=old).to_json(), table_of(new), table_of(old), RATES)


def test_falling_back_loses_every_warm_key_and_starts_nothing_cold(cast, fleet):
    plan = built(cast, fleet)
    found = blast_radius(fleet.plans.get(kind=Plan.Kind.FLAT), against=plan).to_json()
    assert found["keys_lost"] == plan.summary["admitted"]
    assert (found["keys_gained"], found["rewarm_tokens"], found["dip"]["cold_share"]) == (0, 0, 0.0)


def test_a_plan_against_itself_touches_nothing(cast, fleet):
    plan = built(cast, fleet)
    for one in (plan, fleet.plans.get(kind=Plan.Kind.FLAT)):
        found = blast_radius(one, against=one).to_json()
        assert (found["rate_moved"], found["keys_gained"], found["dip"]["half_s"]) == (0.0, 0, 0.0)


def test_without_prefix_lengths_the_tokens_are_not_known(cast, fleet):
    make.make_calibration(cast, fleet)
    plan = make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, "key,rate\na,1\nb,2\n"))
    found = blast_radius(plan).to_json()
    assert found["rewarm_tokens"] is None
    assert (found["tenants"], found["tenant_count"], found["keys_gained"]) == ([], 0, 2)


def test_a_plan_without_a_table_is_refused_and_not_taken_for_flat_lb(cast, fleet):
    plan, _ = make.order_plan(cast, fleet)
    with pytest.raises(Conflict) as refusal:
        blast_radius(plan).to_json()
    assert refusal.value.code == "not-built"


def test_a_table_that_is_lost_is_said(cast, fleet):
    plan = built(cast, fleet)
    artifacts._table_of.cache_clear()
    default_storage.delete(plan.table.path)
    with pytest.raises(ArtifactLost):
        blast_radius(plan).to_json()


def test_the_second_look_reads_no_artifact(cast, fleet, django_assert_num_queries):
    plan = built(cast, fleet)
    first = blast_radius(plan).to_json()
    with django_assert_num_queries(1):  # which plan is active
        assert blast_radius(plan).to_json() == first
