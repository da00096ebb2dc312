"""Governance at size: a million audit events, and reads by twenty clients at once on the embedded stack."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.bench_console import start_servers

EVENTS = 1_000_000
FLEETS = 20
TIMELINE_S = 0.3
VERIFY_S = 60.0
READ_S = 0.06
CLIENTS = 20
READS = 100  # of each client
ROUNDS = 20

# Most events of a fleet decide nothing about its traffic; one in seven does.
INSERT = """
INSERT INTO planner_auditevent (fleet_id, action, actor_name, token_prefix, request_id, subject_type, subject_id,
    subject_label, before, after, reason, evidence_digest, created_at)
SELECT (%s)[1 + n %% {fleets}], (ARRAY['replay.started', 'replay.finished', 'plan.built', 'workload.imported',
    'plan.ordered', 'gate.evaluated', 'rollout.advanced'])[1 + n %% 7], 'person-' || n %% 50, '', 'request-' || n,
    'plan', n %% 1000, 'Plan ' || n %% 1000, '{{"weight": 0.1, "state": "canary"}}'::jsonb,
    jsonb_build_object('weight', 0.5, 'state', 'canary', 'table_version', n), '', '',
    now() - (interval '365 days') * (1 - n / {events}.0)
FROM generate_series(1, {events}) AS n
"""
CHAIN = """
DO $$
DECLARE
    e planner_auditevent%ROWTYPE; place BIGINT; earlier TEXT; this TEXT;
BEGIN
    DELETE FROM planner_auditlink;
    place := 0;
    earlier := repeat('0', 64);
    FOR e IN SELECT * FROM planner_auditevent ORDER BY id LOOP
        place := place + 1;
        this := encode(sha256(convert_to(earlier || {text}, 'UTF8')), 'hex');
        INSERT INTO planner_auditlink (position, event_id, previous, digest) VALUES (place, e.id, earlier, this);
        earlier := this;
    END LOOP;
END $$;
"""


def emit(name: str, value: float, unit: str, baseline: float | None) -> None:
    """Print one figure beside the figure it is held against."""
    line = {"name": name, "value": round(value, 4), "unit": unit, "baseline": baseline}
    print(json.dumps(line | {"ratio": round(value / baseline, 4) if baseline else None}), flush=True)


def fill(fleet_ids: list[int]) -> None:
    """A million events, chained: by the same text and digests as the trigger, without a transaction for each."""
    from django.db import connection, transaction

    from planner.models.audit_chain import event_text

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        # The fleets are a year and a day old then: time goes forward in the chain.
        cursor.execute("UPDATE planner_auditevent SET created_at = now() - interval '366 days'")
        cursor.execute(INSERT.format(fleets=FLEETS, events=EVENTS), [fleet_ids])
        cursor.execute(CHAIN.replace("{text}", event_text("e", "place")))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE planner_auditevent")
        cursor.execute("VACUUM ANALYZE planner_auditlink")


def slowest_of(ask: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Seconds of the slowest of some calls after a first one."""
    ask()
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - started)
    return max(taken)


