from __future__ import annotations

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.plan import Plan


class Waiver(models.Model):
    """Permission to continue although a check does not pass: requested by one person, granted by another, with expiry.

    The check stays red. The decision is made once; the request does not change.
    """

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="waivers")
    check_name = models.CharField(max_length=60)
    reason = models.TextField()
    expires_at = models.DateTimeField()
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    granted_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    granted_at = models.DateTimeField(null=True)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    ended_at = models.DateTimeField(null=True, help_text="Time of refusal (before a grant) or revocation (after it)")

    class Meta:
        ordering = ["-id"]
        triggers = [
            pgtrigger.Protect(
                name="request_is_final",
                operation=pgtrigger.UpdateOf(
                    "plan_id", "check_name", "reason", "expires_at", "requested_by_id", "created_at"
                ),
            ),
            pgtrigger.Protect(
                name="grant_is_final",
                operation=pgtrigger.UpdateOf("granted_by_id", "granted_at"),
                condition=pgtrigger.Q(old__granted_at__isnull=False),
            ),
            pgtrigger.Protect(name="no_delete", operation=pgtrigger.Delete),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(granted_by=None) | ~Q(granted_by=F("requested_by")), name="waiver_by_a_second_person"
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="waiver_has_a_reason"),
            models.CheckConstraint(condition=Q(expires_at__gt=F("created_at")), name="waiver_expires_later"),
            models.CheckConstraint(
                condition=Q(granted_by=None, granted_at=None) | Q(granted_by__isnull=False, granted_at__isnull=False),
                name="waiver_grant_whole",
            ),
            models.UniqueConstraint(
                fields=["plan", "check_name"], condition=Q(ended_at=None), name="waiver_one_open_a_check"
            ),
        ]

    def __str__(self) -> str:
        return f"waiver of {self.check_name} for {self.plan}"
