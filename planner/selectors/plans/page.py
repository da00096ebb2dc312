"""The page of a plan: the verdict in one sentence, the figures, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass

from planner.analysis.verdict import MeanOfSeeds, Verdict
from planner.models import BASELINE, GateEvaluation, Job, Plan, Replay
from planner.selectors.audit.page import plan_timeline
from planner.selectors.jobs.progress import with_progress
from planner.selectors.plans.table import table_facts
from planner.selectors.replays.policy_names import CANDIDATE, in_order, policy_name
from planner.selectors.replays.verdict_page import (
    CapacityMark,
    ReplayVerdict,
    capacities,
    compared_at,
    event_labels,
    shown_load,
    verdict_tables,
)
from planner.selectors.reviews.page import review
from planner.selectors.rollouts.page import plan_part
from planner.simulation.options import ReplayParameters

# Other replays that the page links to.
SHOWN_REPLAYS = 10
# The states of a plan that becomes active, in order, as the page shows them.
WAY = ("queued", "building", "built", "replaying", "replayed", "in_review", "approved")


def shown_replay(replays: list[Replay], pk: int | None = None) -> Replay | None:
    """The replay whose figures the page shows: the one asked for, else the latest that is evidence, else the latest.

    Of a plan's replays, the newest first, only the succeeded ones; any other number is ignored.
    """
    done = [row for row in replays if row.state == Replay.State.SUCCEEDED]
    asked = [row for row in done if row.pk == pk]
    return next(iter(asked or [row for row in done if not row.what_if] or done), None)


def replays_of(plan: Plan) -> list[Replay]:
    """All replays of a plan, the newest first, without their verdicts, which are long and read one by one."""
    return list(plan.replays.defer("verdict").order_by("-id"))


def unknown_keys(replay: Replay) -> list[str]:
    """The keys of other plans in the replay that its workload does not have, in words; older replays did not count
    them.
    """
    parameters = ReplayParameters.from_json(replay.parameters)
    found = {}
    for other in (*parameters.also, *([parameters.switch] if parameters.switch else [])):
        if other.unknown:  # None where it was not counted.
            count = f"{other.unknown:,} of {other.keys:,} keys of plan {other.plan}"
            found[other.plan] = f"{count} are unknown here and get no request"
    return list(found.values())


def simulated_parts(plan: Plan, replay: Replay | None = None) -> list[str]:
    """What was simulated in the evidence of a plan, in words. The replicas of a replay always are."""
    parts = []
    if plan.workload is not None and plan.workload.simulated:
        parts.append("generated rates")
    if plan.calibration is not None and plan.calibration.source == "simulated":
        parts.append("simulated calibration")
    if replay is not None:
        if replay.parameters.get("synthetic_trace"):
            parts.append("synthetic requests")
        parts.append("simulated replicas")
    return parts


@dataclass(frozen=True)
class Progress:
    """Progress of the open job of a plan; without an open job ``open`` is False."""

    plan: Plan
    job: Job | None
    open: bool


@dataclass(frozen=True)
class PlanPage:
    """The page of a plan: its latest evaluation, and all that the template shows."""

    evaluation: GateEvaluation | None
    context: dict[str, object]


def plan_page(plan: Plan, replay_pk: int | None = None) -> PlanPage:
    """The data of the page of a plan, except the header of the fleet, with the figures of the given replay."""
    replays = replays_of(plan)
    replay = shown_replay(replays, replay_pk)
    evaluation = plan.gate_evaluations.prefetch_related("items").order_by("-id").first()
    items = list(evaluation.items.all()) if evaluation else []
    found = None if replay is None else ReplayVerdict(replay)
    context: dict[str, object] = {
        "plan": plan,
        "replay": replay,
        "unknown_keys": unknown_keys(replay) if replay else [],
        "latest_replay": replays[0] if replays else None,
        "other_replays": other_replays(replays, replay),
        "evaluation": evaluation,
        "items": items,
        "headline": headline(plan, found, evaluation),
        **(vars(verdict_tables(found)) if found else {}),
        "simulated_parts": simulated_parts(plan, replay),
        "simulated_inputs": simulated_parts(plan),
        **review(plan, evaluation, items),
        **plan_part(plan),
        "timeline": plan_timeline(plan, [row.pk for row in replays]),
        "way": way(plan),
        "facts": table_facts(plan),
        **vars(progress(plan, [row.pk for row in replays])),
    }
    return PlanPage(evaluation, context)


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def headline(plan: Plan, found: ReplayVerdict | None, evaluation: GateEvaluation | None) -> str:
    """Return the verdict in one or more sentences, with its numbers.

    Parameters
    ----------
    plan
        The plan.
    found
        The verdict of the shown replay; None while no replay has succeeded.
    evaluation
        The latest evaluation; None before the first.

    Returns
    -------
    str
        Loads in requests/s, p99 latencies in seconds, hit rates in percent of prompt tokens.
    """
    if plan.kind == Plan.Kind.FLAT:
        return "Flat-LB sends each request to the less loaded of two destinations; every fleet can fall back to it."
    if plan.state == Plan.State.FAILED:
        return f"The table could not be built: {plan.failure}"
    if found is None:
        return "Nothing can be said yet: no replay against Flat-LB has finished."
    replay, verdict = found.replay, found.verdict
    capacity = verdict.capacity
    sentence = (
        f"Within a p99 of {replay.slo_p99_s:g} s it serves {capacity[CANDIDATE]} requests/s where Flat-LB serves "
        f"{capacity[BASELINE]}"
    )
    if (compared := compared_at(found)) is not None:
        load, mine, flat = compared
        sentence += (
            f"; at {load:g} requests/s p99 is {_seconds(mine.p99_s.mean)} s against "
            f"{_seconds(flat.p99_s.mean)} s and {_share(mine.hit_rate)} of prompt tokens are cached "
            f"against {_share(flat.hit_rate)}"
        )
    if replay.what_if:
        reasons = " and ".join(replay.parameters.get("what_if", [])) or "other rules"
        return f"What if, with {reasons}: {sentence[0].lower()}{sentence[1:]}. This replay is no evidence."
    return f"{sentence}.{_better(verdict)}{_checks(evaluation)}"


def _share(mean: MeanOfSeeds | None) -> str:
    return "an unknown share" if mean is None else f"{mean.mean:.1%}"


def _better(verdict: Verdict) -> str:
    """Policies that pass more of the ladder than the plan does, over all seeds."""
    found = {name: row.capacity for name, row in verdict.policies.items() if row.capacity.steps}
    if CANDIDATE not in found:
        return ""
    own = sum(found[CANDIDATE].steps)
    better = [f"{policy_name(name)} ({row.text})" for name, row in found.items() if sum(row.steps) > own]
    return f" {' and '.join(better)} {'serves' if len(better) == 1 else 'serve'} more than the plan." if better else ""


def _checks(evaluation: GateEvaluation | None) -> str:
    if evaluation is None:
        return " The checklist was not evaluated."
    open_items = [
        f"{item.number} ({item.verdict}{', waived' if item.waived else ''})"
        for item in evaluation.items.all()
        if item.verdict != "pass"
    ]
    if not open_items:
        return " All six checks pass."
    return f" Not passed: {'check' if len(open_items) == 1 else 'checks'} {', '.join(open_items)}."


def way(plan: Plan) -> list[dict[str, str]]:
    """The steps from order to traffic: done, current or ahead."""
    if plan.kind == Plan.Kind.FLAT:
        return []  # Flat-LB is never built, replayed or reviewed, so these states are not shown as done.
    states = [*WAY, "canary", "active"]
    live = plan.rollouts.filter(state__in=("canary", "active")).order_by("-id").first()
    current = live.state if live else plan.state
    if current not in states:
        return []
    at = states.index(current)
    return [
        {"state": s, "label": s.replace("_", " "), "is": "done" if i < at else "current" if i == at else "ahead"}
        for i, s in enumerate(states)
    ]


def progress(plan: Plan, replays: list[int] | None = None) -> Progress:
    """Progress of the open job of the plan; `open` is False when there is none. ``replays``: all of the plan, where
    known.
    """
    if replays is None:
        replays = list(plan.replays.values_list("pk", flat=True))
    jobs = Job.objects.filter(fleet=plan.fleet, state__in=Job.OPEN)
    job = jobs.filter(kind=Job.Kind.BUILD_PLAN, subject_id=plan.pk).first()
    if job is None and replays:
        job = jobs.filter(kind=Job.Kind.REPLAY, subject_id__in=replays).first()
    if job is not None:
        with_progress([job])
    return Progress(plan, job, open=job is not None)


def other_replays(replays: list[Replay], shown: Replay | None) -> list[Replay]:
    """The latest of the replays that succeeded and are not shown."""
    if shown is None:
        return []
    return [row for row in replays if row.state == Replay.State.SUCCEEDED and row.pk != shown.pk][:SHOWN_REPLAYS]


@dataclass(frozen=True)
class ChartData:
    """What the charts of a plan draw: the planned load of each destination, and the verdict of the shown replay.

    Attributes
    ----------
    destinations, capacity, planned
        Name, speed and planned requests/s of each destination.
    policies
        Policies of the replay in the order of legends; empty without a replay, as `capacities` and `events` are.
    first_shown
        The load that charts of a single load show first, requests/s.
    capacities, events
        By policy: its capacity, and the label of each of its dips.
    simulated
        Parts that are simulated, in words.
    """

    destinations: list[str]
    capacity: list[float]
    planned: list[float]
    planned_imbalance: float
    verdict: Verdict | None
    policies: list[str]
    first_shown: float | None
    capacities: dict[str, CapacityMark]
    events: dict[str, list[str]]
    simulated: list[str]


def chart_data(slug: str, number: int, replay_pk: int | None = None) -> ChartData | None:
    """Return the data of the charts of a plan.

    Parameters
    ----------
    slug, number
        The fleet, and the number of the plan in it.
    replay_pk
        Id of the replay to show; by default the replay that the page of the plan shows.

    Returns
    -------
    ChartData or None
        None when there is no such plan, or it is not built.
    """
    plan = Plan.objects.select_related("fleet", "workload", "calibration").filter(fleet__slug=slug, number=number)
    row = plan.defer("workload__shape", "workload__notices").first()
    if row is None or not row.summary:
        return None
    replay = shown_replay(replays_of(row), replay_pk)
    found = None if replay is None else ReplayVerdict(replay)
    names = dict(row.fleet.destinations.values_list("index", "name"))
    return ChartData(
        destinations=[names.get(i, f"#{i}") for i in row.parameters["destinations"]],
        capacity=row.capacity,
        planned=row.summary["load"],
        planned_imbalance=row.summary["imbalance"],
        verdict=found.verdict if found else None,
        policies=in_order(found.replay.policies) if found else [],
        first_shown=shown_load(found) if found else None,
        capacities=capacities(found) if found else {},
        events={p: event_labels(found, p) for p in found.replay.policies} if found else {},
        simulated=simulated_parts(row, replay),
    )
