"""Taking in what routers report: each window of each source once, whenever and however often it comes.

1. A window that is there already with the same content is a repeat: nothing changes, and the answer says so.
2. The same window with other content is refused (409, `revised`): what was judged may have rested on it.
3. A window that overlaps another of its source is refused (409, `overlaps`): its requests would count twice.
4. Windows may come in any order. One whose time the monitor has judged already is marked late and judged by its
   next check: a window is stored before a check or after it, never while one reads.
5. A name belongs to the account that first reported under it on the fleet (409, `source-taken`).
6. Measured and simulated windows lie side by side and are never judged together.
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

# What the console's own simulator calls itself. Nobody else may: its windows are simulated, whatever they say.
SIMULATOR = "simulator"
ARMS = ("incumbent", "canary")


@dataclass(frozen=True)
class Recorded:
    """What became of a report."""

    windows: tuple[TelemetryWindow, ...]
    duplicate: bool
    late: bool
    dropped_keys: int = 0

    def as_dict(self) -> JsonObject:
        """As the endpoint answers."""
        ids = [window.pk for window in self.windows]
        return {
            "windows": ids,
            "recorded": 0 if self.duplicate else len(ids),
            "duplicates": len(ids) if self.duplicate else 0,
            "late": self.late,
            "dropped_keys": self.dropped_keys,
        }


def record_windows(*, acting_user: User | None, fleet: Fleet, payload: Mapping[str, Any]) -> Recorded:
    """Store a window of one source: a row for each arm of the table that it names.

    Telemetry takes canaries on and plans off traffic, so that who reports it, by a session or by a token, needs the
    right to operate the fleet, by role and at this moment. `acting_user` None is the console's simulator.

    Raises
    ------
    NotAllowed
        Without that right; an emergency does not give it.
    Invalid
        With a pointer to what cannot be: an unknown version, arm or destination, a time that is out of reach.
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
        assert payload["source"] == SIMULATOR  # nothing else acts as the console
        assert payload["simulated"] is True
        return
    if payload["source"] == SIMULATOR:
        raise Invalid(f"{SIMULATOR!r} is the console's own; take another name", field="source")
    if not _may_report(acting_user, fleet):
        raise NotAllowed(
            f"{acting_user.get_username()} may not report telemetry of this fleet: that takes the right to operate it "
            "by role (group operator or approver)."
        )


def _may_report(user: User, fleet: Fleet) -> bool:
    """Whether the account operates the fleet by role: what an emergency gives is for its holder's own acts."""
    return rights.fleets_with(user, rights.OPERATE).filter(pk=fleet.pk).exists()


def _own_source(acting_user: User, fleet: Fleet, name: str) -> None:
    """Bind the name to the account that reports first; a name whose account may not report any more is free again."""
    source = TelemetrySource.objects.filter(fleet=fleet, name=name).select_related("user").first()
    if source is not None and source.user_id == acting_user.pk:
        return
    before = {}
    if source is not None:
        if _may_report(source.user, fleet):
            raise Conflict(
                f"{name} is the name under which {source.user.get_username()} reports on this fleet; take another",
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
    """Reports of one source are stored one after the other: two that overlap would not see each other."""
    number = zlib.crc32(f"{fleet.pk}\0{source}".encode()) % 2**31
    wait_in_transaction(TELEMETRY_SPACE, number)


def _repeat_of(fleet: Fleet, window: Window, content: str) -> Recorded | None:
    """The answer to a repeat; None where the time of the window is free."""
    # With the arms named the index of a source's windows is read by ranges.
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
            f"{window.source} reported this window already, with other figures; what was judged is not revised",
            code="revised",
        )
    return Recorded(tuple(same), duplicate=True, late=any(row.late for row in same))


def _store(fleet: Fleet, window: Window, content: str) -> Recorded:
    # Not while a check reads: it would be in neither that check nor the next.
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
            figures={**arm.as_dict(), **(keys if at == 0 else {})},  # keys are of the source, not of an arm
        )
        for at, arm in enumerate(window.arms)
    )
    return Recorded(tuple(rows), duplicate=False, late=late, dropped_keys=keys.get("dropped_keys", 0))


def judged_until(fleet: Fleet) -> dt.datetime | None:
    """Up to when the monitor has looked at the telemetry of the fleet."""
    checks = DriftCheck.objects.filter(fleet=fleet, window_end__isnull=False)
    return checks.order_by("-id").values_list("window_end", flat=True).first()


def prune(now: dt.datetime | None = None) -> dict[str, int]:
    """Delete telemetry and checks of the monitor that are older than 30 days; analyses of rollouts stay."""
    before = (now or timezone.now()) - dt.timedelta(days=KEPT_DAYS)
    found = {"telemetry": 0, "drift_checks": 0}
    for pk in Fleet.objects.values_list("pk", flat=True):
        found["telemetry"] += TelemetryWindow.objects.filter(fleet=pk, ended_at__lt=before).delete()[0]
        found["drift_checks"] += DriftCheck.objects.filter(fleet=pk, created_at__lt=before).delete()[0]
    return found
