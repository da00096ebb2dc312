"""Serializers of jobs: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from rest_framework import serializers

from planner import models
from planner.selectors.jobs.progress import elapsed_s, eta_s


class JobSerializer(serializers.ModelSerializer[models.Job]):
    """A job. Open replay jobs have the remaining time, read in one query for all rows."""

    fleet = serializers.CharField(source="fleet.slug", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True)
    elapsed_s = serializers.SerializerMethodField(help_text="Seconds since the start; null while queued")
    eta_s = serializers.SerializerMethodField(
        help_text="Estimated remaining seconds of a running replay, from its finished cells; null before the first "
        "finished cell, while no worker runs it, and for other kinds"
    )

    class Meta:
        model = models.Job
        exclude = ["attempt", "dispatched_at"]

    def get_elapsed_s(self, job: models.Job) -> float | None:
        """Seconds since the start."""
        return elapsed_s(job)

    def get_eta_s(self, job: models.Job) -> float | None:
        """Estimated remaining seconds."""
        if not hasattr(self, "_left"):
            rows = self.parent.instance if self.parent is not None else [job]
            self._left = eta_s(rows)  # type: ignore[arg-type]  # a list of jobs, or this one
        return self._left.get(job.pk)
