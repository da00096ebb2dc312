from __future__ import annotations

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.base import DIGEST_LENGTH, immutable
from planner.models.gate import GateEvaluation
from planner.models.plan import Plan


class Approval(models.Model):
    """A person's decision on a plan, bound to the digest of the evidence that was shown.

    Rows do not change, except that the same person may withdraw the approval once.
    """

    class Decision(models.TextChoices):
        APPROVE = "approve"
        REJECT = "reject"

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="approvals")
    evaluation = models.ForeignKey(GateEvaluation, on_delete=models.PROTECT, related_name="approvals")
    decision = models.CharField(max_length=8, choices=Decision)
    evidence_digest = models.CharField(max_length=DIGEST_LENGTH)
    comment = models.TextField(blank=True)
    approver = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="approvals")
    # Copies, so that "another person than the author" is a constraint of this table.
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    submitter = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    shared_email = models.CharField(
        max_length=254, blank=True, help_text="E-mail address shared by the approver and the author or submitter"
    )
    expires_at = models.DateTimeField(null=True, help_text="None: from a release without expiry")
    withdrawn_at = models.DateTimeField(null=True)
    withdrawn_reason = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = [
            pgtrigger.Protect(
                name="decision_is_final",
                operation=pgtrigger.UpdateOf(
                    "plan_id",
                    "evaluation_id",
                    "decision",
                    "evidence_digest",
                    "comment",
                    "approver_id",
                    "author_id",
                    "submitter_id",
                    "shared_email",
                    "expires_at",
                    "created_at",
                ),
            ),
            pgtrigger.Protect(
                name="withdrawal_is_final",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__withdrawn_at__isnull=False),
            ),
            pgtrigger.Protect(name="no_delete", operation=pgtrigger.Delete),
        ]
        constraints = [
            # By evidence, not by evaluation: judging the same evidence again keeps its approvals.
            models.UniqueConstraint(
                fields=["plan", "evidence_digest", "approver", "decision"],
                condition=Q(withdrawn_at=None),
                name="approval_once_a_person",
            ),
            models.CheckConstraint(
                condition=Q(decision="reject") | (~Q(approver=F("author")) & ~Q(approver=F("submitter"))),
                name="approval_by_another_person",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.decision} of {self.plan} by {self.approver}"


class PlanComment(models.Model):
    """A comment on a plan. Rows do not change."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="comments")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    text = models.TextField()
    evidence_digest = models.CharField(
        max_length=DIGEST_LENGTH, blank=True, help_text="Digest of the latest evaluation at that time"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        triggers = immutable()
        constraints = [models.CheckConstraint(condition=~Q(text=""), name="comment_says_something")]

    def __str__(self) -> str:
        return f"{self.author} on {self.plan}"
