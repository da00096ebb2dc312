"""Serializers of jobs: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from rest_framework import serializers

from planner import models
from planner.selectors.jobs.progress import elapsed_s, eta_s


class JobSerializer(serializers.ModelSerializer[models.Job]):
    """A job; of open replay jobs also how long they will take, asked of the database once for all rows."""

    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True)
    elapsed_s = serializers.SerializerMethodField(help_text="Seconds since a worker began; null while it is queued")
    eta_s = serializers.SerializerMethodField(
        help_text="Seconds that a running replay will still take, from what its finished cells took; null until one "
        "is finished, while nobody works at it, and for jobs of other kinds"
    )

    class Meta:
        model = models.Job
        exclude = ["attempt", "dispatched_at"]

    def get_elapsed_s(self, job: models.Job) -> float | None:
        """Seconds that it has run."""
        return elapsed_s(job)

    def get_eta_s(self, job: models.Job) -> float | None:
        """Seconds that it will still run."""
        if not hasattr(self, "_left"):
            rows = self.parent.instance if self.parent is not None else [job]
            self._left = eta_s(rows)  # type: ignore[arg-type]  # a list of jobs, or this one
        return self._left.get(job.pk)
