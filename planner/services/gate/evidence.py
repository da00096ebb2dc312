"""The evidence of a plan: every value that its checklist depends on. Equal facts have equal digests."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef
from django.utils import timezone

from planner.analysis.verdict import LoadFigures, PolicyFigures
from planner.checklist import apart
from planner.checklist.evidence import (
    Distribution,
    Envelope,
    Evidence,
    IncumbentEvidence,
    OtherRates,
    ReplanEvidence,
    WaiverEvidence,
)
from planner.errors import Conflict
from planner.models import (
    BASELINE,
    CANDIDATE,
    Calibration,
    Destination,
    Fleet,
    Plan,
    Replay,
    ReplayCell,
    Waiver,
    Workload,
)
from planner.records import JsonObject
from planner.selectors.rollouts.incumbents import incumbent_of, why_apart
from planner.services.fleets.policy import policy_of
from planner.services.gate.preload import Preloaded, held_against, read

# Increase it when evidence gains or changes a field: older evaluations are then out of date, and say so.
FORMAT = "cacheroute.evidence/4"
# Options of a replay that determine its figures. Replays older than an option do not have it.
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
# Label of another plan of the fleet in a replay, before its number.
_OTHER = f"{CANDIDATE}@"


def collect_evidence(plan: Plan, stored: Preloaded | None = None) -> Evidence:
    """Collect all facts that the verdict depends on, as plain values: equal facts always give the same digest.

    What changes every minute (telemetry, the monitor) is not included: `evaluations.live_of` returns that. Under a
    lock, `stored` holds what was read before it; without a lock, files are read here.
    """
    fleet = Fleet.objects.select_related("serving_profile").get(pk=plan.fleet_id)
    workload, calibration = plan.workload, plan.calibration
    if workload is None or calibration is None or plan.table is None:
        raise Conflict(f"{plan} is {plan.get_state_display()}: there is no table to judge")
    finished = plan.replays.filter(state=Replay.State.SUCCEEDED).order_by("-id")
    # What-if replays (faults, plan switches, other parameters) are a separate part of the evidence: they do not judge
    # the plan as it is.
    replay = finished.filter(what_if=False).select_related("workload__rates").first()
    up = list(fleet.destinations.filter(state=Destination.State.UP).order_by("index").values_list("index", "weight"))
    summary, incumbent, policy = plan.summary, incumbent_of(plan), policy_of(fleet)
    radius = (stored or read(plan)).radius(plan, incumbent or held_against(plan))
    replan, live = _replan(plan, incumbent), _incumbent(plan, incumbent)
    envelope = _envelope(replay, policy, summary)
    found = {
        "format": FORMAT,
        "fleet": fleet.slug,
        "destinations_up": [index for index, _ in up],
        "capacity_up": [weight for _, weight in up],
        "policy": policy,
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
            # Plans that were built before these values were recorded have none.
            **{k: summary.get(k) for k in ("most_held", "peak_use", "worst_loss", "admission")},
        },
        "replan": replan and replan.to_json(),
        "incumbent": live and live.to_json(),
        "workload": {
            "id": workload.pk,
            "name": workload.name,
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
            "margin": calibration.margin,
            "sweep_points": len(calibration.points),
            "recorded_at": calibration.created_at.isoformat(),
        },
        "replay": _replay(replay, incumbent),
        # Only where there is no ordinary replay, so that earlier evaluations of ordinary replays stay current.
        **({"what_ifs": [_what_if(row) for row in finished]} if replay is None and finished else {}),
        "envelope": envelope and envelope.to_json(),
        "fallback": {"ready": fleet.plans.filter(kind=Plan.Kind.FLAT, state=Plan.State.APPROVED).exists()},
        "fingerprints": {
            "fleet": fleet.serving_profile.fingerprint,
            "calibration": calibration.serving_profile.fingerprint,
            "plan": plan.fingerprint,
            "replay": replay.fingerprint if replay else "",
        },
        "distribution": _distribution(fleet, workload, calibration, replay).to_json(),
        # None where a table or the rates cannot be read; a check reports that.
        "blast_radius": radius and radius.to_json(),
        "waivers": [waiver.to_json() for waiver in waivers_in_force(plan)],
    }
    return Evidence.from_json(as_stored(found))


def as_stored(value: Any) -> Any:
    """The value as the database returns it (it stores no minus zero), so that the digest is of the stored value."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: as_stored(item) for name, item in value.items()}
    return [as_stored(item) for item in value] if isinstance(value, list | tuple) else value


def waivers_in_force(plan: Plan) -> list[WaiverEvidence]:
    """Waivers that are granted, not revoked and not expired: when one of them ends, the digest changes."""
    rows = plan.waivers.filter(granted_at__isnull=False, ended_at=None, expires_at__gt=timezone.now())
    return [_waiver(row) for row in rows.select_related("requested_by", "granted_by").order_by("id")]


def _waiver(row: Waiver) -> WaiverEvidence:
    # A constraint: a granted waiver has all of its fields.
    assert row.granted_by is not None
    assert row.granted_at is not None
    return WaiverEvidence(
        id=row.pk,
        check=row.check_name,
        reason=row.reason,
        requested_by=row.requested_by.get_username(),
        requested_at=row.created_at.isoformat(),
        granted_by=row.granted_by.get_username(),
        granted_at=row.granted_at.isoformat(),
        expires_at=row.expires_at.isoformat(),
    )


