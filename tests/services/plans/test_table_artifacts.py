"""A stored table is the table, field for field."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from planner import artifacts
from planner.models import Artifact
from planner.routing import RoutingTable, build_table

pytestmark = pytest.mark.django_db
RATES = [5.0, 4.0, 9.5, 0.1, 2.0, 0.0]
NAMES = [f"k{n}" for n in range(6)]


def test_every_field_comes_back_exactly_and_what_is_not_finite_too():
    table = replace(
        build_table(RATES, destinations=3, q_cap=4.0, slots=8, prefix_tokens=[100] * 6),
        moved=2,
        moved_rate=0.1 + 0.2,
        moved_keys=np.array([0, 4]),
        capacity=np.array([1.0, 0.1 + 0.2, 2.0]),
        available=np.array([True, False, True]),
        after_loss=np.array([1.0 / 3.0, np.nan, np.inf]),
        admission="exact",
        admitted_value=1e300,
        value_bound=np.inf,
        tenant_slots=np.array([3, 5]),
        tenant_rate=np.array([0.1, 1e-310]),
        rewarm_tokens=12345.5,
    )
    stored = artifacts.store_table(table, NAMES)
    again, names = artifacts.load_table(Artifact.objects.get(pk=stored.pk))
    assert again == table
    for field in fields(RoutingTable):
        old, new = getattr(table, field.name), getattr(again, field.name)
        assert type(new) is type(old), field.name
        if isinstance(old, np.ndarray):
            assert new.dtype == old.dtype, field.name
    assert names == [NAMES[i] for i in table.admitted]


def test_what_is_stored_is_strict_json():
    table = replace(build_table(RATES, destinations=3, q_cap=4.0, slots=8), after_loss=np.array([np.nan, np.inf, 1.0]))
    arrow = artifacts.load(artifacts.store_table(table, NAMES))
    text = arrow.schema.metadata[b"cacheroute"].decode()
    assert json.loads(text, parse_constant=pytest.fail)["after_loss"] == ["nan", "inf", 1.0]


def test_a_table_from_before_the_newer_fields_has_their_defaults():
    table = build_table(RATES, destinations=3, q_cap=4.0, slots=8)
    arrow = artifacts.load(artifacts.store_table(table, NAMES))
    whole = json.loads(arrow.schema.metadata[b"cacheroute"])
    old = {
        "imbalance", "slots_used", "admitted_rate", "destinations", "q_cap", "slots", "total_rate", "keys",
        "warm_tokens", "load", "cannot_fit",
    }  # fmt: skip
    before = arrow.replace_schema_metadata({"cacheroute": json.dumps({name: whole[name] for name in old})})
    again, _ = artifacts.load_table(artifacts.store(Artifact.Kind.TABLE, before))
    assert again.members.tolist() == table.members.tolist()
    assert again.load.tolist() == table.load.tolist()
    assert (again.moved, again.admission, again.rewarm_tokens) == (0, "top_rate", None)
    assert len(again.after_loss) == len(again.capacity) == len(again.available) == 0
    assert np.isnan(again.worst_loss)


def test_tenants_come_back_sorted_by_name_and_a_workload_without_has_none():
    stored = artifacts.store_rates(["a", "b", "c", "d"], np.ones(4), ["zoo", "acme", "", "zoo"])
    names, of_key = artifacts.load_tenants(stored)
    assert names == ["", "acme", "zoo"]
    assert of_key.tolist() == [2, 1, 0, 2]
    assert of_key.dtype == np.int64
    assert artifacts.load_tenants(artifacts.store_rates(["a"], np.ones(1), None)) is None
