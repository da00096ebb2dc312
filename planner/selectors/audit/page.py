"""Reading the audit trail: filters, and pages that stay the same while events are added."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from planner.models import AuditEvent, Fleet, Plan
from planner.models.audit import names_of

PAGE = 50
LAST_DAY = dt.date.max - dt.timedelta(days=1)


@dataclass(frozen=True)
class AuditFilter:
    """A filter of events. Dates are whole days in UTC, both included."""

    fleet: Fleet | None = None
    among: QuerySet[Fleet] | None = None  # None: all fleets, and events about no fleet.
    action: str = ""
    actor: str = ""
    since: dt.date | None = None
    until: dt.date | None = None


@dataclass(frozen=True)
class AuditPage:
    """Events newest first, and the id below which the next page begins (None at the end)."""

    events: list[AuditEvent]
    next_before: int | None


def matching(wanted: AuditFilter) -> QuerySet[AuditEvent]:
    """The events that match the filter, in no order."""
    events: QuerySet[AuditEvent] = AuditEvent.objects.all()
    if wanted.among is not None:
        events = events.filter(fleet__in=wanted.among)
    if wanted.fleet is not None:
        events = events.filter(fleet=wanted.fleet)
    if wanted.action:
        events = events.filter(action__in=names_of(wanted.action))
    if wanted.actor:
        events = events.filter(actor_name__iexact=wanted.actor)
    if wanted.since:
        events = events.filter(created_at__gte=_midnight(wanted.since))
    if wanted.until:
        # The last day of the calendar has none after it.
        events = events.filter(created_at__lt=_midnight(min(wanted.until, LAST_DAY) + dt.timedelta(days=1)))
    return events


def audit_page(wanted: AuditFilter, before: int | None = None) -> AuditPage:
    """One page of the trail. Ids only grow, so an event added meanwhile changes no page."""
    events = matching(wanted).select_related("fleet").order_by("-id")
    if before is not None:
        events = events.filter(pk__lt=before)
    found = list(events[: PAGE + 1])
    return AuditPage(found[:PAGE], found[PAGE - 1].pk if len(found) > PAGE else None)


def newest_events(fleet: Fleet, count: int) -> list[AuditEvent]:
    """The newest events of a fleet, without their changes."""
    return list(fleet.audit_events.defer("before", "after").order_by("-id")[:count])


TIMELINE = 100  # Events on the page of a plan; the audit trail has all of them.


def plan_timeline(plan: Plan, replays: list[int]) -> list[AuditEvent]:
    """The latest events of a plan, its replays and its rollouts, oldest first."""
    about = Q(subject_type="plan", subject_id=plan.pk)
    about |= Q(subject_type="replay", subject_id__in=replays)
    about |= Q(subject_type="rollout", subject_id__in=list(plan.rollouts.values_list("pk", flat=True)))
    # A rollback is recorded on the plan that becomes active; the plan that it ends is named there.
    ways_back = ["fleet.fell_back", "rollout.rolled_back"]
    about |= Q(action__in=ways_back, before__live__contains=[{"plan": plan.number}])
    latest = AuditEvent.objects.filter(about, fleet=plan.fleet).defer("before", "after").order_by("-id")[:TIMELINE]
    return list(reversed(latest))


def _midnight(day: dt.date) -> Any:
    return dt.datetime.combine(day, dt.time(), tzinfo=dt.UTC)
