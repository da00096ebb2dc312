from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Upper

from planner.models.audit_chain import chained
from planner.models.base import DIGEST_LENGTH, append_only
from planner.models.fleet import Fleet

# Actions that change the traffic of a fleet; its timeline lists them.
GOVERNING = (
    "plan.submitted",
    "plan.approved",
    "plan.rejected",
    "approval.withdrawn",
    "waiver.granted",
    "waiver.revoked",
    "rollout.scheduled",
    "rollout.schedule_refused",
    "rollout.started",
    "rollout.advanced",
    "rollout.activated",
    "rollout.promoted",
    "rollout.paused",
    "rollout.resumed",
    "rollout.aborted",
    "rollout.rolled_back",
    "fleet.created",
    "fleet.fell_back",
    "fleet.frozen",
    "fleet.unfrozen",
    "fleet.out_of_range",
    "fleet.telemetry_silent",
    "fleet.back_in_range",
    "fleet.policy_changed",
    "fleet.serving_profile_changed",
    "break_glass.opened",
    "break_glass.closed",
    "break_glass.reviewed",
    # Names of earlier releases.
    "emergency.opened",
    "emergency.closed",
    "emergency.reviewed",
    "fleet.left_range",
    "fleet.within_range",
)
# Names under which earlier releases stored actions, and their present names. Stored events keep their name.
EARLIER_ACTIONS = {
    "emergency.opened": "break_glass.opened",
    "emergency.closed": "break_glass.closed",
    "emergency.reviewed": "break_glass.reviewed",
    "access.taken": "access.removed",
    "fleet.left_range": "fleet.out_of_range",
    "fleet.within_range": "fleet.back_in_range",
    "fleet.telemetry_heard": "fleet.telemetry_resumed",
    "plan.retired": "plan.archived",
}


def names_of(action: str) -> list[str]:
    """Return every name under which an action is stored: the present name and those of earlier releases."""
    now = EARLIER_ACTIONS.get(action, action)
    return [now, *(earlier for earlier, name in EARLIER_ACTIONS.items() if name == now)]


class AuditEvent(models.Model):
    """Who did what, when, to what, and why. Rows are only added; the database refuses UPDATE, DELETE and TRUNCATE."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="audit_events", null=True)
    action = models.CharField(max_length=60)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    actor_name = models.CharField(max_length=150, help_text="Copy of the actor's name at that time")
    token_number = models.PositiveBigIntegerField(null=True, help_text="Id of the API token, which may be deleted")
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
        triggers = [*append_only(), chained()]
        indexes = [
            models.Index(fields=["fleet", "-id"], name="audit_fleet_newest"),
            models.Index(fields=["subject_type", "subject_id", "-id"], name="audit_subject_newest"),
            models.Index(fields=["action", "-id"], name="audit_action_newest"),
            models.Index(fields=["actor_name", "-id"], name="audit_actor_newest"),
            models.Index(Upper("actor_name"), F("id").desc(), name="audit_actor_any_case"),
            models.Index(fields=["created_at", "-id"], name="audit_by_time"),
            models.Index(fields=["fleet", "created_at", "-id"], name="audit_fleet_by_time"),
            models.Index(fields=["fleet", "action", "-id"], name="audit_fleet_action"),
            # The timeline of a fleet reads the governing events among many others in their order.
            models.Index(fields=["fleet", "-id"], condition=Q(action__in=GOVERNING), name="audit_fleet_governing"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.subject_label}"


class AuditLink(models.Model):
    """The place of an event in the chain: gap-free positions in the order of commits, each link over the one before.

    Written by a trigger when the transaction of the event commits (`planner.models.audit_chain`).
    """

    position = models.PositiveBigIntegerField(primary_key=True)
    event = models.OneToOneField(AuditEvent, on_delete=models.PROTECT, related_name="link")
    previous = models.CharField(max_length=DIGEST_LENGTH)
    digest = models.CharField(max_length=DIGEST_LENGTH)

    class Meta:
        ordering = ["position"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.position}: {self.digest[:12]}"


class AuditCheckpoint(models.Model):
    """The signed head of the chain. A copy kept elsewhere proves that nothing before it was changed or removed."""

    position = models.PositiveBigIntegerField(help_text="Position of the last link that it covers")
    digest = models.CharField(max_length=DIGEST_LENGTH)
    signature = models.CharField(max_length=128, help_text="Ed25519 over the document, hex")
    public_key = models.CharField(max_length=64, help_text="Public part of the signing key, hex")
    document = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"checkpoint at {self.position}"
