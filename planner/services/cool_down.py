"""How long a fleet rests after the monitor fell back: a plan that was just thrown out is not put back at once."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone

from planner.models import AuditEvent, Fleet

# The name under which the monitor acts in the audit trail.
MONITOR = "monitor"


def cooling_down_until(fleet: Fleet, now: dt.datetime | None = None) -> dt.datetime | None:
    """When the cool-down after the newest automatic fallback ends; None when none is under way.

    A fallback by a person starts none: they know why, and may go on. Read from the audit trail, which nobody alters.
    """
    acts = AuditEvent.objects.filter(fleet=fleet, action="fleet.fell_back", actor=None, actor_name=MONITOR)
    newest = acts.order_by("-id").values_list("created_at", flat=True).first()
    if newest is None:
        return None
    until = newest + dt.timedelta(seconds=fleet.cool_down_s)
    return until if until > (now or timezone.now()) else None
