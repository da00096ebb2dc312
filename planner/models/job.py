from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from planner.models.base import TRANSITIONS, StateMachine, known_state
from planner.models.fleet import Fleet


class JobKind(models.TextChoices):
    BUILD_PLAN = "build_plan", "build plan"
    REPLAY = "replay", "replay"
    STUDY = "study", "study"
    CALIBRATE = "calibrate", "calibration"
    FIT = "fit", "fit"


class JobState(StateMachine):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed", "failed (expected)"
    ERRORED = "errored", "errored (crash)"
    CANCELLED = "cancelled"


class Job(models.Model):
    """Long work. This row is authoritative; the message in the broker only asks a worker to read it."""

    Kind = JobKind
    State = JobState

    OPEN = ("queued", "running")

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="jobs")
    kind = models.CharField(max_length=12, choices=Kind)
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    subject_id = models.PositiveBigIntegerField(
        null=True,
        help_text="Id of the plan (build, study), replay, workload (calibration) or calibration (fit)",
    )
    payload = models.JSONField(default=dict)
    result = models.JSONField(default=dict)
    message = models.CharField(max_length=300, blank=True)
    error = models.TextField(blank=True)
    done = models.PositiveIntegerField(default=0)
    total = models.PositiveIntegerField(default=1)
    # Number of claims. A worker that lost its claim holds an older number, and its result is ignored.
    attempt = models.PositiveSmallIntegerField(default=0)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    dispatched_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            known_state(JobState, "job_state_known"),
            known_state(JobKind, "job_kind_known", field="kind"),
            models.UniqueConstraint(
                fields=["kind", "subject_id"],
                condition=Q(state__in=["queued", "running"], subject_id__isnull=False),
                name="job_one_open_a_subject",
            ),
            models.CheckConstraint(condition=Q(done__lte=models.F("total")), name="job_done_within_total"),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"], finished_at=None)
                | Q(state__in=["succeeded", "failed", "errored", "cancelled"], finished_at__isnull=False),
                name="job_finished_iff_over",
            ),
        ]
        indexes = [models.Index(fields=["state"], condition=Q(state__in=["queued", "running"]), name="job_open")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} job {self.pk}"

    @property
    def is_open(self) -> bool:
        """Whether the job is queued or running."""
        return self.state in self.OPEN


TRANSITIONS[JobState] = {
    "queued": ("running", "cancelled", "failed", "errored"),
    "running": ("succeeded", "failed", "errored", "cancelled", "queued"),
}
