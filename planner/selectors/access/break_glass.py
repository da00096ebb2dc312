"""Break-glass periods that wait for a review."""

from __future__ import annotations

from django.db.models import Q, QuerySet
from django.utils import timezone

from planner.models import BreakGlass, Fleet


def waiting_for_review(fleet: Fleet) -> BreakGlass | None:
    """The oldest closed break-glass of the fleet without a review: no canary starts before it is reviewed."""
    return unreviewed().filter(fleet=fleet).first()


def unreviewed() -> QuerySet[BreakGlass]:
    """Closed break-glass without a review, the oldest first."""
    over = Q(closed_at__isnull=False) | Q(expires_at__lte=timezone.now())
    return BreakGlass.objects.filter(over, reviewed_at=None).select_related("opened_by", "fleet").order_by("id")