def audit_at_size() -> None:
    """Pages and verification over a million events."""
    from django.contrib.auth.models import User
    from django.test import Client
    from django.utils import timezone

    from planner.models import AuditLink
    from planner.services.audit import chain
    from planner.services.fleets import fleets

    root = User.objects.get(username="bench")
    made = [
        fleets.create_fleet(
            acting_user=root,
            slug=f"fleet-{n}",
            name=f"Fleet {n}",
            destinations=[("d0", "http://127.0.0.1:9100")],
            engine_profile="llama-3.3-70b-fp8-tp2-h100",
        )
        for n in range(FLEETS)
    ]
    started = time.perf_counter()
    fill([fleet.pk for fleet in made])
    print(f"{EVENTS:,} events stored in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    client = Client()
    client.force_login(root)
    then = f"{timezone.now() - timezone.timedelta(days=200):%Y-%m-%dT%H:%M}"
    deep = AuditLink.objects.get(position=EVENTS // 2).event_id
    pages = {
        "timeline of a fleet": ("/fleets/fleet-3/timeline/", {}),
        "timeline at a moment": ("/fleets/fleet-3/timeline/", {"at": then}),
        "timeline, far back": ("/fleets/fleet-3/timeline/", {"before": deep}),
        "audit trail": ("/audit/", {}),
        "audit trail, of a person": ("/audit/", {"actor": "PERSON-7"}),
        "audit trail, of a person who never was": ("/audit/", {"actor": "nobody"}),
        "audit trail, an action that is rare": ("/audit/", {"action": "fleet.created"}),
        "audit trail, one old week": ("/audit/", {"since": f"{then[:10]}", "until": f"{then[:10]}"}),
        "audit trail of a fleet, an old day": ("/fleets/fleet-3/audit/", {"since": then[:10], "until": then[:10]}),
    }
    for name, (path, query) in pages.items():

        def ask(path: str = path, query: dict[str, Any] = query) -> None:
            assert client.get(path, query).status_code == 200

        emit(f"{name}: slowest of {ROUNDS}, {EVENTS:,} events", slowest_of(ask), "s", TIMELINE_S)
    started = time.perf_counter()
    verdict = chain.verify()
    took = time.perf_counter() - started
    assert verdict.intact, verdict.faults
    assert verdict.links > EVENTS, verdict.links
    emit(f"verify_audit, {verdict.links:,} events", took, "s", VERIFY_S)


def reads(port: int, secret: str, slug: str) -> None:
    """Twenty clients, each asking again as soon as it was answered; and each asking twice a second."""
    lists = ("fleets", "destinations", "plans", "approvals", "rollouts", "gates", "jobs", "audit-events", "telemetry")
    paths = [
        *(f"/api/v1/{noun}/" for noun in lists),
        f"/api/v1/fleets/{slug}/",
        f"/api/v1/fleets/{slug}/routing-table/",
    ]
    for label, pause_s in (("as fast as they are answered", 0.0), ("each twice a second", 0.5)):
        taken: list[float] = []

        def ask(seed: int, pause_s: float = pause_s, taken: list[float] = taken) -> None:
            chance = random.Random(seed)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            time.sleep(chance.random() * pause_s)
            for _ in range(READS if not pause_s else 20):
                started = time.perf_counter()
                connection.request("GET", chance.choice(paths), headers={"Authorization": f"Token {secret}"})
                answer = connection.getresponse()
                answer.read()
                took = time.perf_counter() - started
                assert answer.status == 200, answer.status
                taken.append(took)
                if pause_s:
                    time.sleep(max(0.0, pause_s - took))
            connection.close()

        clients = [threading.Thread(target=ask, args=(seed,)) for seed in range(CLIENTS)]
        began = time.perf_counter()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        span = time.perf_counter() - began
        taken.sort()
        emit(f"API reads, {CLIENTS} clients, {label}: p95", taken[int(0.95 * len(taken))], "s", READ_S)
        emit(f"API reads, {CLIENTS} clients, {label}: throughput", len(taken) / span, "1/s", None)


def main() -> None:
    """Fill, ask, verify; then the same stack's web server under twenty clients."""
    with tempfile.TemporaryDirectory(prefix="cr-gov-") as folder, ExitStack() as stack:
        home = Path(folder)
        start_servers(stack, home)
        import django

        django.setup()
        from django.contrib.auth.models import User
        from django.core.management import call_command
        from django.db import connections

        call_command("migrate", verbosity=0)
        root = User.objects.create_superuser("bench")
        audit_at_size()
        from planner.services.access import tokens

        _, secret = tokens.create_token(acting_user=root, name="bench", scopes=["read", "route"])
        connections.close_all()
        from cacheroute_web.run.supervisor import WEB

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        program, *arguments = WEB.split()
        command = [sys.executable, "-m", program, *arguments, "--bind", f"127.0.0.1:{port}"]
        with (home / "web.log").open("ab") as log:
            web = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ.copy())
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    probe = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                    probe.request("GET", "/healthz/")
                    if probe.getresponse().status == 200:
                        break
                except OSError:
                    pass
                assert time.monotonic() < deadline, (home / "web.log").read_text()[-2000:]
                time.sleep(0.2)
            reads(port, secret, "fleet-3")
        finally:
            web.terminate()
            web.wait(20)


if __name__ == "__main__":
    main()
