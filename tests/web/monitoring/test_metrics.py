"""`/metrics`: who may read it, what it says, and how much it asks of the database."""

from __future__ import annotations

import pytest
from celery import current_app
from django.conf import settings as django_settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from planner.services.monitoring import monitor
from planner.web.monitoring import metrics
from tests import factories as make

pytestmark = pytest.mark.django_db


def read(**options) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by its name and sorted labels."""
    answer = Client().get("/metrics", **options)
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    assert "no-store" in answer["Cache-Control"]
    families = text_string_to_metric_families(answer.content.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_jobs_tables_and_the_monitor_are_counted(cast, fleet):
    make.order_plan(cast, fleet)
    assert monitor.watch_fleet(fleet, now=timezone.now()) is not None
    fleet.refresh_from_db()
    found = read()
    assert found["cacheroute_database_up", ()] == 1
    assert found["cacheroute_jobs", (("kind", "build_plan"), ("state", "queued"))] == 1
    assert found["cacheroute_jobs", (("kind", "replay"), ("state", "errored"))] == 0
    assert 0 <= found["cacheroute_oldest_queued_job_age_seconds", ()] < 60
    of_fleet = (("fleet", fleet.slug),)
    assert found["cacheroute_table_version", of_fleet] == fleet.table_version
    issued = fleet.table_issued_at.timestamp()
    assert found["cacheroute_table_issued_timestamp_seconds", of_fleet] == pytest.approx(issued)
    assert 0 <= found["cacheroute_monitor_age_seconds", of_fleet] < 60


def test_a_fleet_that_was_never_checked_has_no_age(fleet):
    found = read()
    assert ("cacheroute_monitor_age_seconds", (("fleet", fleet.slug),)) not in found
    assert ("cacheroute_table_version", (("fleet", fleet.slug),)) in found


def test_requests_are_counted_by_view_and_status(sign_in, cast, fleet):
    labels = (("method", "GET"), ("status", "200"), ("view", "fleet"))
    name = "django_http_responses_total_by_status_view_method_total"
    before = read().get((name, labels), 0)
    sign_in(cast.vera).get(reverse("fleet", args=[fleet.slug]))
    assert read()[name, labels] == before + 1


def test_the_depth_of_each_queue_is_read_from_the_broker(fleet):
    queue = "celery"
    before = read()["cacheroute_queue_messages", (("queue", queue),)]
    with current_app.connection_for_write() as connection:
        producer = connection.Producer()
        producer.publish({}, routing_key=queue, exchange="")
        try:
            found = read()
        finally:
            taken = connection.default_channel.basic_get(queue)
            connection.default_channel.basic_ack(taken.delivery_tag)
    assert found["cacheroute_queue_messages", (("queue", queue),)] == before + 1
    assert found["cacheroute_broker_up", ()] == 1
    assert ("cacheroute_queue_messages", (("queue", "watch"),)) in found


def test_a_broker_that_is_down_hides_no_other_metric(fleet, monkeypatch):
    monkeypatch.setattr(current_app.conf, "broker_url", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(current_app.conf, "broker_read_url", "redis://127.0.0.1:1/0")
    found = read()
    assert found["cacheroute_broker_up", ()] == 0
    assert found["cacheroute_database_up", ()] == 1
    assert not any(name == "cacheroute_queue_messages" for name, _ in found)


def test_the_number_of_queries_is_the_same_for_any_number_of_rows(cast, fleet, django_assert_num_queries):
    with django_assert_num_queries(5):  # three, and the two of the savepoint
        list(metrics.ConsoleCollector().collect())
    for n in range(3):
        make.make_fleet(cast, f"more-{n}")
    make.order_plan(cast, fleet)
    with django_assert_num_queries(5):
        list(metrics.ConsoleCollector().collect())


def test_without_a_token_only_the_networks_are_answered(fleet, settings):
    assert Client().get("/metrics", REMOTE_ADDR="::1").status_code == 200
    for address in ("10.1.2.3", "", "unix:"):
        refused = Client().get("/metrics", REMOTE_ADDR=address)
        assert refused.status_code == 403
        assert b"cacheroute_" not in refused.content
    settings.METRICS_NETWORKS = ["10.0.0.0/8"]
    assert Client().get("/metrics", REMOTE_ADDR="10.1.2.3").status_code == 200
    assert Client().get("/metrics").status_code == 403
    settings.METRICS_NETWORKS = ["10.1.2.3/8"]  # an address with the length of its network
    assert Client().get("/metrics", REMOTE_ADDR="10.9.9.9").status_code == 200


def test_a_proxy_on_this_machine_opens_metrics_to_nobody(fleet, settings):
    for header in ("X-Forwarded-For", "Forwarded"):
        assert Client().get("/metrics", headers={header: "127.0.0.1"}).status_code == 403
    settings.TRUSTED_PROXIES = ["127.0.0.0/8"]
    assert Client().get("/metrics", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 403


def test_with_a_token_nothing_else_opens_it(fleet, settings, sign_in, cast):
    settings.METRICS_TOKEN = "a-long-and-random-token"
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer é"}, {"Authorization": "Token x"},
                    {"Authorization": "a-long-and-random-token"}, {"Authorization": "Token a-long-and-random-token"},
                    {"Authorization": "Bearer a-long-and-random-token2"}):  # fmt: skip
        refused = Client().get("/metrics", headers=headers)
        assert (refused.status_code, refused["WWW-Authenticate"]) == (401, "Bearer")
    assert sign_in(cast.root).get("/metrics").status_code == 401
    good = {"Authorization": "Bearer a-long-and-random-token"}
    assert Client().get("/metrics", headers=good, REMOTE_ADDR="10.1.2.3").status_code == 200
    lower = {"Authorization": "bearer a-long-and-random-token"}  # names of schemes have no case (RFC 9110, 11.1)
    assert Client().get("/metrics", headers=lower).status_code == 200
    assert Client().post("/metrics", headers=good).status_code == 405


def test_plain_http_is_answered_where_pages_redirect_to_https(fleet, settings):
    settings.SECURE_SSL_REDIRECT = True
    assert Client().get("/metrics").status_code == 200
    assert Client().get("/").status_code == 301
    assert django_settings.SECURE_REDIRECT_EXEMPT == [r"^metrics$"]
