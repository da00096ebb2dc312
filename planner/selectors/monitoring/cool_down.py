"""Cool-down of a fleet after an automatic fallback."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone

from planner.models import AuditEvent, Fleet, Rollout

# The name under which the monitor acts in the audit trail.
MONITOR = "monitor"


def cooling_down_until(fleet: Fleet, now: dt.datetime | None = None) -> dt.datetime | None:
    """Return when the cool-down after the newest automatic fallback ends; None when there is none.

    A fallback by a person starts none: the person knows the cause. It is read from the audit trail.
    """
    newest = _newest(fleet)
    if newest is None:
        return None
    until = newest.created_at + dt.timedelta(seconds=fleet.cool_down_s)
    return until if until > (now or timezone.now()) else None


def aborted_plans(fleet: Fleet) -> set[int]:
    """Return the numbers of the plans that the newest automatic fallback took off traffic."""
    newest = _newest(fleet)
    live = newest.before.get("live", []) if newest is not None else []
    return {row["plan"] for row in live if row["state"] in (Rollout.State.ACTIVE, Rollout.State.CANARY)}


def _newest(fleet: Fleet) -> AuditEvent | None:
    acts = AuditEvent.objects.filter(fleet=fleet, action="fleet.fell_back", actor=None, actor_name=MONITOR)
    return acts.only("created_at", "before").order_by("-id").first()
