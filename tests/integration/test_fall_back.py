"""Falling back with nothing running but the web process and PostgreSQL."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from cacheroute_web.embedded import Valkey
from planner.models import AuditEvent
from planner.services.access import tokens
from tests import factories as make
from tests.integration.console import Console
from tests.speed import lateness

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


def arms(console, fleet):
    status, table = console.ask("GET", f"/api/v1/fleets/{fleet.slug}/routing-table/")
    assert status == 200, table
    return table["version"], [(arm["name"], arm["plan"], arm["weight"]) for arm in table["arms"]]


def test_the_table_that_routers_read_changes_with_broker_and_workers_down(cast, fleet):
    make.active_plan(cast, fleet)
    make.canary(cast, fleet)
    scopes = ["read", "deploy", "route"]
    _, secret = tokens.create_token(acting_user=cast.linus, name="incident", scopes=scopes, fleet=fleet)
    with tempfile.TemporaryDirectory(prefix="cr-broker-") as folder:
        broker = Valkey(Path(folder) / "valkey", durable=False)
        broker.start()
        with Console(secret, BROKER_URL=broker.url) as console:
            broker.stop()  # and no worker was ever started
            version, before = arms(console, fleet)
            assert [name for name, _, _ in before] == ["incumbent", "canary"]
            began = time.monotonic()
            status, answer = console.ask("POST", f"/api/v1/fleets/{fleet.slug}/fall-back/", {"reason": "p99 up"})
            took = time.monotonic() - began
            # No second look, no waiting: the next read of a router has it.
            assert (status, answer.get("state"), answer.get("kind")) == (200, "active", "fallback"), answer
            assert arms(console, fleet) == (version + 1, [("incumbent", 0, 1.0)])
            assert took < 3 * lateness()
            again = console.ask("POST", f"/api/v1/fleets/{fleet.slug}/fall-back/", {"reason": "once more"})
            assert again[0] == 200
            assert arms(console, fleet)[0] == version + 1
    event = AuditEvent.objects.get(action="fleet.fell_back")
    assert (event.reason, event.token_prefix != "") == ("p99 up", True)
