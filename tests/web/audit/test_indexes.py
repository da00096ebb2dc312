"""No page, list or check of the audit trail scans the whole table, according to the query plans of PostgreSQL."""

import json
import re

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from planner.selectors.audit.page import newest_events, plan_timeline
from planner.selectors.monitoring.cool_down import cooling_down_until
from planner.services.webhooks import delivery
from tests import factories as make

pytestmark = pytest.mark.django_db
EVENTS = 30_000
# Tables that grow for as long as the console runs.
GROWING = ("planner_auditevent", "planner_auditlink")


@pytest.fixture
def grown(cast, fleet):
    """Thirty thousand events of three fleets over a year, most of which decide nothing."""
    fleets = [fleet, make.make_fleet(cast, "beta"), make.make_fleet(cast, "gamma")]
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            f"""
            INSERT INTO planner_auditevent (fleet_id, action, actor_name, token_prefix, request_id, subject_type,
                subject_id, subject_label, before, after, reason, evidence_digest, created_at)
            SELECT (%s)[1 + n %% 3], (ARRAY['replay.started', 'replay.finished', 'plan.built', 'workload.imported',
                'rollout.advanced'])[1 + n %% 5], 'person-' || n %% 50, '', '', 'plan', n %% 500, 'Plan', '{{}}',
                '{{}}', '', '', now() - (interval '1 year') * (1 - n / {EVENTS}.0)
            FROM generate_series(1, {EVENTS}) AS n
            """,
            [[one.pk for one in fleets]],
        )
        cursor.execute(
            "INSERT INTO planner_auditlink (position, event_id, previous, digest) SELECT 1000 + row_number() OVER "
            "(ORDER BY id), id, '', '' FROM planner_auditevent e WHERE NOT EXISTS "
            "(SELECT FROM planner_auditlink l WHERE l.event_id = e.id)"
        )
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")
        cursor.execute("ANALYZE planner_auditevent")
        cursor.execute("ANALYZE planner_auditlink")
    return fleet


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def whole_reads(queries):
    """(table, query) of every sequential scan over a table that grows."""
    found = []
    for sql in queries:
        if not any(table in sql for table in GROWING) or not re.match(r"\s*SELECT", sql):
            continue
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
            (answer,) = cursor.fetchone()
        (top,) = answer if isinstance(answer, list) else json.loads(answer)
        for node in nodes(top["Plan"]):
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] in GROWING:
                found.append((node["Relation Name"], sql))
    return found


DAY = f"{timezone.now() - timezone.timedelta(days=180):%Y-%m-%d}"
PAGES = {
    "timeline": ("/fleets/alpha/timeline/", {}),
    "timeline at a moment": ("/fleets/alpha/timeline/", {"at": f"{DAY}T10:00"}),
    "timeline, older": ("/fleets/alpha/timeline/", {"before": 9_000}),
    "trail": ("/audit/", {}),
    "trail, older": ("/audit/", {"before": 9_000}),
    "trail of a fleet": ("/fleets/alpha/audit/", {}),
    "trail of a person": ("/audit/", {"actor": "person-7"}),
    "trail of nobody": ("/audit/", {"actor": "nobody"}),
    "trail of an action": ("/audit/", {"action": "fleet.created"}),
    "trail of a day": ("/audit/", {"since": DAY, "until": DAY}),
    "trail of a fleet on a day": ("/fleets/alpha/audit/", {"since": DAY, "until": DAY}),
    "trail of a fleet and an action": ("/fleets/alpha/audit/", {"action": "fleet.fell_back"}),
    "fleet page": ("/fleets/alpha/", {}),
    "home": ("/", {}),
    "inbox": ("/inbox/", {}),
    "API list": ("/api/v1/audit-events/", {}),
    "API, a fleet": ("/api/v1/audit-events/", {"fleet__slug": "alpha"}),
    "API, an action": ("/api/v1/audit-events/", {"action": "rollout.advanced"}),
    "API, a subject": ("/api/v1/audit-events/", {"subject_type": "plan", "subject_id": 7}),
    "API, a person": ("/api/v1/audit-events/", {"actor_name": "person-7"}),
    "API, a time": ("/api/v1/audit-events/", {"created_at__gte": f"{DAY}T00:00Z", "created_at__lt": f"{DAY}T12:00Z"}),
}  # fmt: skip


def test_a_query_without_an_index_would_be_seen(grown):
    sql = "SELECT id FROM planner_auditevent WHERE request_id = 'x'"
    assert whole_reads([sql]) == [("planner_auditevent", sql)]


def test_no_page_reads_the_whole_trail(client, cast, grown):
    client.force_login(cast.root)
    found = {}
    for name, (path, query) in PAGES.items():
        with CaptureQueriesContext(connection) as captured:
            assert client.get(path, query).status_code == 200, name
        if whole := whole_reads([query["sql"] for query in captured]):
            found[name] = whole
    assert found == {}


def test_no_service_reads_the_whole_trail(cast, grown):
    plan = make.built_plan(cast, grown)
    with CaptureQueriesContext(connection) as captured:
        cooling_down_until(grown)
        newest_events(grown, 10)
        plan_timeline(plan, [])
        delivery.plan_deliveries()
    assert whole_reads([query["sql"] for query in captured]) == []
