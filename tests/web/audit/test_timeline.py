"""The timeline with its approvals, and the audit trail as a verifiable file."""

import csv
import datetime as dt
import hashlib
import io
import json

import pytest
from django.utils import timezone

from planner.models import AuditEvent
from planner.selectors.audit.timeline import live_at
from planner.services.access import roles
from planner.services.audit.events import record_event
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.starts import start_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db


def test_the_timeline_shows_the_live_plans_of_a_time_and_their_approvals(client, cast, fleet):
    before = timezone.now()
    plan = make.approved_plan(cast, fleet)
    start_rollout(acting_user=cast.linus, plan=plan)
    during = timezone.now()
    fall_back(acting_user=cast.hopper, fleet=fleet, reason="p99 is rising")
    then = live_at(fleet, during)
    assert [(arm.name, arm.plan.number, arm.entered_by) for arm in then.arms] == [
        ("incumbent", 0, "root"), ("canary", plan.number, "linus"),
    ]  # fmt: skip
    canary = then.arms[1]
    assert (canary.author, [a.approver.username for a in canary.approvals]) == ("ada", ["grace"])
    assert canary.shown_evidence == make.evaluation_of(plan).pk
    assert [arm.plan.number for arm in live_at(fleet, before).arms] == [0]
    now = live_at(fleet, timezone.now())
    assert [(arm.plan.number, arm.entered_by) for arm in now.arms] == [(0, "root")]
    assert (now.published_with.action, now.published_with.actor_name) == ("fleet.fell_back", "hopper")
    assert live_at(fleet, before - dt.timedelta(days=1)).arms == []
    client.force_login(cast.vera)
    page = client.get(
        f"/fleets/{fleet.slug}/timeline/", {"at": f"{during + dt.timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}"}
    )
    assert page.status_code == 200
    assert "p99 is rising" in page.content.decode()
    early = client.get(f"/fleets/{fleet.slug}/timeline/", {"at": f"{before - dt.timedelta(days=1):%Y-%m-%dT%H:%M:%S}"})
    assert early.context["events"] == []
    assert client.get(f"/fleets/{fleet.slug}/timeline/", {"at": "yesterday"}).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_json_lines_can_be_verified_without_the_console(client, cast, fleet):
    record_event("plan.commented", acting_user=cast.ada, fleet=fleet, subject=fleet, reason="žluť \U0001f600 “x”")
    client.force_login(cast.root)
    answer = client.get("/audit/export.jsonl")
    rows = [json.loads(line) for line in b"".join(answer.streaming_content).decode().splitlines()]
    assert len(rows) == AuditEvent.objects.count()
    previous = "0" * 64
    for row in rows:
        assert row["previous"] == previous
        previous = hashlib.sha256((row["previous"] + row["text"]).encode()).hexdigest()
        assert row["digest"] == previous
        assert json.loads(row["text"])[:2] == [row["position"], row["id"]]
    # That it was taken is written down, and is its last line.
    assert (rows[-1]["action"], rows[-1]["actor_name"]) == ("audit.exported", "root")


@pytest.mark.django_db(transaction=True)
def test_csv_keeps_the_filters_and_runs_no_formula(client, cast, fleet):
    other = make.make_fleet(cast, "other")
    for one in (fleet, other):
        record_event("plan.commented", acting_user=cast.ada, fleet=one, subject=one, reason="=HYPERLINK(1)")
    client.force_login(cast.root)
    answer = client.get(f"/fleets/{fleet.slug}/audit/export.csv", {"action": "plan.commented"})
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [(row["fleet"], row["reason"]) for row in rows] == [(fleet.slug, "'=HYPERLINK(1)")]
    assert client.get("/audit/export.csv", {"action": "no such"}).status_code == 400
    assert client.get("/audit/export.csv", {"actor_name": "ada"}).status_code == 400  # no such filter


@pytest.mark.django_db(transaction=True)
def test_an_export_has_only_the_visible_fleets(client, cast, fleet):
    other = make.make_fleet(cast, "other")
    user = make.make_user("solo")
    roles.grant_role(acting_user=cast.root, user=user, role="viewer", fleet=other)
    client.force_login(user)
    answer = client.get("/audit/export.jsonl")
    rows = [json.loads(line) for line in b"".join(answer.streaming_content).decode().splitlines()]
    assert {row["fleet"] for row in rows} == {"other"}
    assert client.get(f"/fleets/{fleet.slug}/audit/export.jsonl").status_code == 404
