"""What the page of a plan shows: the verdict in one sentence, the figures beside it, the evidence behind it."""

from __future__ import annotations

from typing import Any

from planner.models import BASELINE, GateEvaluation, Job, Plan, Replay
from planner.selectors.audit.page import plan_timeline
from planner.selectors.jobs.progress import with_progress
from planner.selectors.plans.table import table_facts
from planner.selectors.replays.policy_names import CANDIDATE, in_order, policy_name
from planner.selectors.replays.verdict_page import capacities, compared_at, event_labels, shown_load, verdict_tables
from planner.selectors.reviews.page import review
from planner.selectors.rollouts.page import plan_part

# Other replays that the page links to.
SHOWN_REPLAYS = 10
# The way of a plan that goes well, as the page draws it.
WAY = ("queued", "building", "built", "replaying", "replayed", "in_review", "approved")


def shown_replay(replays: list[Replay], pk: int | None = None) -> Replay | None:
    """The replay whose figures stand on the page: the one asked for, else the latest that is evidence, else the latest.

    Of a plan's replays, the newest first, only those that succeeded; a number that is none of them asks for nothing.
    """
    done = [row for row in replays if row.state == Replay.State.SUCCEEDED]
    asked = [row for row in done if row.pk == pk]
    return next(iter(asked or [row for row in done if not row.what_if] or done), None)


def replays_of(plan: Plan) -> list[Replay]:
    """All replays of a plan, the newest first; their verdicts, which are long, are read one by one when asked for."""
    return list(plan.replays.defer("verdict").order_by("-id"))


def unknown_keys(replay: Replay) -> list[str]:
    """What other plans of the replay place that its workload does not know, in words; older replays did not count."""
    others = [*replay.parameters.get("also", []), replay.parameters.get("switch") or {}]
    told = {}
    for other in others:
        if other.get("unknown"):
            count = f"{other['unknown']:,} of {other['keys']:,} keys of plan {other['plan']}"
            told[other["plan"]] = f"{count} are unknown here and get no request"
    return list(told.values())


def simulated_parts(plan: Plan, replay: Replay | None = None) -> list[str]:
    """What of a plan's evidence was simulated, in words. The replicas of a replay always are."""
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


def plan_page(plan: Plan, replay_pk: int | None = None) -> dict[str, Any]:
    """Everything of a plan's page but the fleet's header, with the figures of the given replay of the plan."""
    replays = replays_of(plan)
    replay = shown_replay(replays, replay_pk)
    evaluation = plan.gate_evaluations.prefetch_related("items").order_by("-id").first()
    items = list(evaluation.items.all()) if evaluation else []
    return {
        "plan": plan,
        "replay": replay,
        "unknown_keys": unknown_keys(replay) if replay else [],
        "latest_replay": replays[0] if replays else None,
        "other_replays": other_replays(replays, replay),
        "evaluation": evaluation,
        "items": items,
        "headline": headline(plan, replay, evaluation),
        **(verdict_tables(replay) if replay else {}),
        "simulated_parts": simulated_parts(plan, replay),
        "simulated_inputs": simulated_parts(plan),
        **review(plan, evaluation, items),
        **plan_part(plan),
        "timeline": plan_timeline(plan, [row.pk for row in replays]),
        "way": way(plan),
        "facts": table_facts(plan),
        **progress(plan, [row.pk for row in replays]),
    }


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def headline(plan: Plan, replay: Replay | None, evaluation: GateEvaluation | None) -> str:
    """The verdict in a sentence, with its numbers."""
    if plan.kind == Plan.Kind.FLAT:
        return "Flat-LB sends each request to the less loaded of two destinations; every fleet can fall back to it."
    if plan.state == Plan.State.FAILED:
        return f"The table could not be built: {plan.failure}"
    if replay is None:
        return "Nothing can be said yet: no replay against Flat-LB has finished."
    verdict = replay.verdict
    capacity = verdict["capacity"]
    sentence = (
        f"Within a p99 of {replay.slo_p99_s:g} s it serves {capacity[CANDIDATE]} requests/s where Flat-LB serves "
        f"{capacity[BASELINE]}"
    )
    if (compared := compared_at(replay)) is not None:
        load, mine, flat = compared
        sentence += (
            f"; at {load:g} requests/s p99 is {_seconds(mine['p99_s']['mean'])} s against "
            f"{_seconds(flat['p99_s']['mean'])} s and {mine['hit_rate']['mean']:.1%} of prompt tokens are cached "
            f"against {flat['hit_rate']['mean']:.1%}"
        )
    if replay.what_if:
        reasons = " and ".join(replay.parameters.get("what_if", [])) or "other rules"
        return f"What if, with {reasons}: {sentence[0].lower()}{sentence[1:]}. This replay is no evidence."
    return f"{sentence}.{_better(verdict)}{_checks(evaluation)}"


def _better(verdict: dict[str, Any]) -> str:
    """Policies that pass more of the ladder than the plan does, over the seeds together."""
    found = {name: row["capacity"] for name, row in verdict["policies"].items() if row["capacity"].get("steps")}
    if CANDIDATE not in found:
        return ""
    own = sum(found[CANDIDATE]["steps"])
    better = [f"{policy_name(name)} ({row['text']})" for name, row in found.items() if sum(row["steps"]) > own]
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


def way(plan: Plan) -> list[dict[str, Any]]:
    """The steps from order to traffic: done, current or ahead."""
    if plan.kind == Plan.Kind.FLAT:
        return []  # it was never built, replayed or reviewed, and must not look as if
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


def progress(plan: Plan, replays: list[int] | None = None) -> dict[str, Any]:
    """How far the plan's open job is; `open` is False when there is none. ``replays``: all of the plan, where known."""
    if replays is None:
        replays = list(plan.replays.values_list("pk", flat=True))
    jobs = Job.objects.filter(fleet=plan.fleet, state__in=Job.OPEN)
    job = jobs.filter(kind=Job.Kind.BUILD_PLAN, subject_id=plan.pk).first()
    if job is None and replays:
        job = jobs.filter(kind=Job.Kind.REPLAY, subject_id__in=replays).first()
    if job is not None:
        with_progress([job])
    return {"plan": plan, "job": job, "open": job is not None}


def other_replays(replays: list[Replay], shown: Replay | None) -> list[Replay]:
    """The latest of the replays that succeeded and are not shown."""
    if shown is None:
        return []
    return [row for row in replays if row.state == Replay.State.SUCCEEDED and row.pk != shown.pk][:SHOWN_REPLAYS]


def chart_data(slug: str, number: int, replay_pk: int | None = None) -> dict[str, Any] | None:
    """What the charts draw: the plan's own load and the shown replay's verdict; None without a built plan."""
    plan = Plan.objects.select_related("fleet", "workload", "calibration").filter(fleet__slug=slug, number=number)
    found = plan.defer("workload__shape", "workload__notices").first()
    if found is None or not found.summary:
        return None
    replay = shown_replay(replays_of(found), replay_pk)
    names = dict(found.fleet.destinations.values_list("index", "name"))
    return {
        "destinations": [names.get(i, f"#{i}") for i in found.parameters["destinations"]],
        "capacity": found.capacity,
        "planned": found.summary["load"],
        "planned_imbalance": found.summary["imbalance"],
        "verdict": replay.verdict if replay else None,
        "policies": in_order(replay.policies) if replay else [],
        "first_shown": shown_load(replay) if replay else None,
        "capacities": capacities(replay) if replay else {},
        "events": {p: event_labels(replay, p) for p in replay.policies} if replay else {},
        "simulated": simulated_parts(found, replay),
    }
