"""What the audit trail keeps of large values."""

import pytest

from planner.digests import digest
from planner.models import AuditEvent
from planner.services.audit.events import condensed, record_event
from planner.services.fleets.destinations import add_destinations


@pytest.mark.parametrize("value", [None, True, 1.5, "x" * 10_000, [], {}, list(range(200)), {"a": {"b": [1, None]}}])
def test_small_values_and_texts_are_kept_as_they_are(value):
    assert condensed(value) == value


def test_a_long_map_is_kept_as_count_digest_and_its_first_names():
    quotas = {f"t{n:04d}": n for n in reversed(range(201))}
    assert condensed(quotas) == {
        "count": 201,
        "sha256": digest(quotas),
        "first": [[f"t{n:04d}", n] for n in range(20)],
    }


def test_long_values_inside_others_are_condensed_too():
    rows = [{"name": n, "held": list(range(300))} for n in range(500)]
    kept = condensed({"rows": rows})["rows"]
    assert (kept["count"], kept["sha256"], len(kept["first"])) == (500, digest(rows), 20)
    assert kept["first"][19]["name"] == 19
    assert kept["first"][19]["held"] == {"count": 300, "sha256": digest(list(range(300))), "first": list(range(20))}


@pytest.mark.django_db
def test_an_event_about_many_destinations_is_small(cast, fleet):
    rows = [(f"new{n}", "http://127.0.0.1:9000") for n in range(300)]
    add_destinations(acting_user=cast.root, fleet=fleet, destinations=rows)
    after = AuditEvent.objects.get(action="fleet.destinations_added").after
    assert (after["destinations"]["count"], len(after["destinations"]["first"])) == (300, 20)
    assert after["destinations"]["first"][0] == {
        "index": 4, "name": "new0", "url": "http://127.0.0.1:9000", "weight": 1.0,
    }  # fmt: skip
    assert after["table_version"] == 2


@pytest.mark.django_db
def test_what_came_before_is_condensed_as_well(cast, fleet):
    event = record_event(
        "fleet.policy_changed", acting_user=None, fleet=fleet, subject=fleet, before={"x": list(range(201))}
    )
    assert AuditEvent.objects.get(pk=event.pk).before["x"]["count"] == 201
