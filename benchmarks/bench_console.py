"""The console as a person meets it: from the click on "build" to the finished job, through real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

KEYS = 128_824
DESTINATIONS = 30
SLOTS = 60
ROUNDS = 5
CLICK_SECONDS = 3.0
BUILD_SECONDS = 0.1


def emit(name: str, seconds: float, baseline: float) -> None:
    """Print one figure beside the figure it is held against."""
    line = {"name": name, "value": round(seconds, 4), "unit": "s", "baseline": baseline}
    print(json.dumps(line | {"ratio": round(seconds / baseline, 4)}), flush=True)


def start_servers(stack: ExitStack, home: Path) -> None:
    """Embedded PostgreSQL and Valkey of this run alone, durable as in `make run`, and Django's settings on them."""
    from cacheroute_web.embedded import Postgres, Valkey

    postgres, valkey = Postgres(home / "postgres"), Valkey(home / "valkey")
    for server in (postgres, valkey):
        server.start()
        stack.callback(server.stop)
    os.environ.update(
        CACHEROUTE_ENV="test",
        CACHEROUTE_SECRET_KEY="only for this benchmark",
        CACHEROUTE_HOME=str(home),
        DATABASE_URL=postgres.url,
        BROKER_URL=valkey.url,
        DJANGO_SETTINGS_MODULE="cacheroute_web.settings",
    )


def store_inputs() -> tuple[str, dict[str, Any]]:
    """A fleet, 128,824 keys of the source's rate shape and a calibration; a token and the plan's order."""
    from django.contrib.auth.models import User

    from planner.ingest import ImportedWorkload
    from planner.services.access import tokens
    from planner.services.calibrations import calibrations
    from planner.services.fleets import fleets
    from planner.services.workloads import imports
    from planner.simulation.synthetic import source_rate_shape, synthetic_key_names

    user = User.objects.create_superuser("bench")
    fleet = fleets.create_fleet(
        acting_user=user,
        slug="bench",
        name="Bench",
        destinations=[(f"d{i:02d}", f"http://127.0.0.1:{9100 + i}") for i in range(DESTINATIONS)],
        engine_profile="llama-3.3-70b-fp8-tp2-h100",
    )
    rates = source_rate_shape(KEYS, total_rps=100.0)
    parsed = ImportedWorkload(
        format="generated",
        key_names=synthetic_key_names(KEYS),
        rates=rates,
        tenants=None,
        trace=None,
        window_s=1.0,
        requests=0,
        rows=KEYS,
        notices=[],
        parameters={},
        source_name="generated",
        source_sha256="0" * 64,
        source_bytes=1,
    )
    workload = imports.store_workload(acting_user=user, fleet=fleet, parsed=parsed, name="bench")
    calibration = calibrations.record_calibration(
        acting_user=user, fleet=fleet, q_cap=6.0, slots_measured=SLOTS, margin=1.0
    )
    _, secret = tokens.create_token(acting_user=user, name="bench", scopes=["read", "plan"])
    return secret, {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk}


def start_processes(stack: ExitStack, home: Path) -> str:
    """Web and worker of `make run`; the address of the API."""
    from cacheroute_web.embedded.common import guarded, stop_process
    from cacheroute_web.run.supervisor import WEB, WORKER

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ready = home / "ready"
    env = {**os.environ, "CACHEROUTE_WORKER_READY_FILE": str(ready)}
    with (home / "processes.log").open("ab") as log:
        for command in (f"{WEB} --bind 127.0.0.1:{port}", WORKER):
            process = guarded([sys.executable, "-m", *command.split()], stdout=log, env=env)
            stack.callback(stop_process, process, (signal.SIGTERM, 10))
    deadline = time.monotonic() + 120
    while not ready.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no worker: {(home / 'processes.log').read_text()[-2000:]}")
        time.sleep(0.1)
    return f"http://127.0.0.1:{port}/api/v1"


def ask(url: str, secret: str, body: dict[str, Any] | None = None) -> Any:
    """GET, or POST when there is a body; the JSON of the answer."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Authorization": f"Token {secret}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.load(answer)


def click_to_finished(api: str, secret: str, order: dict[str, Any]) -> tuple[float, float]:
    """Seconds from the POST to the job's end as a poll every 20 ms sees it, and of them the build's."""
    started = time.perf_counter()
    filed = ask(f"{api}/plans/", secret, order)
    while (job := ask(f"{api}/jobs/{filed['job']}/", secret))["state"] in ("queued", "running"):
        time.sleep(0.02)
    seconds = time.perf_counter() - started
    if job["state"] != "succeeded":
        raise RuntimeError(f"the build {job['state']}: {job['error']}")
    return seconds, ask(f"{api}/plans/{filed['plan']}/", secret)["summary"]["build_ms"] / 1e3


def main() -> None:
    """Print the first click of fresh processes, and the median of those after it."""
    home = Path(tempfile.mkdtemp(prefix="cr-bench-console-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        start_servers(stack, home)
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connections

        call_command("migrate", verbosity=0)
        secret, order = store_inputs()
        stack.callback(connections.close_all)
        api = start_processes(stack, home)
        ask(f"{api}/fleets/", secret)  # the web process has answered before, as after signing in
        first, first_build = click_to_finished(api, secret, order)
        rounds = [click_to_finished(api, secret, order) for _ in range(ROUNDS)]
        emit("console.plan_click_to_finished_first", first, CLICK_SECONDS)
        emit("console.plan_click_to_finished", statistics.median(r[0] for r in rounds), CLICK_SECONDS)
        emit("console.plan_build_first", first_build, BUILD_SECONDS)
        emit("console.plan_build", statistics.median(r[1] for r in rounds), BUILD_SECONDS)


if __name__ == "__main__":
    main()
