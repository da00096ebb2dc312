from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.base import DIGEST_LENGTH, immutable
from planner.models.plan import Plan
from planner.models.replay import Replay


class GateEvaluation(models.Model):
    """The six checklist items of a plan (paper, section 5.7), judged from stored evidence. Rows do not change."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="gate_evaluations")
    replay = models.ForeignKey(Replay, on_delete=models.PROTECT, related_name="gate_evaluations", null=True)
    passed = models.BooleanField(help_text="Every item passed or is waived")
    policy_version = models.PositiveIntegerField(default=1, help_text="Version of the fleet's policy at the evaluation")
    evidence = models.JSONField(help_text="All evidence of the verdict, including the fleet's policy")
    evidence_digest = models.CharField(max_length=DIGEST_LENGTH, help_text="sha256 of the evidence, canonical JSON")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = immutable()

    def __str__(self) -> str:
        return f"Gate {self.pk} of {self.plan}: {'pass' if self.passed else 'no pass'}"


class GateItem(models.Model):
    """One item of the checklist with its verdict and numbers."""

    class Verdict(models.TextChoices):
        PASS = "pass"  # noqa: S105 - a verdict, not a password
        FAIL = "fail"
        MISSING = "missing"

    evaluation = models.ForeignKey(GateEvaluation, on_delete=models.PROTECT, related_name="items")
    number = models.PositiveSmallIntegerField()
    title = models.CharField(max_length=120)
    verdict = models.CharField(max_length=8, choices=Verdict)
    explanation = models.TextField()
    numbers = models.JSONField(default=dict)
    links = models.JSONField(default=list, help_text="[label, path] of the evidence")
    checks = models.JSONField(
        default=list, help_text="[{name, title, verdict, explanation, numbers, waiver}]: the checks of the item"
    )
    waived = models.BooleanField(default=False, help_text="It did not pass and has a waiver; it stays red")

    class Meta:
        ordering = ["evaluation", "number"]
        triggers = immutable()
        constraints = [
            models.UniqueConstraint(F("evaluation"), F("number"), name="gate_item_once"),
            models.CheckConstraint(condition=Q(number__gte=1, number__lte=6), name="gate_item_one_of_six"),
            models.CheckConstraint(
                condition=Q(verdict__in=["pass", "fail", "missing"]), name="gate_item_verdict_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.number}. {self.title}: {self.verdict}"
