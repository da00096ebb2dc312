"""Figures for Prometheus: jobs, monitor and tables, in a constant number of queries."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import product

from django.db.models import Count, Min, OuterRef, Subquery

from planner.models import DriftCheck, Fleet, Job


@dataclass(frozen=True)
class FleetFigures:
    """Published table of a fleet, and the time of its last automatic check."""

    slug: str
    table_version: int
    table_issued_at: dt.datetime
    checked_at: dt.datetime | None


def jobs_by_kind_and_state() -> dict[tuple[str, str], int]:
    """Return the number of jobs of each kind and state, zeros included."""
    found = dict.fromkeys(product(Job.Kind.values, Job.State.values), 0)
    rows = Job.objects.order_by().values_list("kind", "state").annotate(number=Count("pk"))
    return found | {(kind, state): number for kind, state, number in rows}


def oldest_queued_at() -> dt.datetime | None:
    """Return the creation time of the oldest queued job."""
    found: dt.datetime | None = Job.objects.filter(state=Job.State.QUEUED).aggregate(at=Min("created_at"))["at"]
    return found


def fleet_figures() -> list[FleetFigures]:
    """Return table and last automatic check of each fleet."""
    checks = DriftCheck.objects.filter(fleet=OuterRef("pk"), by_hand=False).order_by("-id")
    rows = Fleet.objects.annotate(checked_at=Subquery(checks.values("created_at")[:1])).order_by("slug")
    return [FleetFigures(*row) for row in rows.values_list("slug", "table_version", "table_issued_at", "checked_at")]
