"""The first page: active plans, items that wait for the user, and running jobs."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db.models import Case, Count, Exists, OuterRef, Prefetch, Q, QuerySet, Subquery, When

from planner.models import Approval, Fleet, GateEvaluation, Job, Plan, Rollout
from planner.selectors.jobs.progress import with_progress
from planner.selectors.reviews.approvals import in_force
from planner.selectors.rollouts.queries import LONG_PLAN


def live_rollouts() -> QuerySet[Rollout]:
    """Rollouts that carry traffic, the active one of a fleet before its canary."""
    return Rollout.objects.filter(state__in=Rollout.LIVE).select_related("plan").defer(*LONG_PLAN).order_by("state")


def fleets_with_live(fleets: QuerySet[Fleet]) -> QuerySet[Fleet]:
    """The fleets with `live`: their rollouts with traffic. Two queries for any number of fleets."""
    return (
        fleets.select_related("serving_profile")
        .prefetch_related(Prefetch("rollouts", queryset=live_rollouts(), to_attr="live"))
        .annotate(destination_count=Count("destinations"))
        .order_by("slug")
    )


def waiting_for(user: User, fleets: QuerySet[Fleet]) -> list[Plan]:
    """Plans in review that wait for the vote of this user: neither author nor submitter, and without a valid vote.

    A vote is valid for one digest of the evidence, until it expires. Evaluating the same evidence again keeps it.
    """
    latest = GateEvaluation.objects.filter(plan=OuterRef("plan")).order_by("-id").values("evidence_digest")[:1]
    mine = Approval.objects.filter(in_force(), plan=OuterRef("pk"), approver=user, evidence_digest=Subquery(latest))
    return list(
        Plan.objects.filter(state=Plan.State.IN_REVIEW, fleet__in=fleets)
        .exclude(Q(author=user) | Q(submitted_by=user))
        .filter(~Exists(mine))
        .select_related("fleet", "author", "submitted_by", "workload")
        .defer("summary", "parameters", "workload__shape", "workload__notices")
        .order_by("id")
    )


def open_jobs(fleet: Fleet | None = None) -> QuerySet[Job]:
    """Jobs that are queued or running, with the number of the plan they are about."""
    jobs = Job.objects.filter(state__in=Job.OPEN)
    return _with_plan(jobs if fleet is None else jobs.filter(fleet=fleet))


def recent_jobs(fleet: Fleet, count: int = 8) -> list[Job]:
    """The newest jobs of a fleet, open ones first."""
    open_ones = list(open_jobs(fleet))
    closed = _with_plan(Job.objects.filter(fleet=fleet).exclude(state__in=Job.OPEN))
    return with_progress(open_ones + list(closed[: max(0, count - len(open_ones))]))


def _with_plan(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Annotate `plan_number`: of the plan that a job builds, replays or studies."""
    built = Plan.objects.filter(pk=OuterRef("subject_id")).values("number")[:1]
    replayed = Plan.objects.filter(replays=OuterRef("subject_id")).values("number")[:1]
    about = Case(
        When(kind__in=(Job.Kind.BUILD_PLAN, Job.Kind.STUDY), then=Subquery(built)),
        When(kind=Job.Kind.REPLAY, then=Subquery(replayed)),
    )
    return jobs.select_related("fleet", "created_by").annotate(plan_number=about).order_by("-id")
