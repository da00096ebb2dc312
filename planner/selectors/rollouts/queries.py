"""Standing of a rollout in its steps, and its holds. Services refuse by them, and pages show them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Prefetch, Q, QuerySet
from django.utils import timezone

from planner.formatting import rounded
from planner.models import Fleet, Freeze, Rollout, RolloutAnalysis

Verdict = RolloutAnalysis.Verdict
# Columns that grow with destinations and tenants.
LONG_PLAN = ("plan__summary", "plan__parameters")
LONG = (*LONG_PLAN, "incumbent__summary", "incumbent__parameters")

# Advice for an analysis that does not pass.
_REMEDIES = {
    Verdict.FAIL: "abort it, or find the cause",
    Verdict.INCONCLUSIVE: "wait for more requests, or abort it",
    Verdict.MISSING: "check that routers report telemetry of both arms, and wait",
    Verdict.ERROR: "the analysis failed; fix its cause, or abort the canary",
}


@dataclass(frozen=True)
class Held:
    """A hold that keeps a canary in its step: ``paused``, ``frozen``, ``watching`` or ``analysis``."""

    code: str
    message: str


def rollouts_with_state() -> QuerySet[Rollout]:
    """Return rollouts with everything that `rollout_state` reads, in three queries."""
    newest = RolloutAnalysis.objects.order_by("rollout_id", "-id").distinct("rollout_id")
    return (
        Rollout.objects.select_related("fleet", "plan", "incumbent", "started_by", "paused_by")
        .defer(*LONG)
        .prefetch_related("steps__entered_by", Prefetch("analyses", queryset=newest, to_attr="newest_analysis"))
        .order_by("-id")
    )


def step_number(rollout: Rollout) -> int:
    """Return the number of the present step, from 1; 0 for a scheduled rollout."""
    return len(rollout.steps.all())


def next_weight(rollout: Rollout) -> float | None:
    """Return the share of keys of the next step; None when advancing makes it active, or it is not a canary."""
    if rollout.state != Rollout.State.CANARY:
        return None
    return min((step["weight"] for step in rollout.planned_steps if step["weight"] > rollout.weight), default=None)


def hold_s(rollout: Rollout) -> float:
    """Return the watch time of the present step in seconds, by the steps that the rollout started with."""
    return next((float(s["hold_s"]) for s in rollout.planned_steps if s["weight"] == rollout.weight), 0.0)


def hold_left_s(rollout: Rollout, now: dt.datetime | None = None) -> float:
    """Return the seconds left of the watch time of the present step; 0.0 when it is over."""
    if rollout.state != Rollout.State.CANARY or rollout.step_started_at is None:
        return 0.0
    return max(0.0, hold_s(rollout) - ((now or timezone.now()) - rollout.step_started_at).total_seconds())


def latest_analysis(rollout: Rollout) -> RolloutAnalysis | None:
    """Return the latest analysis of the present step."""
    known: Sequence[RolloutAnalysis] | None = getattr(rollout, "newest_analysis", None)
    newest = known[0] if known else rollout.analyses.order_by("-id").first() if known is None else None
    return newest if newest is not None and newest.step == step_number(rollout) else None


def open_freezes() -> QuerySet[Freeze]:
    """Return freezes that are not lifted, the newest first."""
    return Freeze.objects.filter(lifted_at=None).select_related("frozen_by", "fleet").order_by("-id")


def freeze_of(fleet: Fleet, freezes: Sequence[Freeze] | None = None) -> Freeze | None:
    """Return the freeze of a fleet, its own or that of all fleets; ``freezes`` are the open ones where known."""
    if freezes is None:
        freezes = list(open_freezes().filter(Q(fleet=fleet) | Q(fleet=None)))
    mine = [freeze for freeze in freezes if freeze.fleet_id in (fleet.pk, None)]
    return min(mine, key=lambda freeze: freeze.fleet_id is None, default=None)


def frozen_words(freeze: Freeze) -> str:
    """Return a sentence: what is frozen, by whom and why."""
    what = "rollouts of all fleets are" if freeze.fleet_id is None else "the rollouts of this fleet are"
    return f"{what} frozen by {freeze.frozen_by} since {_moment(freeze.created_at)}: {freeze.reason}"


def what_holds(rollout: Rollout, *, now: dt.datetime | None = None) -> list[Held]:
    """Return every hold of a canary except freezes, each with what to do; empty when it may advance."""
    if rollout.state != Rollout.State.CANARY:
        return []
    found = []
    if rollout.paused_at is not None:
        why = f" ({rollout.pause_reason})" if rollout.pause_reason else ""
        found.append(
            Held("paused", f"{rollout.paused_by} paused it at {_moment(rollout.paused_at)}{why}; resume it first")
        )
    if (left := hold_left_s(rollout, now)) > 0:
        found.append(
            Held(
                "watching",
                f"step {step_number(rollout)} is watched for {_span(hold_s(rollout))}, {_span(left)} are left; "
                "wait, or promote it with a reason",
            )
        )
    found += _analysis_holds(rollout)
    return found


def _analysis_holds(rollout: Rollout) -> list[Held]:
    analysis = latest_analysis(rollout)
    if analysis is None:
        return [Held("analysis", f"step {step_number(rollout)} is not analysed yet; {_REMEDIES[Verdict.MISSING]}")]
    if analysis.verdict == Verdict.PASS:
        return []
    verdict = Verdict(analysis.verdict)
    label, why = str(verdict.label).lower(), analysis.explanation.rstrip(".")
    told = f"the latest analysis of step {analysis.step} is {label}: {why}"
    return [Held("analysis", f"{told}; {_REMEDIES[verdict]}")]


@dataclass(frozen=True)
class Standing:
    """Where a rollout is in its steps.

    Attributes
    ----------
    step : int
        Number of the present step.
    next_weight : float or None
        Share of keys of the next step; None after the last.
    hold_s, hold_left_s : float
        Hold of the present step and its remaining time, seconds.
    analysis : RolloutAnalysis or None
        The latest analysis of the present step.
    held : list of Held
        What keeps it from its next step.
    """

    step: int
    next_weight: float | None
    hold_s: float
    hold_left_s: float
    analysis: RolloutAnalysis | None
    held: list[Held]


def rollout_state(rollout: Rollout, freezes: Sequence[Freeze] | None = None) -> Standing:
    """Return the standing of a rollout; `freezes` are the open ones, read when None."""
    now = timezone.now()
    ahead = rollout.state in Rollout.AHEAD
    freeze = freeze_of(rollout.fleet, freezes) if ahead else None
    frozen = [Held("frozen", f"{frozen_words(freeze)}; lift the freeze first")] if freeze else []
    return Standing(
        step=step_number(rollout),
        next_weight=next_weight(rollout),
        hold_s=hold_s(rollout) if rollout.state == Rollout.State.CANARY else 0.0,
        hold_left_s=hold_left_s(rollout, now),
        analysis=latest_analysis(rollout),
        held=frozen + what_holds(rollout, now=now),
    )


def _moment(value: dt.datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M} UTC"


def _span(seconds: float) -> str:
    return f"{rounded(seconds)} s" if seconds < 120 else f"{rounded(seconds / 60)} min"
