from __future__ import annotations

from django.db import models
from django.db.models import Q

from planner.models.base import DIGEST_LENGTH, immutable


class Artifact(models.Model):
    """A Parquet file in storage, named by the sha256 of its bytes. Rows do not change; equal content is stored once."""

    class Kind(models.TextChoices):
        RATES = "rates"
        TRACE = "trace"
        TABLE = "table"

    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    kind = models.CharField(max_length=10, choices=Kind)
    size_bytes = models.PositiveBigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        triggers = immutable()
        constraints = [
            models.CheckConstraint(condition=Q(digest__regex=r"^[0-9a-f]{64}$"), name="artifact_digest_is_sha256"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.digest[:12]}"

    @property
    def path(self) -> str:
        """Path of the file in storage."""
        return f"{self.digest[:2]}/{self.digest}.parquet"
