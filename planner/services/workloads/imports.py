"""Import measured rates and traces."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import asdict
from typing import BinaryIO

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from planner import artifacts
from planner.analysis import rate_shape
from planner.errors import Conflict, Invalid
from planner.ingest import ImportedWorkload, read_workload
from planner.models import Fleet, Workload
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit.events import record_event

EARLIEST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)


def import_workload(
    *,
    acting_user: User,
    fleet: Fleet,
    file: BinaryIO,
    file_name: str,
    name: str = "",
    format: str = "auto",
    key_depth: int = 2,
    block_tokens: int = 512,
    strict: bool = False,
    measured_at: dt.datetime | None = None,
) -> Workload:
    """Read a file of a known format and store it as a workload of the fleet.

    Parameters
    ----------
    acting_user, fleet
        A user with the right to plan, and the fleet.
    file, file_name
        The file, and the name that messages and the workload show.
    name
        Name of the workload; by default from the file name, with a number if it is taken.
    format, strict
        As in `read_workload`.
    key_depth, block_tokens
        Blocks of a prompt that form its key, and tokens of a block; 1 to 1,000,000.
    measured_at
        Time of the measurement, with its time zone; by default now.

    Returns
    -------
    Workload
        The stored workload.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    ImportProblem
        If the file cannot be read; the message names file, row and field. Nothing is stored.
    Invalid
        For a value out of range; `field` names it.
    Conflict
        When the fleet has a workload of that name.
    StorageFull
        When the artifact folder cannot be written.
    """
    rights.require(acting_user, rights.PLAN, fleet)
    for field, value in (("key_depth", key_depth), ("block_tokens", block_tokens)):
        if not 1 <= value <= 1_000_000:
            raise Invalid("a whole number from 1 to 1,000,000", field=field)
    parsed = read_workload(
        file,
        name=file_name,
        format=format,
        key_depth=key_depth,
        block_tokens=block_tokens,
        strict=strict,
        max_keys=settings.IMPORT_MAX_KEYS,
        max_bytes=settings.IMPORT_MAX_BYTES,
    )
    return store_workload(acting_user=acting_user, fleet=fleet, parsed=parsed, name=name, measured_at=measured_at)


def store_workload(
    *,
    acting_user: User,
    fleet: Fleet,
    parsed: ImportedWorkload,
    name: str = "",
    measured_at: dt.datetime | None = None,
    simulated: bool = False,
) -> Workload:
    """Store what was read or generated, with the figures that searches and pages need.

    Parameters
    ----------
    acting_user, fleet
        A user with the right to plan, and the fleet.
    parsed
        Keys, rates (requests/s) and, if known, tenants, prefix lengths (tokens) and requests.
    name
        Name of the workload; by default from the source, with a number if it is taken.
    measured_at
        Time of the measurement, with its time zone, between the year 2000 and an hour from now; by default now.
    simulated
        True for a generated workload.

    Returns
    -------
    Workload
        The stored workload.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    Invalid
        When the time has no time zone or is out of range; `field` is ``measured_at``.
    Conflict
        When the fleet has a workload of that name.
    StorageFull
        When the artifact folder cannot be written.
    """
    rights.require(acting_user, rights.PLAN, fleet)
    name = name or _free_name(fleet, parsed.source_name)
    stated = measured_at is not None
    if measured_at is not None:
        if measured_at.tzinfo is None:
            raise Invalid("give the time zone, as in 2026-03-14T10:00:00+00:00", field="measured_at")
        if not EARLIEST <= measured_at <= timezone.now() + dt.timedelta(hours=1):
            raise Invalid("enter a time between the year 2000 and now", field="measured_at")
    with transaction.atomic():
        rates = artifacts.store_rates(parsed.key_names, parsed.rates, parsed.tenants, parsed.prefix_tokens)
        trace = artifacts.store_trace(parsed.trace) if parsed.trace is not None else None
        try:
            with transaction.atomic():
                workload = Workload.objects.create(
                    fleet=fleet,
                    name=name,
                    format=parsed.format,
                    source_name=parsed.source_name[-255:],
                    source_sha256=parsed.source_sha256,
                    source_bytes=parsed.source_bytes,
                    parameters={**parsed.parameters, "measured_at_stated": stated or simulated},
                    simulated=simulated,
                    measured_at=measured_at or timezone.now(),
                    window_s=parsed.window_s,
                    key_count=len(parsed.key_names),
                    request_count=parsed.requests,
                    total_rps=float(parsed.rates.sum()),
                    shape=rate_shape(parsed.rates).as_dict(),
                    notices=[asdict(notice) for notice in parsed.notices],
                    rates=rates,
                    trace=trace,
                    created_by=acting_user,
                )
        except IntegrityError as error:
            raise Conflict(f"this fleet already has a workload named {name!r}", code="exists", field="name") from error
        record_event(
            "workload.imported",
            acting_user=acting_user,
            fleet=fleet,
            subject=workload,
            after=_summary(workload),
            evidence_digest=rates.digest,
        )
    return workload


def _free_name(fleet: Fleet, source_name: str) -> str:
    base = re.sub(r"(\.(gz|csv|jsonl|json|parquet))+$", "", source_name.rsplit("/", 1)[-1])[:100] or "workload"
    taken = set(fleet.workloads.filter(name__startswith=base).values_list("name", flat=True))
    if base not in taken:
        return base
    return next(f"{base}-{n}" for n in range(2, len(taken) + 3) if f"{base}-{n}" not in taken)


def _summary(workload: Workload) -> JsonObject:
    return {
        "format": workload.format,
        "keys": workload.key_count,
        "requests": workload.request_count,
        "rps": workload.total_rps,
        "simulated": workload.simulated,
        "source_sha256": workload.source_sha256,
    }
