"""Publish new versions of the routing table."""

from __future__ import annotations

from django.utils import timezone

from planner.models import (
    Fleet,
    Publication,
)


def publish(fleet: Fleet) -> None:
    """Give the routing table a new version. Call it under the fleet's lock, in the transaction of the change."""
    fleet.table_version += 1
    fleet.table_issued_at = timezone.now()
    fleet.bump("table_version", "table_issued_at")
    _record_publication(fleet)


def _record_publication(fleet: Fleet) -> None:
    """Record which plans this version of the table holds; telemetry names a version and an arm."""
    live = fleet.rollouts.filter(state__in=["active", "canary"]).select_related("plan").order_by("state")
    rows = {r.state: r for r in live.defer("plan__summary", "plan__parameters")}
    share = rows["canary"].weight if "canary" in rows else 0.0
    arms = [
        {"name": name, "plan": rows[state].plan_id, "number": rows[state].plan.number, "rollout": rows[state].pk,
         "weight": weight}
        for name, state, weight in (("incumbent", "active", round(1.0 - share, 9)), ("canary", "canary", share))
        if state in rows
    ]  # fmt: skip
    Publication.objects.create(fleet=fleet, version=fleet.table_version, arms=arms, issued_at=fleet.table_issued_at)
