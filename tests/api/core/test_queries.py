"""Lists use the same number of queries for any number of rows. The counts are committed."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from planner.models import AuditCheckpoint, DriftCheck, Freeze, TelemetryWindow, Waiver
from planner.services.access import tokens
from planner.services.fleets.fleets import change_policy
from planner.services.gate import evaluations
from planner.services.plans import studies
from planner.services.reviews import comments
from planner.services.webhooks import webhooks
from planner.tasks import run_job
from tests import factories as make

pytestmark = pytest.mark.django_db

# Session and user, then: the page, and one more for each prefetch.
QUERIES = {
    "fleets": 3, "destinations": 3, "workloads": 3, "calibrations": 3, "plans": 3, "replays": 3, "gates": 4,
    "approvals": 3, "waivers": 3, "plans/{plan}/comments": 4, "rollouts": 7, "freezes": 3,
    "telemetry": 3, "drift-checks": 3, "jobs": 3, "audit-events": 3, "tokens": 3,
    "policy-versions": 3, "break-glass": 3, "webhooks": 3, "webhook-deliveries": 3, "audit-checkpoints": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def grown():
    """How to add a row to each list, given the cast and a fleet with an approved plan."""

    def fleets(cast, fleet, n):
        make.make_fleet(cast, f"more-{n}")

    def destinations(cast, fleet, n):
        fleet.destinations.create(index=100 + n, name=f"m{n}", url="http://127.0.0.1")

    def workloads(cast, fleet, n):
        make.make_workload(cast, fleet, with_trace=False)

    def calibrations(cast, fleet, n):
        make.make_calibration(cast, fleet)

    def plans(cast, fleet, n):
        make.order_plan(cast, fleet)

    def replays(cast, fleet, n):
        _copy(fleet.plans.latest("id").replays.first(), finished_at=timezone.now())

    def gate_evaluations(cast, fleet, n):
        evaluations.evaluate_gate(
            acting_user=cast.ada, plan=fleet.plans.filter(state="approved", kind="cacheroute").get()
        )

    def approvals(cast, fleet, n):
        approval = fleet.plans.filter(state="approved", kind="cacheroute").get().approvals.first()
        _copy(approval, approver=make.make_user(f"approver-{n}", "approver"))

    def plan_waivers(cast, fleet, n):
        plan = fleet.plans.filter(kind="cacheroute").latest("id")
        asked = {"plan": plan, "check_name": f"check-{n}", "reason": "r", "requested_by": cast.ada}
        now = timezone.now()
        more = {"granted_by": cast.grace, "granted_at": now, "ended_by": cast.hopper, "ended_at": now}
        Waiver.objects.create(**asked, **more, expires_at=now + timezone.timedelta(days=1))

    def plan_comments(cast, fleet, n):
        plan = fleet.plans.filter(kind="cacheroute").latest("id")
        comments.comment_plan(acting_user=make.make_user(f"speaker-{n}", "viewer"), plan=plan, text=f"comment {n}")

    def rollouts(cast, fleet, n):
        row = _copy(fleet.rollouts.get(state="active"), state="superseded", ended_at=timezone.now())
        row.steps.create(number=1, weight=1.0, entered_by=cast.linus)

    def freezes(cast, fleet, n):
        Freeze.objects.create(fleet=make.make_fleet(cast, f"frozen-{n}"), frozen_by=cast.linus, reason="holidays")

    def telemetry(cast, fleet, n):
        now = timezone.now()
        TelemetryWindow.objects.create(
            fleet=fleet, plan=fleet.plans.first(), arm="incumbent", source=f"r{n}", table_version=1,
            started_at=now - timezone.timedelta(minutes=1), ended_at=now, figures={},
        )  # fmt: skip

    def drift(cast, fleet, n):
        DriftCheck.objects.create(plan=fleet.plans.first(), verdict="within")

    def api_tokens(cast, fleet, n):
        tokens.create_token(acting_user=cast.root, name=f"t{n}", scopes=["read"], fleet=fleet)

    def policies(cast, fleet, n):
        change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.5 + n)

    def break_glass(cast, fleet, n):
        fleet.break_glass_periods.create(
            opened_by=cast.linus, reason="now", expires_at=timezone.now(), closed_at=timezone.now(),
            reviewed_by=cast.grace, reviewed_at=timezone.now(),
        )  # fmt: skip

    def hooks(cast, fleet, n):
        return webhooks.create_webhook(acting_user=cast.root, name=f"hook {n}", url="https://example.com/", fleet=fleet)

    def deliveries(cast, fleet, n):
        hook = fleet.webhooks.first() or hooks(cast, fleet, n)[0]
        hook.deliveries.create(event=fleet.audit_events.exclude(pk__in=hook.deliveries.values("event"))[0])
        make.make_calibration(cast, fleet)

    def checkpoints(cast, fleet, n):
        AuditCheckpoint.objects.create(position=n, digest="", signature="", public_key="", document={})

    return {
        "policy-versions": policies, "break-glass": break_glass, "webhooks": hooks, "webhook-deliveries": deliveries,
        "audit-checkpoints": checkpoints,
        "fleets": fleets, "destinations": destinations, "workloads": workloads, "calibrations": calibrations,
        "plans": plans, "replays": replays, "gates": gate_evaluations, "approvals": approvals, "waivers": plan_waivers,
        "plans/{plan}/comments": plan_comments, "rollouts": rollouts,
        "freezes": freezes,
        "telemetry": telemetry, "drift-checks": drift, "jobs": plans, "audit-events": calibrations,
        "tokens": api_tokens,
    }  # fmt: skip


def _copy(row, **values):
    row.pk = None
    row._state.adding = True
    for name, value in values.items():
        setattr(row, name, value)
    row.save(force_insert=True)
    return row


@pytest.mark.parametrize(("noun", "expected"), QUERIES.items())
def test_a_list_takes_the_same_queries_for_3_rows_and_for_30(clients, cast, fleet, grown, noun, expected):
    if noun in ("replays", "gates", "approvals", "waivers", "plans/{plan}/comments"):
        plan = make.approved_plan(cast, fleet)
    grow, client = grown[noun], clients.root
    noun = noun.format(plan=plan.pk) if "{" in noun else noun

    def queries_at(rows):
        while len(client.get(f"/api/v1/{noun}/?page_size=500").json()["results"]) < rows:
            grow(cast, fleet, next(numbers))
        with CaptureQueriesContext(
            connection,
        ) as captured:
            results = client.get(f"/api/v1/{noun}/?page_size={rows}").json()["results"]
        assert len(results) == rows
        return len(captured)

    numbers = iter(range(100))
    assert (queries_at(3), queries_at(30)) == (expected, expected)


def _plan_of(cast, fleet, destinations, keys):
    """A built plan with a study, of so many destinations and keys, replanned from one like it."""
    have = fleet.destinations.count()
    for n in range(have, destinations):
        fleet.destinations.create(index=n, name=f"d{n}", url="http://127.0.0.1")
    rates = make.import_rates(cast, fleet, "key,rate\n" + "".join(f"k{n},{1 + 1 / (n + 1)}\n" for n in range(keys)))
    plan = make.built_plan(cast, fleet, workload=rates, incumbent=make.built_plan(cast, fleet, workload=rates))
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    run_job(job.pk)
    return plan


def _of_plan(suffix, **query):
    return lambda fleet, plan: (f"/api/v1/plans/{plan.pk}/{suffix}", query)


DETAILS = {
    "plan": (4, _of_plan("")),
    "key": (5, _of_plan("explain/", key="k1")),
    "destination": (5, _of_plan("explain/", destination="d1")),
    "sensitivity": (5, _of_plan("sensitivity/")),
    "destination row": (4, lambda fleet, plan: (f"/api/v1/destinations/{fleet.destinations.first().pk}/", {})),
    "fleet page": (20, lambda fleet, plan: (f"/fleets/{fleet.slug}/", {})),
    "plan page": (26, lambda fleet, plan: (f"/fleets/{fleet.slug}/plans/{plan.number}/", {})),
    "explain page": (19, lambda fleet, plan: (f"/fleets/{fleet.slug}/plans/{plan.number}/explain/", {"key": "k1"})),
    "destination on the explain page": (
        17, lambda fleet, plan: (f"/fleets/{fleet.slug}/plans/{plan.number}/explain/", {"destination": "d1"})
    ),
}  # fmt: skip


def test_details_and_pages_take_the_same_queries_for_a_small_plan_and_a_large_one(clients, cast):
    client, found = clients.ada, {}
    for size in ((4, 5), (40, 200)):
        fleet = make.make_fleet(cast, f"of-{size[0]}")
        plan = _plan_of(cast, fleet, *size)
        for name, (_, address_of) in DETAILS.items():
            address, query = address_of(fleet, plan)
            assert client.get(address, query).status_code == 200  # fills caches
            with CaptureQueriesContext(connection) as captured:
                assert client.get(address, query).status_code == 200
            found.setdefault(name, []).append(len(captured))
    assert found == {name: [expected, expected] for name, (expected, _) in DETAILS.items()}


def test_the_page_of_a_plan_reads_its_replays_once_however_many_there_are(clients, cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    client, address, counts = clients.ada, f"/fleets/{fleet.slug}/plans/{plan.number}/", []
    for more in (0, 12):
        for _ in range(more):
            _copy(plan.replays.first(), finished_at=timezone.now(), what_if=True)
        assert client.get(address).status_code == 200
        with CaptureQueriesContext(connection) as captured:
            assert client.get(address).status_code == 200
        sql = [query["sql"] for query in captured]
        counts.append((len(sql), sum('FROM "planner_replay"' in one for one in sql)))
    # The rows without verdicts, the verdict that is shown, and what the checklist would be judged on now.
    assert counts[0] == counts[1]
    assert counts[0][1] <= 4, sql
