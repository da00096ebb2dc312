"""Telemetry windows: each window of each source is stored once, however often it is sent.

1. A window that exists with the same content is a repeat: nothing changes, and the answer says so.
2. The same window with other content is refused (409, `revised`): judgements may rest on it.
3. A window that overlaps another of its source is refused (409, `overlaps`): its requests would count twice.
4. Windows arrive in any order. A window of a time that the monitor has judged is marked late and judged by the next
   check. A window is stored before or after a check, never during one.
5. A source name belongs to the account that first reported under it on the fleet (409, `source-taken`).
6. Measured and simulated windows are stored together and never judged together.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from planner.context import current_origin
from planner.digests import digest
from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import DriftCheck, Fleet, TelemetrySource, TelemetryWindow
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.locking import JUDGING_SPACE, TELEMETRY_SPACE, wait_in_transaction
from planner.services.telemetry.payload import KEPT_DAYS, Window, read

# Source name of the console's own simulator. Nobody else may use it: its windows are always simulated.
SIMULATOR = "simulator"
ARMS = ("incumbent", "canary")


@dataclass(frozen=True)
class Recorded:
    """Result of a report."""

    windows: tuple[TelemetryWindow, ...]
    duplicate: bool
    late: bool
    dropped_keys: int = 0

    def as_dict(self) -> JsonObject:
        """Return the answer of the endpoint."""
        ids = [window.pk for window in self.windows]
        return {
            "windows": ids,
            "recorded": 0 if self.duplicate else len(ids),
            "duplicates": len(ids) if self.duplicate else 0,
            "late": self.late,
            "dropped_keys": self.dropped_keys,
        }


def record_windows(*, acting_user: User | None, fleet: Fleet, payload: Mapping[str, Any]) -> Recorded:
    """Store a window of one source: a row for each reported arm of the table.

    Telemetry advances canaries and causes fallbacks, so reporting by session or token needs the right to operate the
    fleet, by role and at this moment. `acting_user` None is the simulator of the console.

    Parameters
    ----------
    acting_user : User or None
        Who reports; None for the simulator.
    fleet : Fleet
        The fleet.
    payload : mapping
        The report (`payload.parse`).

    Returns
    -------
    Recorded
        What was stored, or that it is a repeat.

    Raises
    ------
    NotAllowed
        Without that right; break-glass does not give it.
    Invalid
        With a pointer to an unknown version, arm or destination, or a time out of range.
    Conflict
        `source-taken`, `revised` or `overlaps`.
    """
    _check_right(acting_user, fleet, payload)
    now = timezone.now()
    window = read(fleet, payload, now=now)
    content = digest(window.canonical())
    with transaction.atomic():
        _queue_behind_source(fleet, window.source)
        if acting_user is not None:
            _own_source(acting_user, fleet, window.source)
        if (repeat := _repeat_of(fleet, window, content)) is not None:
            return repeat
        return _store(fleet, window, content)


def _check_right(acting_user: User | None, fleet: Fleet, payload: Mapping[str, Any]) -> None:
    if acting_user is None:
        assert payload["source"] == SIMULATOR  # only the simulator acts as the console
        assert payload["simulated"] is True
        return
    if payload["source"] == SIMULATOR:
        raise Invalid(f"{SIMULATOR!r} is reserved for the console; use another name", field="source")
    if not _may_report(acting_user, fleet):
        raise NotAllowed(
            f"{acting_user.get_username()} may not report telemetry of this fleet: it needs the right to operate it "
            "by role (group operator or approver)."
        )


def _may_report(user: User, fleet: Fleet) -> bool:
    """Return whether the account operates the fleet by role. Break-glass does not count here."""
    return rights.fleets_with(user, rights.OPERATE).filter(pk=fleet.pk).exists()


def _own_source(acting_user: User, fleet: Fleet, name: str) -> None:
    """Bind the source name to the first account that reports; a name whose account lost the right is free again."""
    source = TelemetrySource.objects.filter(fleet=fleet, name=name).select_related("user").first()
    if source is not None and source.user_id == acting_user.pk:
        return
    before = {}
    if source is not None:
        if _may_report(source.user, fleet):
            raise Conflict(
                f"{source.user.get_username()} reports as {name} on this fleet; use another name",
                code="source-taken",
                field="source",
            )
        before = {"user": source.user.get_username()}
        source.delete()
    origin = current_origin()
    source = TelemetrySource.objects.create(fleet=fleet, name=name, user=acting_user, token_number=origin.token_number)
    record_event(
        "telemetry.source_added",
        acting_user=acting_user,
        fleet=fleet,
        subject=source,
        before=before,
        after={"source": name, "user": acting_user.get_username()},
    )


def _queue_behind_source(fleet: Fleet, source: str) -> None:
    """Serialize reports of one source: two overlapping ones would not see each other."""
    number = zlib.crc32(f"{fleet.pk}\0{source}".encode()) % 2**31
    wait_in_transaction(TELEMETRY_SPACE, number)


def _repeat_of(fleet: Fleet, window: Window, content: str) -> Recorded | None:
    """Return the answer to a repeat; None where the time of the window is free."""
    # Naming the arms lets the index of a source be read by ranges.
    there = list(
        TelemetryWindow.objects.filter(
            fleet=fleet,
            source=window.source,
            arm__in=ARMS,
            ended_at__gt=window.started_at,
            started_at__lt=window.ended_at,
        )
        .defer("figures")
        .order_by("id")
    )
    if not there:
        return None
    same = [row for row in there if (row.started_at, row.ended_at) == (window.started_at, window.ended_at)]
    if len(same) < len(there):
        other = next(row for row in there if row not in same)
        raise Conflict(
            f"{window.source} reported {other.started_at:%Y-%m-%d %H:%M:%S} to {other.ended_at:%H:%M:%S} UTC already; "
            "windows of one source do not overlap",
            code="overlaps",
            field="started_at",
        )
    if any(row.payload_digest != content for row in same):
        raise Conflict(
            f"{window.source} reported this window already, with other figures; judged figures are not revised",
            code="revised",
        )
    return Recorded(tuple(same), duplicate=True, late=any(row.late for row in same))


def _store(fleet: Fleet, window: Window, content: str) -> Recorded:
    # Not during a check: the window would be in neither that check nor the next.
    wait_in_transaction(JUDGING_SPACE, fleet.pk, shared=True)
    judged = judged_until(fleet)
    late = judged is not None and window.ended_at <= judged
    keys = window.key_figures()
    rows = TelemetryWindow.objects.bulk_create(
        TelemetryWindow(
            fleet=fleet,
            plan_id=arm.plan,
            arm=arm.name,
            source=window.source,
            table_version=window.table_version,
            started_at=window.started_at,
            ended_at=window.ended_at,
            simulated=window.simulated,
            late=late,
            payload_digest=content,
            requests=arm.total("requests"),
            errors=arm.total("errors"),
            figures={**arm.as_dict(), **(keys if at == 0 else {})},  # keys belong to the source, not to an arm
        )
        for at, arm in enumerate(window.arms)
    )
    return Recorded(tuple(rows), duplicate=False, late=late, dropped_keys=keys.get("dropped_keys", 0))


def judged_until(fleet: Fleet) -> dt.datetime | None:
    """Return up to when the monitor has judged the telemetry of the fleet."""
    checks = DriftCheck.objects.filter(fleet=fleet, window_end__isnull=False)
    return checks.order_by("-id").values_list("window_end", flat=True).first()


def prune(now: dt.datetime | None = None) -> dict[str, int]:
    """Delete telemetry and drift checks older than 30 days; analyses of rollouts stay."""
    before = (now or timezone.now()) - dt.timedelta(days=KEPT_DAYS)
    found = {"telemetry": 0, "drift_checks": 0}
    for pk in Fleet.objects.values_list("pk", flat=True):
        found["telemetry"] += TelemetryWindow.objects.filter(fleet=pk, ended_at__lt=before).delete()[0]
        found["drift_checks"] += DriftCheck.objects.filter(fleet=pk, created_at__lt=before).delete()[0]
    return found
