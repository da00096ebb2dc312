"""Lists stay short for large plans and fleets; a single row has all values."""

import pytest

from planner.models import Destination
from tests import factories as make

pytestmark = pytest.mark.django_db
CSV = "key,rate,tenant\na,3,acme\nb,2,bolt\n"


def test_a_list_of_plans_leaves_out_what_grows_and_the_plan_itself_has_it(clients, cast, fleet):
    workload = make.import_rates(cast, fleet, CSV)
    plan = make.built_plan(cast, fleet, workload=workload, tenant_quota={"acme": 3}, tenant_floor={"bolt": 1})
    whole = clients.vera.get(f"/api/v1/plans/{plan.pk}/").json()
    assert whole["summary"] == plan.summary
    assert whole["parameters"] == plan.parameters
    row, flat = clients.vera.get("/api/v1/plans/", {"fleet__slug": fleet.slug}).json()["results"]
    gone = {"load", "after_loss", "top_keys", "tenants"}
    assert gone <= set(plan.summary)
    assert row["summary"] == {name: value for name, value in plan.summary.items() if name not in gone}
    gone = {"tenant_quota", "tenant_floor"}
    assert row["parameters"] == {name: value for name, value in plan.parameters.items() if name not in gone}
    assert (flat["summary"], flat["parameters"]) == ({}, {})
    rest = {"summary", "parameters"}
    assert {name: row[name] for name in row if name not in rest} == {
        name: whole[name] for name in whole if name not in rest
    }


def test_a_lost_destination_lists_a_hundred_receivers_and_counts_all(clients, cast, fleet):
    Destination.objects.bulk_create(
        Destination(fleet=fleet, index=n, name=f"n{n}", url="http://10.0.0.1:8000") for n in range(4, 130)
    )
    plan = make.built_plan(cast, fleet)
    told = clients.vera.get(f"/api/v1/plans/{plan.pk}/explain/", {"destination": "n9"}).json()
    assert (len(told["receivers"]), told["receiver_count"]) == (100, 129)
    few = make.built_plan(cast, make.make_fleet(cast, "few"))
    told = clients.vera.get(f"/api/v1/plans/{few.pk}/explain/", {"destination": "d0"}).json()
    assert len(told["receivers"]) == told["receiver_count"] == 3
