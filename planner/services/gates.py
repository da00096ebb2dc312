"""Collecting the evidence of a plan and judging it by the checklist."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from planner.digests import digest
from planner.errors import Conflict
from planner.models import (
    BASELINE,
    CANDIDATE,
    Destination,
    Fleet,
    GateEvaluation,
    GateItem,
    Plan,
    Replay,
    ReplayCell,
    Rollout,
)
from planner.services import audit, rights
from planner.services.checklist import CHECKLIST, PASS, Judgement
from planner.services.fleets import policy_of

# Raise it when evidence gains or changes a field: what was judged before is then judged again, and told so.
FORMAT = "cacheroute.evidence/4"
# Options of a replay that decide what its figures are. Replays that are older than an option have none.
MADE_WITH = (
    "requests",
    "warmup",
    "cv",
    "run_length",
    "policy_parameters",
    "refine",
    "extend",
    "also",
    "synthetic_trace",
)


def collect_evidence(plan: Plan) -> dict[str, Any]:
    """All that the verdict rests on, as plain values: the same facts always give the same digest."""
    fleet = Fleet.objects.select_related("serving_profile").get(pk=plan.fleet_id)
    workload, calibration = plan.workload, plan.calibration
    if workload is None or calibration is None or plan.table is None:
        raise Conflict(f"{plan} is {plan.get_state_display()}: there is no table to judge")
    finished = plan.replays.filter(state=Replay.State.SUCCEEDED).order_by("-id")
    # Faults, plan switches and other rules are another kind of evidence: they tell nothing of the plan as it is.
    replay = finished.filter(what_if=False).first()
    up = list(fleet.destinations.filter(state=Destination.State.UP).order_by("index").values_list("index", "weight"))
    summary = plan.summary
    return {
        "format": FORMAT,
        "fleet": fleet.slug,
        "destinations_up": [index for index, _ in up],
        "capacity_up": [weight for _, weight in up],
        "policy": policy_of(fleet),
        "plan": {
            "number": plan.number,
            "table_digest": plan.table.digest,
            "inputs_digest": plan.inputs_digest,
            "destinations": plan.parameters["destinations"],
            "capacity": plan.capacity,
            "code_version": plan.code_version,
            "slots_per_destination": plan.parameters["slots_per_destination"],
            "slots": plan.parameters["slots"],
            **{k: summary[k] for k in ("keys", "admitted", "slots_used", "imbalance", "cannot_fit", "admitted_share")},
            # Plans that were built before these were known have none.
            **{k: summary.get(k) for k in ("most_held", "peak_use", "worst_loss", "admission")},
        },
        "replan": _replan(plan),
        "workload": {
            "id": workload.pk,
            "rates_digest": workload.rates.digest,
            "trace_digest": workload.trace.digest if workload.trace else None,
            "measured_at": workload.measured_at.isoformat(),
            "measured_at_stated": bool(workload.parameters.get("measured_at_stated", True)),
            "simulated": workload.simulated,
            "total_rps": workload.total_rps,
        },
        "calibration": {
            "id": calibration.pk,
            "source": calibration.source,
            "q_cap": calibration.q_cap,
            "q_cap_censored": calibration.q_cap_censored,
            "warm_slots": calibration.warm_slots,
            "slots_measured": calibration.slots_measured,
            "sweep_points": len(calibration.points),
            "recorded_at": calibration.created_at.isoformat(),
        },
        "replay": _replay(replay),
        # Only where there is nothing else: what was judged on an ordinary replay stays as it was judged.
        **({"what_ifs": [_what_if(row) for row in finished]} if replay is None and finished else {}),
        "envelope": _envelope(replay),
        "fallback": {"ready": fleet.plans.filter(kind=Plan.Kind.FLAT, state=Plan.State.APPROVED).exists()},
        "fingerprints": {
            "fleet": fleet.serving_profile.fingerprint,
            "calibration": calibration.serving_profile.fingerprint,
            "plan": plan.fingerprint,
            "replay": replay.fingerprint if replay else "",
        },
    }


def _replan(plan: Plan) -> dict[str, Any] | None:
    """What a replan keeps and moves; and whether what it keeps warm is what serves now."""
    if plan.incumbent is None or plan.incumbent.table is None:
        return None
    live = plan.fleet.rollouts.filter(state=Rollout.State.ACTIVE).values_list("plan_id", flat=True).first()
    return {
        "incumbent": plan.incumbent.number,
        "incumbent_table": plan.incumbent.table.digest,
        "incumbent_is_live": live == plan.incumbent_id,
        **{k: plan.summary.get(k) for k in ("moved_share", "cooled_share", "rewarm_tokens")},
    }


def _what_if(replay: Replay) -> dict[str, Any]:
    return {"id": replay.pk, "with": replay.parameters["what_if"]}


def _replay(replay: Replay | None) -> dict[str, Any] | None:
    if replay is None:
        return None
    verdict = replay.verdict
    return {
        "id": replay.pk,
        "code_version": replay.code_version,
        "policies": replay.policies,
        "loads_rps": replay.loads_rps,
        "seeds": replay.seeds,
        "arrivals": replay.arrivals,
        "slo_p99_s": replay.slo_p99_s,
        # How it was made: who approves is shown the same.
        **{name: replay.parameters.get(name) for name in MADE_WITH},
        "runs": _runs(replay),
        "refined_loads": replay.refined_loads,
        "figures_digest": replay.figures_digest,
        # What the smallest cell served after the warm-up, not what was asked for: a trace may be shorter.
        "measured_requests": min(
            row["requests"] for policy in (CANDIDATE, BASELINE) for row in verdict["policies"][policy]["loads"]
        ),
        "earlier_replays": _earlier(replay),
        "capacity": verdict["capacity"],
        "cacheroute": verdict["policies"]["cacheroute"],
        "flat": verdict["policies"]["flat-lb"],
        "against_flat": verdict["against_flat"]["cacheroute"],
    }


def _runs(replay: Replay) -> int | None:
    """Runs of gaps that do not overlap, where a bootstrap was given the length of its runs.

    By default a run is the cube root of the gaps long, so that more requests always give more runs.
    """
    length = replay.parameters.get("run_length")
    if not length:
        return None
    requests: int = replay.parameters["requests"]
    if not replay.parameters.get("synthetic_trace"):
        requests = min(requests, replay.workload.request_count)
    return (requests - 1) // int(length)


def _earlier(replay: Replay) -> int:
    """Earlier replays of the plan of which somebody may have seen figures, however they ended."""
    seen = ReplayCell.objects.filter(replay=OuterRef("pk"), state=ReplayCell.State.SUCCEEDED)
    return replay.plan.replays.filter(Exists(seen), what_if=False, pk__lt=replay.pk).count()


def _envelope(replay: Replay | None) -> dict[str, Any] | None:
    """The range that the replay validated; outside it the fleet falls back (paper, section 5.7, item 5)."""
    if replay is None:
        return None
    met: list[float] = []
    for row in replay.verdict["policies"][CANDIDATE]["loads"]:
        # As capacity is read: a load counts only while every lower one meets the SLO too.
        if row["p99_s"]["mean"] > replay.slo_p99_s:
            break
        met.append(row["load_rps"])
    if not met:
        return None
    active = max(cell.figures["active_keys"] for cell in replay.cells.filter(policy="cacheroute"))
    return {
        "p99_limit_s": replay.slo_p99_s,
        "load_low_rps": met[0],
        "load_high_rps": met[-1],
        "active_keys": active,
    }


def judge(evidence: dict[str, Any]) -> list[Judgement]:
    """The six judgements, in order."""
    now = timezone.now()
    return [check(evidence, now) for _, check in CHECKLIST]


def evaluate_gate(*, acting_user: User, plan: Plan) -> GateEvaluation:
    """Judge the plan now, because somebody with the right to plan asks for it."""
    rights.require(acting_user, rights.PLAN, plan.fleet)
    return judge_plan(acting_user=acting_user, plan=plan)


@transaction.atomic
def judge_plan(*, acting_user: User | None, plan: Plan) -> GateEvaluation:
    """Judge the plan now and store evidence, verdicts and digest. Older evaluations stay as they are."""
    from planner.services.plans import lock_plan

    plan = lock_plan(plan.pk)
    evidence = collect_evidence(plan)
    judgements = judge(evidence)
    evaluation = GateEvaluation.objects.create(
        plan=plan,
        replay_id=evidence["replay"]["id"] if evidence["replay"] else None,
        passed=all(j.verdict == PASS for j in judgements),
        evidence=evidence,
        evidence_digest=digest(evidence),
        created_by=acting_user,
    )
    GateItem.objects.bulk_create(
        GateItem(
            evaluation=evaluation,
            number=number,
            title=title,
            verdict=judgement.verdict,
            explanation=judgement.explanation,
            numbers=judgement.numbers,
            links=_links(plan, evaluation, number),
        )
        for number, ((title, _), judgement) in enumerate(zip(CHECKLIST, judgements, strict=True), start=1)
    )
    audit.record(
        "gate.evaluated",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={"passed": evaluation.passed, "items": [j.verdict for j in judgements]},
        evidence_digest=evaluation.evidence_digest,
    )
    return evaluation


def _links(plan: Plan, evaluation: GateEvaluation, number: int) -> list[list[str]]:
    replay = [["replay", f"/api/v1/replays/{evaluation.replay_id}/"]] if evaluation.replay_id else []
    calibration = ["calibration", f"/api/v1/calibrations/{plan.calibration_id}/"]
    return {
        1: [["workload", f"/api/v1/workloads/{plan.workload_id}/"], calibration],
        2: [calibration],
        3: replay,
        4: replay,
        5: replay,
        6: [["fleet", f"/api/v1/fleets/{plan.fleet.slug}/"], calibration, *replay],
    }[number]
