"""What waits for a person: read from the state of things each time, so that nothing is shown that waits no more."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from planner.models import BreakGlass, DriftCheck, Fleet, Rollout, Waiver
from planner.selectors.access import rights
from planner.selectors.access.break_glass import unreviewed
from planner.selectors.fleets.home_page import waiting_for
from planner.selectors.rollouts.queries import hold_left_s, latest_analysis, rollouts_with_state, what_holds


@dataclass(frozen=True)
class Waiting:
    """One thing that somebody waits for. ``kind``: approval, waiver, review, break-glass, rollout or monitor."""

    kind: str
    fleet: str
    text: str
    since: dt.datetime
    path: str
    simulated: bool = False


def waiting_for_me(user: User) -> list[Waiting]:
    """Everything that waits for the person, the oldest first; a fixed number of queries however much it is."""
    approves = rights.fleets_with(user, rights.APPROVE)
    operates = rights.fleets_with(user, rights.OPERATE)
    reviews = Fleet.objects.filter(Q(pk__in=approves.values("pk")) | Q(pk__in=_managed(user).values("pk")))
    found = [*_approvals(user, approves), *_waivers(user, approves), *_reviews(user, reviews)]
    found += _open_break_glass(user, reviews)
    found += [*_rollouts(operates), *_monitor(operates), *_fell_back(operates)]
    return sorted(found, key=lambda waiting: waiting.since)


def _managed(user: User) -> QuerySet[Fleet]:
    return rights.fleets_with(user, rights.MANAGE)


def _approvals(user: User, fleets: QuerySet[Fleet]) -> list[Waiting]:
    return [
        Waiting(
            "approval",
            plan.fleet.slug,
            f"{plan} of {plan.fleet}, by {plan.author}, asks for your decision",
            plan.updated_at,
            reverse("plan", args=[plan.fleet.slug, plan.number]),
            bool(plan.workload and plan.workload.simulated),
        )
        for plan in waiting_for(user, fleets)
    ]


def _waivers(user: User, fleets: QuerySet[Fleet]) -> list[Waiting]:
    rows = Waiver.objects.filter(granted_at=None, ended_at=None, expires_at__gt=timezone.now(), plan__fleet__in=fleets)
    others = rows.exclude(Q(requested_by=user) | Q(plan__author=user) | Q(plan__submitted_by=user))
    return [
        Waiting(
            "waiver",
            row.plan.fleet.slug,
            f"{row.requested_by} asks to waive {row.check_name} for {row.plan} of {row.plan.fleet}: {row.reason[:200]}",
            row.created_at,
            reverse("plan", args=[row.plan.fleet.slug, row.plan.number]),
        )
        for row in others.select_related("plan__fleet", "requested_by").defer("plan__summary", "plan__parameters")
    ]


def _reviews(user: User, fleets: QuerySet[Fleet]) -> list[Waiting]:
    return [
        Waiting(
            "review",
            row.fleet.slug,
            f"review the break-glass of {row.opened_by} on {row.fleet}; no canary starts before that",
            row.closed_at or row.expires_at,
            reverse("break-glass", args=[row.fleet.slug]),
        )
        for row in unreviewed().filter(fleet__in=fleets).exclude(opened_by=user)
    ]


def _open_break_glass(user: User, fleets: QuerySet[Fleet]) -> list[Waiting]:
    """Open break-glass of other people; it is reviewed when it is closed."""
    now = timezone.now()
    rows = BreakGlass.objects.filter(fleet__in=fleets, closed_at=None, expires_at__gt=now).exclude(opened_by=user)
    return [
        Waiting(
            "break-glass",
            row.fleet.slug,
            f"{row.opened_by} operates {row.fleet} past its guards until {row.expires_at:%H:%M}: {row.reason[:200]}",
            row.created_at,
            reverse("break-glass", args=[row.fleet.slug]),
        )
        for row in rows.select_related("fleet", "opened_by")
    ]


def _rollouts(fleets: QuerySet[Fleet]) -> list[Waiting]:
    """Canaries that a person has to look at: held by something else than time, or free to go on."""
    found = []
    for rollout in rollouts_with_state().filter(state=Rollout.State.CANARY, fleet__in=fleets):
        if hold_left_s(rollout) > 0 and rollout.paused_at is None:
            continue
        held = what_holds(rollout)
        if not held and rollout.fleet.auto_advance:
            continue
        analysis = latest_analysis(rollout)
        what = "; ".join(hold.message for hold in held) or "its step was watched and passed: advance it"
        found.append(
            Waiting(
                "rollout",
                rollout.fleet.slug,
                f"the canary of {rollout.plan} on {rollout.fleet}: {what}",
                rollout.paused_at or rollout.step_started_at or rollout.created_at,
                reverse("plan", args=[rollout.fleet.slug, rollout.plan.number]),
                bool(analysis and analysis.simulated),
            )
        )
    return found


def _monitor(fleets: QuerySet[Fleet]) -> list[Waiting]:
    """Return fleets whose newest check is outside the validated range or without telemetry."""
    newer = DriftCheck.objects.filter(fleet=OuterRef("fleet"), pk__gt=OuterRef("pk"))
    bad = (DriftCheck.Verdict.OUT_OF_RANGE, DriftCheck.Verdict.SILENT)
    rows = DriftCheck.objects.filter(~Exists(newer), fleet__in=fleets, verdict__in=bad)
    live = Rollout.objects.filter(state=Rollout.State.ACTIVE, fleet=OuterRef("fleet"), plan=OuterRef("plan"))
    return [
        Waiting(
            "monitor",
            row.fleet.slug,
            f"{row.fleet}: {row.get_verdict_display()}{': ' + row.explanation if row.explanation else ''}",
            row.created_at,
            reverse("fleet-timeline", args=[row.fleet.slug]),
            row.simulated,
        )
        for row in rows.filter(Exists(live)).select_related("fleet")
        if row.fleet is not None
    ]


def _fell_back(fleets: QuerySet[Fleet]) -> list[Waiting]:
    """Fleets that the console itself has sent back to Flat-LB, for as long as that is what is live."""
    rows = Rollout.objects.filter(
        state=Rollout.State.ACTIVE, kind=Rollout.Kind.FALLBACK, started_by=None, fleet__in=fleets
    )
    return [
        Waiting(
            "monitor",
            row.fleet.slug,
            f"the monitor sent {row.fleet} back to Flat-LB from {row.incumbent}: find out why before a plan goes live",
            row.activated_at or row.created_at,
            reverse("fleet-timeline", args=[row.fleet.slug]),
        )
        for row in rows.select_related("fleet", "incumbent").defer("incumbent__summary", "incumbent__parameters")
        if row.incumbent is not None
    ]
