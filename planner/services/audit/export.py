"""Export the audit trail as a file: CSV for people, JSON lines that anybody can verify without this console.

A line of the JSON form holds ``text``, the bytes that were hashed: sha256(``previous`` + ``text``) is ``digest``, and
the ``previous`` of a line is the ``digest`` of the line before (where nothing was filtered out between them).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models import F, QuerySet
from django.db.models.expressions import RawSQL

from planner.models import AuditEvent, Fleet
from planner.models.audit_chain import event_text
from planner.services.audit.events import record_event

FORMATS = ("csv", "jsonl")
COLUMNS = (
    "id", "created_at", "fleet", "action", "actor_name", "token_number", "token_prefix", "request_id", "ip_address",
    "subject_type", "subject_id", "subject_label", "before", "after", "reason", "evidence_digest",
)  # fmt: skip
CHAIN = ("position", "previous", "digest")
AT_A_TIME = 2_000
# A spreadsheet takes cells that begin so for formulas.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def lines(events: QuerySet[AuditEvent], form: str) -> Iterator[str]:
    """Return the file line by line, oldest event first. A server-side cursor keeps memory use constant."""
    # The name of the table in the query, which is Django's own for the model it begins with.
    sql = event_text("planner_auditevent", "planner_auditlink.position")
    text = RawSQL(sql, [], output_field=models.TextField())  # noqa: S611 - constants of models.audit_chain only
    rows = (
        events.order_by("link__position")
        .filter(link__isnull=False)
        .annotate(position=F("link__position"), previous=F("link__previous"), digest=F("link__digest"))
        .annotate(fleet_slug=F("fleet__slug"), text=text)
        .defer(None)
    )
    with transaction.atomic():
        if form == "csv":
            yield _csv([*CHAIN, *COLUMNS])
        for row in rows.iterator(chunk_size=AT_A_TIME):
            values = {name: getattr(row, name) for name in COLUMNS if name != "fleet"} | {"fleet": row.fleet_slug}
            chain = {name: getattr(row, name) for name in CHAIN}
            if form == "csv":
                yield _csv([_cell(value) for value in (*chain.values(), *(values[name] for name in COLUMNS))])
            else:
                whole = {**chain, **{name: values[name] for name in COLUMNS}, "text": row.text}
                yield json.dumps(whole, default=str, ensure_ascii=False) + "\n"


def _csv(cells: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value


def record_export(*, acting_user: User, fleet: Fleet | None, form: str, filters: dict[str, str]) -> None:
    """Record in the audit trail that the user exported it.

    Parameters
    ----------
    acting_user
        The user who exports.
    fleet
        The fleet whose events are exported; None for the export of the page of all fleets.
    form
        One of `FORMATS`: ``csv`` or ``jsonl``.
    filters
        Names and values of the filters of the export; they become part of the audit event.
    """
    record_event(
        "audit.exported",
        acting_user=acting_user,
        fleet=fleet,
        subject=fleet or acting_user,
        after={"format": form, **filters},
    )
