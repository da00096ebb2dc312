from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.base import DIGEST_LENGTH, immutable
from planner.models.gate import GateEvaluation
from planner.models.plan import Plan


class Approval(models.Model):
    """A person's decision on a plan, bound to the digest of the evidence that was shown. Never changed."""

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
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = immutable()
        constraints = [
            # By evidence, not by evaluation: judging the same facts again takes nobody's vote away.
            models.UniqueConstraint(
                F("plan"), F("evidence_digest"), F("approver"), F("decision"), name="approval_once_a_person"
            ),
            models.CheckConstraint(
                condition=Q(decision="reject") | (~Q(approver=F("author")) & ~Q(approver=F("submitter"))),
                name="approval_by_another_person",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.decision} of {self.plan} by {self.approver}"
