"""Break-glass periods that wait for a review."""

from __future__ import annotations

from django.db.models import Q, QuerySet
from django.utils import timezone

from planner.models import BreakGlass, Fleet


def waiting_for_review(fleet: Fleet) -> BreakGlass | None:
    """An ended emergency that nobody has reviewed: until then no rollout starts."""
    return unreviewed().filter(fleet=fleet).first()


def unreviewed() -> QuerySet[BreakGlass]:
    """Ended emergencies that nobody has reviewed, the oldest first."""
    over = Q(closed_at__isnull=False) | Q(expires_at__lte=timezone.now())
    return BreakGlass.objects.filter(over, reviewed_at=None).select_related("opened_by", "fleet").order_by("id")
