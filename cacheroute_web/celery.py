"""The Celery application: `celery -A cacheroute_web worker`, `celery -A cacheroute_web beat`."""

from __future__ import annotations

import logging.config
import os
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_init, worker_ready
from django_structlog.celery.steps import DjangoStructLogInitStep

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "cacheroute_web.settings")

app = Celery("cacheroute")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.steps["worker"].add(DjangoStructLogInitStep)


@setup_logging.connect
def configure_logging(**_: Any) -> None:
    """Keep Django's logging in workers: Celery's own set-up stays out once this signal has a receiver."""
    from django.conf import settings

    logging.config.dictConfig(settings.LOGGING)


@worker_init.connect
def warm_up(sender: Any = None, **_: Any) -> None:
    """Compile (or load from the cache) the numba kernels before the pool forks.

    Once here instead of once in every pool process: the children inherit the compiled code, also those that
    replace a killed one, and Celery's 4 s limit on a child's start is never at stake.

    A worker of the queue `watch` alone does without: it judges at once, and loads the kernels when it first simulates.
    """
    if sender is not None and set(sender.app.amqp.queues.consume_from) == {"watch"}:
        return
    import numpy as np

    from planner.analysis import available_tokens
    from planner.routing import POLICIES, build_table, replan
    from planner.simulation import PROFILES, replay
    from planner.simulation.synthetic import synthetic_trace

    table = build_table(np.array([3.0, 2.0, 1.0]), destinations=2, q_cap=2.0, slots=4)
    replan(table, np.array([1.0, 2.0, 3.0]), q_cap=2.0, slots=4, max_imbalance_factor=1.0)
    build_table(
        np.array([3.0, 2.0, 1.0]),
        destinations=2,
        q_cap=2.0,
        slots=2,
        admission="density",
        prefix_tokens=[1.0, 2.0, 3.0],
        token_budget=3.0,
        tenants=[0, 0, 1],
        tenant_quota=[1, 1],
    )
    trace = synthetic_trace([3.0, 2.0, 1.0], requests=2, active_keys=3, load_rps=1.0, seed=1)
    available_tokens(*trace.blocks, trace.prompt_tokens, trace.block_tokens)
    profile = next(iter(PROFILES.values()))
    for policy in POLICIES.values():
        replay(trace, policy=policy, destinations=2, profile=profile, table=table if policy.needs_table else None)


@worker_ready.connect
def say_ready(**_: Any) -> None:
    """Tell the supervisor of `make run` that tasks are being taken."""
    ready_file = os.environ.get("CACHEROUTE_WORKER_READY_FILE")
    if ready_file:
        Path(ready_file).touch()
