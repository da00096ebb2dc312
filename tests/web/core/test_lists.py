"""Lists: the same number of queries however long they are, the audit trail's filters and pages."""

from __future__ import annotations

import datetime as dt
import html

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from planner.models import Fleet
from planner.selectors.audit.page import PAGE
from planner.services.audit.events import record_event
from planner.services.rollouts.starts import start_rollout
from tests import factories as make
from tests.factories import Cast

pytestmark = pytest.mark.django_db


def queries(client, address: str) -> int:
    """Queries of one GET (after a first one, which fills caches)."""
    assert client.get(address).status_code == 200
    with CaptureQueriesContext(
        connection,
    ) as caught:
        assert client.get(address).status_code == 200
    return len(caught)


@pytest.mark.parametrize("page", ["home", "audit", "tokens"])
def test_lists_of_everything_take_the_same_queries_for_one_fleet_and_for_six(
    sign_in, cast: Cast, fleet: Fleet, page: str
) -> None:
    client = sign_in(cast.root)
    few = queries(client, reverse(page))
    for n in range(5):
        other = make.make_fleet(cast, f"more-{n}")
        make.order_plan(cast, other)
    assert queries(client, reverse(page)) == few


def test_a_fleets_page_takes_the_same_queries_for_one_plan_and_for_five(sign_in, cast: Cast, fleet: Fleet) -> None:
    client, address = sign_in(cast.root), reverse("fleet", args=[fleet.slug])
    make.built_plan(cast, fleet)
    few = queries(client, address)
    for _ in range(4):
        make.make_workload(cast, fleet)
        make.make_calibration(cast, fleet)
        make.built_plan(cast, fleet)
    assert queries(client, address) == few


def test_home_shows_the_live_plans_with_their_shares(sign_in, cast: Cast, fleet: Fleet) -> None:
    start_rollout(acting_user=cast.linus, plan=make.approved_plan(cast, fleet))
    page = sign_in(cast.vera).get(reverse("home"))
    (row,) = page.context["fleets"]
    assert [(r.plan.number, r.state, r.weight) for r in row.live] == [(0, "active", 1.0), (1, "canary", 0.1)]
    assert "10% of keys" in page.content.decode()


def test_the_trail_is_filtered_by_action_actor_fleet_and_day(sign_in, cast: Cast, fleet: Fleet) -> None:
    other = make.make_fleet(cast, "beta")
    make.order_plan(cast, fleet)
    client = sign_in(cast.vera)

    def found(**query: str) -> list[tuple[str, str]]:
        page = client.get(reverse("audit"), query)
        return [(e.action, e.fleet.slug) for e in page.context["page"].events]

    assert found(action="fleet.created") == [("fleet.created", "beta"), ("fleet.created", "alpha")]
    assert found(fleet=other.slug) == [("fleet.created", "beta")]
    assert {action for action, _ in found(actor="ada")} == {
        "plan.ordered", "calibration.recorded", "workload.imported"
    }  # fmt: skip
    today = dt.datetime.now(dt.UTC).date()
    assert len(found(since=today.isoformat(), until=today.isoformat())) == 5
    assert found(since=(today + dt.timedelta(days=1)).isoformat()) == []
    assert "ordered a plan" in client.get(reverse("fleet-audit", args=[fleet.slug])).content.decode()


def test_a_long_change_is_cut_on_the_page_and_whole_in_the_api(sign_in, cast: Cast, fleet: Fleet) -> None:
    quotas = {f"tenant-{n:03d}": n for n in range(150)}
    after = {"tenant_quota": quotas, "destinations": list(range(1000, 1021)), "note": "n" * 600, "few": {"a": 1}}
    event = record_event("plan.ordered", acting_user=cast.ada, fleet=fleet, subject=fleet, after=after)
    client = sign_in(cast.vera)
    body = html.unescape(client.get(reverse("audit")).content.decode())
    assert '"tenant-019": 19, "…": "130 more"}' in body
    assert "tenant-020" not in body
    assert '1019, "… 1 more"]' in body
    assert "n" * 500 + "… (600 characters)" in body
    assert "n" * 501 not in body
    assert '"few": {"a": 1}' in body
    address = f"/api/v1/audit-events/{event.pk}/"
    assert f'href="{address}"' in body
    assert client.get(address).json()["after"] == after


def test_an_invalid_filter_is_reported_with_400(sign_in, cast: Cast) -> None:
    page = sign_in(cast.vera).get(reverse("audit"), {"since": "yesterday"})
    assert page.status_code == 400
    assert "Enter a valid date." in page.content.decode()


def test_pages_of_the_trail_neither_repeat_nor_lose_an_event(sign_in, cast: Cast, fleet: Fleet) -> None:
    for n in range(2 * PAGE):
        record_event("fleet.policy_changed", acting_user=cast.root, fleet=fleet, subject=fleet, reason=f"{n}")
    client, seen, address = sign_in(cast.vera), [], reverse("fleet-audit", args=[fleet.slug])
    while True:
        page = client.get(address)
        seen += [event.pk for event in page.context["page"].events]
        # Events that are added meanwhile change nothing of what follows.
        record_event("fleet.policy_changed", acting_user=cast.root, fleet=fleet, subject=fleet)
        if not page.context["more"]:
            break
        address = f"{reverse('fleet-audit', args=[fleet.slug])}?{page.context['more']}"
    assert len(seen) == len(set(seen)) == 2 * PAGE + 1
