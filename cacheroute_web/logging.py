"""Logging of every process: structlog and the standard library through one formatter, to stderr."""

from __future__ import annotations

from typing import Any

import structlog
from structlog.types import Processor

__all__ = ["logging_config"]

SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]


def logging_config(environment: str, level: str = "INFO") -> dict[str, Any]:
    """Configure structlog and return the matching ``LOGGING`` dictionary.

    Parameters
    ----------
    environment : str
        ``production`` and ``run`` write one JSON object a line (what a log collector, or ``jq``, reads);
        anything else writes lines for people. Request and user ids come from django-structlog.
    level : str
        Threshold of the root logger.
    """
    as_json = environment in ("production", "run")
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    render: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        render += [
            structlog.processors.ExceptionRenderer(
                # Never the locals of a frame: they hold passwords and tokens.
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(),
        ]
    else:
        render.append(structlog.dev.ConsoleRenderer(colors=False))
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processors": render,
                "foreign_pre_chain": SHARED,
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Replaces Django's own handlers, which would write the same lines again.
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            "pyarrow": {"level": "WARNING"},
            "numba": {"level": "WARNING"},
            # The sweep runs every 5 s; lines of "received" and "succeeded" would be all that a log holds.
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.beat": {"level": "WARNING"},
            "django_structlog.celery": {"level": "WARNING"},
        },
    }
