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

    Once here instead of once in every pool process: the children inherit the compiled code, also children that
    replace a killed one, and Celery's 4 s limit on a child's start is never at stake.

    A worker of the queue `watch` alone does without: it judges at once, and loads the kernels when it first simulates.
    """
    if sender is not None and set(sender.app.amqp.queues.consume_from) == {"watch"}:
        return
    # Not at the top: every process imports this module, and only workers of other queues need the numerics.
    from planner.precompile import compile_kernels

    compile_kernels()


@worker_ready.connect
def say_ready(**_: Any) -> None:
    """Tell the supervisor of `make run` that tasks are being taken."""
    ready_file = os.environ.get("CACHEROUTE_WORKER_READY_FILE")
    if ready_file:
        Path(ready_file).touch()