def _replan(plan: Plan, incumbent: Plan | None) -> ReplanEvidence | None:
    """What a replan keeps and moves; and whether the plan that it keeps warm is active, or was until the replan
    replaced it.
    """
    if plan.incumbent is None or plan.incumbent.table is None:
        return None
    return ReplanEvidence(
        incumbent=plan.incumbent.number,
        incumbent_table=plan.incumbent.table.digest,
        incumbent_is_live=incumbent is not None and incumbent.pk == plan.incumbent_id,
        **{k: plan.summary.get(k) for k in ("moved_share", "cooled_share", "rewarm_tokens")},
    )


def _incumbent(plan: Plan, incumbent: Plan | None) -> IncumbentEvidence | None:
    """The active plan, unless it is Flat-LB; `apart` says why it cannot be replayed together with this plan."""
    if incumbent is None or incumbent.table is None:
        return None
    return IncumbentEvidence(
        plan=incumbent.number, table_digest=incumbent.table.digest, apart=why_apart(plan, incumbent)
    )


def _what_if(replay: Replay) -> JsonObject:
    return {"id": replay.pk, "with": replay.parameters["what_if"]}


def _replay(replay: Replay | None, incumbent: Plan | None) -> JsonObject | None:
    """The columns of the replay; figures of an older replay have the entries that they were stored with."""
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
        # How the figures were made: approvers see the same.
        **{name: replay.parameters.get(name) for name in MADE_WITH},
        "runs": _runs(replay),
        "refined_loads": replay.refined_loads,
        "figures_digest": replay.figures_digest,
        # Requests that the smallest cell served after the warm-up, not the number ordered: a trace may be shorter.
        "measured_requests": min(
            row["requests"] for policy in (CANDIDATE, BASELINE) for row in verdict["policies"][policy]["loads"]
        ),
        "earlier_replays": _earlier(replay),
        "capacity": verdict["capacity"],
        "cacheroute": verdict["policies"]["cacheroute"],
        "flat": verdict["policies"]["flat-lb"],
        "against_flat": verdict["against_flat"]["cacheroute"],
        "incumbent": _beside(replay, incumbent),
    }


def _beside(replay: Replay, incumbent: Plan | None) -> JsonObject | None:
    """Figures of the active plan if this replay included it with its present table; otherwise None."""
    if incumbent is None or incumbent.table is None:
        return None
    label = f"{_OTHER}{incumbent.number}"
    tables = [row["table"] for row in replay.parameters.get("also") or [] if row["plan"] == incumbent.number]
    against = replay.verdict.get("against_candidate", {}).get(label)
    if tables != [incumbent.table.digest] or against is None:
        return None
    return {"policy": label, "against": against, **replay.verdict["policies"][label]}


def _runs(replay: Replay) -> int | None:
    """Number of runs of gaps, without overlap, that the bootstrap can draw from; None without a run length.

    The default run length is the cube root of the number of gaps, so that more requests always give more runs.
    """
    length = replay.parameters.get("run_length")
    if not length:
        return None
    requests: int = replay.parameters["requests"]
    if not replay.parameters.get("synthetic_trace"):
        requests = min(requests, replay.workload.request_count)
    return (requests - 1) // int(length)


def _earlier(replay: Replay) -> int:
    """Earlier replays of the plan whose figures somebody may have seen, however they ended."""
    seen = ReplayCell.objects.filter(replay=OuterRef("pk"), state=ReplayCell.State.SUCCEEDED)
    return replay.plan.replays.filter(Exists(seen), what_if=False, pk__lt=replay.pk).count()


def _envelope(replay: Replay | None, policy: JsonObject, summary: JsonObject) -> Envelope | None:
    """Return the validated range of the replay; outside it the fleet falls back (paper, section 5.7, item 5).

    ``max_imbalance`` is the largest of: max/mean of requests replayed within the range, planned after the loss of one
    destination, and allowed by the policy. ``max_error_rate`` is the policy's.
    """
    if replay is None:
        return None
    met: list[LoadFigures] = []
    for row in PolicyFigures.from_json(replay.verdict["policies"][CANDIDATE]).loads:
        # As for capacity: a load counts only while every lower load meets the SLO too.
        if row.p99_s.mean > replay.slo_p99_s:
            break
        met.append(row)
    if not met:
        return None
    active = max(cell.figures["active_keys"] for cell in replay.cells.filter(policy="cacheroute"))
    replayed = [row.imbalance.mean for row in met if row.imbalance]
    return Envelope(
        p99_limit_s=replay.slo_p99_s,
        load_low_rps=met[0].load_rps,
        load_high_rps=met[-1].load_rps,
        active_keys=active,
        max_imbalance=max([policy["max_imbalance"], summary.get("worst_loss") or 1.0, *replayed]),
        max_error_rate=policy["max_error_rate"],
    )


def _distribution(fleet: Fleet, workload: Workload, calibration: Calibration, replay: Replay | None) -> Distribution:
    """Digests of the rates; and workloads with a distribution of another shape: the calibrated one, and a newer one."""
    # Only a simulated calibration has a workload; a sweep of a real destination was made with traffic.
    made_with = calibration.parameters.get("workload")
    others = fleet.workloads.exclude(pk=workload.pk).defer("notices")
    calibrated = others.filter(pk=made_with).first() if made_with not in (None, workload.pk) else None
    newer = others.filter(measured_at__gt=workload.measured_at, simulated=workload.simulated)
    newest = newer.order_by("-measured_at", "-id").first()
    return Distribution(
        plan=workload.rates.digest,
        replay=replay.workload.rates.digest if replay else "",
        calibration=_other_shape(workload, calibrated),
        # Only rates of another shape are listed: measuring the same shape again changes nothing.
        newer=_other_shape(workload, newest),
    )


def _other_shape(workload: Workload, other: Workload | None) -> OtherRates | None:
    if other is None or not (found := apart(workload.shape, other.shape)):
        return None
    return OtherRates(id=other.pk, name=other.name, apart=found)
