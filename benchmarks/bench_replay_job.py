"""A whole replay as a person waits for it: from the POST to the verdict, through Celery with two workers.

6 policies x 8 loads x 5 seeds x 20,000 requests on 30 destinations, 4k-token prefixes in 512-token blocks.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.bench_console import ask, click_to_finished, start_processes, start_servers, store_inputs
from benchmarks.bench_planner import emit

SIX = ("flat-lb", "sticky", "chwbl", "dualmap", "preble", "cacheroute")
LOADS = [20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0, 160.0]
SEEDS = [1, 2, 3, 4, 5]
REQUESTS = 20_000
WORKERS = 2  # of `make run`
GOAL_S = 60.0


def store_trace(fleet_slug: str) -> int:
    """A workload of 20,000 requests to 512 keys; its id."""
    from django.contrib.auth.models import User

    from planner.ingest import ImportedWorkload
    from planner.models import Fleet
    from planner.services.workloads import imports
    from planner.simulation.synthetic import Lengths, source_rate_shape, synthetic_key_names, synthetic_trace

    keys = 2_000
    rates = source_rate_shape(keys, total_rps=100.0)
    trace = synthetic_trace(
        rates,
        requests=REQUESTS,
        active_keys=512,
        load_rps=100.0,
        prefix_tokens=4_096.0,
        suffix_tokens=300.0,
        output_tokens=Lengths(128, 0.3, 16, 256),
        seed=1,
    )
    parsed = ImportedWorkload(
        format="generated",
        key_names=synthetic_key_names(keys),
        rates=rates,
        tenants=None,
        trace=trace,
        window_s=float(trace.arrival_s[-1]),
        requests=len(trace),
        rows=keys,
        notices=[],
        parameters={},
        source_name="generated",
        source_sha256="1" * 64,
        source_bytes=1,
    )
    user, fleet = User.objects.get(username="bench"), Fleet.objects.get(slug=fleet_slug)
    return imports.store_workload(acting_user=user, fleet=fleet, parsed=parsed, name="bench trace").pk


def click_to_verdict(api: str, secret: str, order: dict[str, Any]) -> tuple[float, int]:
    """Seconds from the POST to the end of the replay's job as polls see it; the replay's id."""
    started = time.perf_counter()
    filed = ask(f"{api}/replays/", secret, order)
    while (job := ask(f"{api}/jobs/{filed['job']}/", secret))["state"] in ("queued", "running"):
        time.sleep(0.25)  # the page asks every second; more would take the workers' cores
    seconds = time.perf_counter() - started
    if job["state"] != "succeeded":
        raise RuntimeError(f"the replay {job['state']}: {job['error']}")
    return seconds, filed["replay"]


def busy_seconds(replay: int) -> float:
    """What its cells took, added up."""
    from django.db.models import F, Sum

    from planner.models import ReplayCell

    cells = ReplayCell.objects.filter(replay=replay)
    return float(cells.aggregate(took=Sum(F("finished_at") - F("started_at")))["took"].total_seconds())


def main() -> None:
    """Print the time to the verdict, and what of it the workers computed."""
    home = Path(tempfile.mkdtemp(prefix="cr-bench-replay-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        start_servers(stack, home)
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connections

        call_command("migrate", verbosity=0)
        secret, plan_order = store_inputs()
        plan_order["workload"] = store_trace(plan_order["fleet"])
        stack.callback(connections.close_all)
        api = start_processes(stack, home)
        click_to_finished(api, secret, plan_order)
        plan = ask(f"{api}/plans/", secret)["results"][0]["id"]
        order = {"plan": plan, "policies": SIX, "loads_rps": LOADS, "seeds": SEEDS, "requests": REQUESTS}
        seconds, replay = click_to_verdict(api, secret, order)
        cells = len(SIX) * len(LOADS) * len(SEEDS)
        note = f"{len(SIX)} policies x {len(LOADS)} loads x {len(SEEDS)} seeds x {REQUESTS:,} requests"
        emit("replay_job.click_to_verdict", round(seconds, 2), "s", GOAL_S, note)
        emit("replay_job.speed", round(cells * REQUESTS / seconds), "requests/s", 240 * REQUESTS / GOAL_S)
        emit("replay_job.computing", round(busy_seconds(replay) / (WORKERS * seconds), 3), "share of the workers", 1.0)


if __name__ == "__main__":
    main()
