from __future__ import annotations

from django.conf import settings
from django.db import models

from planner.models.base import DIGEST_LENGTH, immutable, known_state
from planner.models.plan import Plan


class StudyKind(models.TextChoices):
    SENSITIVITY = "sensitivity"


class Study(models.Model):
    """The result of building a plan with other inputs. Rows do not change."""

    Kind = StudyKind

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="studies")
    kind = models.CharField(max_length=20, choices=Kind)
    parameters = models.JSONField(default=dict, help_text="Varied inputs and their ranges")
    results = models.JSONField(default=dict)
    inputs_digest = models.CharField(max_length=DIGEST_LENGTH)
    code_version = models.CharField(max_length=40)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = immutable()
        constraints = [known_state(StudyKind, "study_kind_known", field="kind")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} study {self.pk} of {self.plan}"
