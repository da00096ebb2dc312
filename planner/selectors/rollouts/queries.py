"""Where a rollout stands in its steps, and what holds it. Services refuse by these facts, and pages show them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Prefetch, Q, QuerySet
from django.utils import timezone

from planner.formatting import rounded
from planner.models import Fleet, Freeze, Rollout, RolloutAnalysis

Verdict = RolloutAnalysis.Verdict
# They grow with destinations and tenants.
LONG_PLAN = ("plan__summary", "plan__parameters")
LONG = (*LONG_PLAN, "incumbent__summary", "incumbent__parameters")

# What to do about an analysis that does not pass.
_REMEDIES = {
    Verdict.FAIL: "abort it, or find out why",
    Verdict.INCONCLUSIVE: "wait for more requests, or abort it",
    Verdict.MISSING: "see that routers report telemetry of both arms, and wait",
    Verdict.ERROR: "the analysis itself failed; have it mended, or abort the canary",
}


@dataclass(frozen=True)
class Held:
    """One thing that holds a canary where it is: ``paused``, ``frozen``, ``watching`` or ``analysis``."""

    code: str
    message: str


def rollouts_with_state() -> QuerySet[Rollout]:
    """Rollouts with what `rollout_state` looks at, three queries however many there are."""
    newest = RolloutAnalysis.objects.order_by("rollout_id", "-id").distinct("rollout_id")
    return (
        Rollout.objects.select_related("fleet", "plan", "incumbent", "started_by", "paused_by")
        .defer(*LONG)
        .prefetch_related("steps__entered_by", Prefetch("analyses", queryset=newest, to_attr="newest_analysis"))
        .order_by("-id")
    )


def step_number(rollout: Rollout) -> int:
    """The step that it is in, from 1; 0 of one that is only scheduled."""
    return len(rollout.steps.all())


def next_weight(rollout: Rollout) -> float | None:
    """The share of keys that an advance takes a canary to; None when that makes it active, or it is no canary."""
    if rollout.state != Rollout.State.CANARY:
        return None
    return min((step["weight"] for step in rollout.planned_steps if step["weight"] > rollout.weight), default=None)


def hold_s(rollout: Rollout) -> float:
    """Seconds that the present step is watched for, by the plan of steps that it started with."""
    return next((float(s["hold_s"]) for s in rollout.planned_steps if s["weight"] == rollout.weight), 0.0)


def hold_left_s(rollout: Rollout, now: dt.datetime | None = None) -> float:
    """Seconds until the present step was watched for long enough; 0.0 when it was, or it is no canary."""
    if rollout.state != Rollout.State.CANARY or rollout.step_started_at is None:
        return 0.0
    return max(0.0, hold_s(rollout) - ((now or timezone.now()) - rollout.step_started_at).total_seconds())


def latest_analysis(rollout: Rollout) -> RolloutAnalysis | None:
    """The latest analysis of the step that it is in."""
    known: Sequence[RolloutAnalysis] | None = getattr(rollout, "newest_analysis", None)
    newest = known[0] if known else rollout.analyses.order_by("-id").first() if known is None else None
    return newest if newest is not None and newest.step == step_number(rollout) else None


def open_freezes() -> QuerySet[Freeze]:
    """Freezes that were not lifted, the newest first."""
    return Freeze.objects.filter(lifted_at=None).select_related("frozen_by", "fleet").order_by("-id")


def freeze_of(fleet: Fleet, freezes: Sequence[Freeze] | None = None) -> Freeze | None:
    """What freezes a fleet: its own freeze, or that of all fleets; ``freezes`` are the open ones where known."""
    if freezes is None:
        freezes = list(open_freezes().filter(Q(fleet=fleet) | Q(fleet=None)))
    mine = [freeze for freeze in freezes if freeze.fleet_id in (fleet.pk, None)]
    return min(mine, key=lambda freeze: freeze.fleet_id is None, default=None)


def frozen_words(freeze: Freeze) -> str:
    """What is frozen, by whom and why."""
    what = "rollouts of all fleets are" if freeze.fleet_id is None else "the rollouts of this fleet are"
    return f"{what} frozen by {freeze.frozen_by} since {_moment(freeze.created_at)}: {freeze.reason}"


def what_holds(rollout: Rollout, *, now: dt.datetime | None = None) -> list[Held]:
    """Everything that keeps a canary from its next step but a freeze; each says what to do. Empty when it may go on."""
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
                f"step {step_number(rollout)} is watched for {_span(hold_s(rollout))} and {_span(left)} are left; "
                "wait, or promote it with a reason",
            )
        )
    found += _analysis_holds(rollout)
    return found


def _analysis_holds(rollout: Rollout) -> list[Held]:
    analysis = latest_analysis(rollout)
    if analysis is None:
        return [Held("analysis", f"step {step_number(rollout)} was not analysed yet; {_REMEDIES[Verdict.MISSING]}")]
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
        Seconds that the present step is watched for, and those that are left of it.
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
    """Where a rollout is; `freezes` are the open ones, read when None."""
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
