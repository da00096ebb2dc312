from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from planner.models.fleet import Fleet


class BreakGlass(models.Model):
    """Break-glass: one person may operate a fleet past freeze, hold and analysis for a time; another reviews it.

    It approves nothing: a plan still needs the approval of a second person.
    """

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="break_glass_periods")
    opened_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    reviewed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    reviewed_at = models.DateTimeField(null=True)
    review = models.TextField(blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="break_glass_has_a_reason"),
            models.CheckConstraint(
                condition=Q(reviewed_by=None) | ~Q(reviewed_by=F("opened_by")), name="break_glass_reviewed_by_another"
            ),
            models.CheckConstraint(
                condition=Q(reviewed_by=None, reviewed_at=None)
                | Q(reviewed_by__isnull=False, reviewed_at__isnull=False),
                name="break_glass_review_whole",
            ),
            models.UniqueConstraint(
                fields=["fleet", "opened_by"], condition=Q(closed_at=None), name="break_glass_one_open_a_person"
            ),
        ]

    def __str__(self) -> str:
        return f"break-glass of {self.opened_by} on {self.fleet}"

    @property
    def is_open(self) -> bool:
        """Whether its holder may pass guards now."""
        return self.closed_at is None and self.expires_at > timezone.now()
