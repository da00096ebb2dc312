from __future__ import annotations

from django.conf import settings
from django.db import models

from planner.models.base import append_only
from planner.models.fleet import Fleet


class AuditEvent(models.Model):
    """Who did what, when, to what, and why. Rows are added; the database refuses all else, TRUNCATE too."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="audit_events", null=True)
    action = models.CharField(max_length=60)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    actor_name = models.CharField(max_length=150, help_text="Copy: what the actor was called then")
    token_prefix = models.CharField(max_length=16, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    ip_address = models.GenericIPAddressField(null=True)
    subject_type = models.CharField(max_length=40)
    subject_id = models.PositiveBigIntegerField(null=True)
    subject_label = models.CharField(max_length=200)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    reason = models.TextField(blank=True)
    evidence_digest = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = append_only()
        indexes = [
            models.Index(fields=["fleet", "-id"], name="audit_fleet_newest"),
            models.Index(fields=["subject_type", "subject_id", "-id"], name="audit_subject_newest"),
            models.Index(fields=["action", "-id"], name="audit_action_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.subject_label}"
