from __future__ import annotations

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import F, Q

from planner.models.artifact import Artifact
from planner.models.base import DIGEST_LENGTH, TRANSITIONS, StateMachine, Versioned, known_state
from planner.models.calibration import Calibration
from planner.models.fleet import Fleet
from planner.models.workload import Workload


class PlanState(StateMachine):
    QUEUED = "queued"
    BUILDING = "building"
    BUILT = "built"
    REPLAYING = "replaying"
    REPLAYED = "replayed"
    IN_REVIEW = "in_review", "in review"
    APPROVED = "approved"
    RETIRED = "retired"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class Plan(Versioned):
    """A candidate routing table of a fleet, from its order to its retirement.

    Flat-LB is a plan too: each fleet has exactly one, with an empty table, approved from the start.
    """

    class Kind(models.TextChoices):
        CACHEROUTE = "cacheroute", "CacheRoute"
        FLAT = "flat", "Flat-LB"

    State = PlanState
    # States with a table that no job changes: a what-if replay may run.
    BUILT = (State.BUILT, State.REPLAYED, State.IN_REVIEW, State.APPROVED)
    # States from which the plan may still come to traffic: waivers may be requested and granted.
    CANDIDATE = (State.BUILT, State.REPLAYING, State.REPLAYED, State.IN_REVIEW, State.APPROVED)
    # States of a plan that was active before and can be rolled back to.
    RETAINED = (State.APPROVED, State.REPLAYING, State.IN_REVIEW)
    # States in which a plan can be archived.
    ARCHIVABLE = (State.BUILT, State.REPLAYED, State.APPROVED)

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="plans")
    number = models.PositiveIntegerField(help_text="Counts up within the fleet; Flat-LB is 0")
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.CACHEROUTE)
    state = models.CharField(max_length=12, choices=State, default=State.QUEUED)
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="plans", null=True, blank=True)
    calibration = models.ForeignKey(Calibration, on_delete=models.PROTECT, related_name="plans", null=True, blank=True)
    incumbent = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        related_name="replans",
        null=True,
        blank=True,
        help_text="The plan whose warm keys this plan keeps as far as the balance allows; none: from scratch",
    )
    parameters = models.JSONField(default=dict, help_text="Build inputs other than the rates")
    table = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+", null=True, blank=True)
    summary = models.JSONField(default=dict, help_text="Admitted keys, load of each destination, imbalance, timings")
    inputs_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    fingerprint = models.CharField(max_length=DIGEST_LENGTH, blank=True, help_text="Fingerprint of the serving profile")
    code_version = models.CharField(max_length=40, blank=True)
    note = models.TextField(blank=True)
    failure = models.TextField(blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="plans", null=True)
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True, blank=True
    )

    class Meta:
        ordering = ["-id"]
        triggers = [
            # The published plan is the judged and approved plan: a table and its inputs do not change once built.
            pgtrigger.Protect(
                name="built_is_final",
                operation=pgtrigger.UpdateOf(
                    "table_id",
                    "parameters",
                    "summary",
                    "inputs_digest",
                    "code_version",
                    "workload_id",
                    "calibration_id",
                    "incumbent_id",
                    "fingerprint",
                    "author_id",
                ),
                condition=pgtrigger.Q(old__table__isnull=False),
            ),
        ]
        constraints = [
            known_state(PlanState, "plan_state_known"),
            models.UniqueConstraint(F("fleet"), F("number"), name="plan_number_once_a_fleet"),
            models.UniqueConstraint(fields=["fleet"], condition=Q(kind="flat"), name="plan_one_flat_a_fleet"),
            models.CheckConstraint(
                condition=Q(kind="flat", workload=None, calibration=None, table=None)
                | Q(kind="cacheroute", workload__isnull=False, calibration__isnull=False, author__isnull=False),
                name="plan_inputs_match_kind",
            ),
            models.CheckConstraint(
                condition=Q(kind="flat")
                | Q(state__in=["queued", "building", "failed", "cancelled"])
                | Q(table__isnull=False),
                name="plan_built_has_table",
            ),
            models.CheckConstraint(
                condition=~Q(kind="flat") | Q(state="approved"), name="plan_flat_is_always_approved"
            ),
        ]

    @property
    def capacity(self) -> list[float]:
        """Relative speed of each destination; 1 for plans of releases that did not record it."""
        return self.parameters.get("capacity") or [1.0] * len(self.parameters["destinations"])

    def __str__(self) -> str:
        return "Flat-LB" if self.kind == self.Kind.FLAT else f"Plan {self.number}"


TRANSITIONS[PlanState] = {
    "queued": ("building", "failed", "cancelled"),
    "building": ("built", "failed", "cancelled"),
    "built": ("replaying", "cancelled"),
    # A failed or cancelled replay returns the plan to its earlier state; so does a withdrawn review.
    "replaying": ("replayed", "built", "approved", "cancelled"),
    "replayed": ("replaying", "in_review", "cancelled"),
    "in_review": ("approved", "rejected", "replayed"),
    # Back to review when the approved evidence is no longer current (ADR 2).
    "approved": ("in_review", "replaying", "retired"),
}
