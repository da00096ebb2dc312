from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from planner.models.audit import AuditEvent
from planner.models.base import Versioned
from planner.models.fleet import Fleet


class Webhook(Versioned):
    """An address that receives signed audit events of one fleet or of all."""

    class Format(models.TextChoices):
        JSON = "json", "JSON"
        SLACK = "slack", "Slack-compatible"

    name = models.CharField(max_length=120, unique=True)
    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="webhooks", null=True, blank=True)
    url = models.CharField(max_length=500)
    format = models.CharField(max_length=8, choices=Format, default=Format.JSON)
    actions = ArrayField(
        models.CharField(max_length=60), default=list, blank=True, help_text="Audit actions to send; none: all"
    )
    secret = models.CharField(max_length=255, help_text="Key of the HMAC, encrypted under the installation's secret")
    enabled = models.BooleanField(default=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    # Deliveries are created for links after this one, so no event is lost while workers or the broker are down.
    position = models.PositiveBigIntegerField(default=0, help_text="Last link of the audit chain that was sent")

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=Q(format__in=["json", "slack"]), name="webhook_format_known")]

    def __str__(self) -> str:
        return self.name


class WebhookDelivery(models.Model):
    """One event for one address, and the last answer."""

    class State(models.TextChoices):
        WAITING = "waiting"
        DELIVERED = "delivered"
        FAILED = "failed", "given up"

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.ForeignKey(AuditEvent, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True)
    status = models.PositiveSmallIntegerField(null=True, help_text="HTTP status of the last attempt")
    answer = models.CharField(
        max_length=500, blank=True, help_text="Start of the answer, or the reason why there is none"
    )
    took_s = models.FloatField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(F("webhook"), F("event"), name="webhook_delivery_once"),
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "delivered", "failed"]), name="webhook_delivery_state_known"
            ),
        ]
        indexes = [
            models.Index(fields=["next_attempt_at"], condition=Q(state="waiting"), name="webhook_delivery_due"),
            models.Index(fields=["webhook", "-id"], name="webhook_delivery_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.webhook}: {self.state}"
