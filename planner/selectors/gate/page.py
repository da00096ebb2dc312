"""The evidence of an evaluation as it was seen: nothing is read but what was stored then, and who decided on it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from planner.analysis.verdict import Comparison, LoadDifference, PolicyFigures
from planner.digests import digest
from planner.models import GateEvaluation, Plan
from planner.records import JsonObject
from planner.selectors.replays.policy_names import policy_name
from planner.selectors.replays.verdict_page import FigureRow
from planner.selectors.reviews.page import Decision, decisions_on

Rows = list[tuple[str, Any]]

# What the values of a policy are called; the rest are called by their names.
POLICY_WORDS = {
    "version": "version",
    "slo_p99_s": "SLO, p99 within, s",
    "min_approvals": "approvals needed",
    "max_rates_age_days": "age of rates, days at most",
    "approval_days": "approvals hold, days",
    "max_imbalance": "planned max/mean at most",
    "max_loss_imbalance": "planned max/mean after a loss at most",
    "accept_simulated": "simulated evidence accepted",
    "min_loads": "loads at least",
    "min_seeds": "paired seeds at least",
    "min_requests": "measured requests a cell at least",
    "canary_weights": "canary steps, shares of keys",
    "canary_holds_s": "each watched for, s",
    "canary_warmup_s": "warm-up left out, s",
    "canary_min_requests": "requests of each arm at least",
    "max_error_rate": "share of errors at most",
    "auto_advance": "advance automatically",
    "auto_abort": "abort automatically",
    "auto_fall_back": "fall back automatically",
    "breaches_to_fall_back": "after so many checks outside in a row",
    "cool_down_s": "cool-down after that, s",
    "telemetry_stale_s": "telemetry is silent after, s",
}
ENVELOPE_WORDS = {
    "p99_limit_s": "p99 up to, s",
    "load_low_rps": "load from, requests/s",
    "load_high_rps": "load up to, requests/s",
    "active_keys": "active keys",
    "max_imbalance": "max/mean requests up to",
    "max_error_rate": "share of errors up to",
}
RADIUS_WORDS = {
    "keys_gained": "keys gained",
    "keys_lost": "keys lost",
    "keys_moved": "keys moved",
    "keys_gone": "keys of the old table that are unknown now",
    "rate_moved": "share of the rate whose destinations change",
    "tenant_count": "tenants touched",
    "rewarm_tokens": "tokens to warm again",
}
DIP_WORDS = {
    "cold_share": "share of requests that meet a cold destination at first",
    "half_s": "until half of that is left, s",
    "tenth_s": "until a tenth of that is left, s",
}


def evidence_address(plan: Plan, evaluation_id: int) -> str:
    """The page of an evaluation's evidence."""
    return reverse("plan-evidence", args=[plan.fleet.slug, plan.number, evaluation_id])


def evidence_page(evaluation: GateEvaluation) -> dict[str, object]:
    """Tables of the page, from the stored evidence, its items, and the decisions made on its digest.

    Evidence of older formats lacks parts; what is not there is not shown.
    """
    evidence = evaluation.evidence
    return {
        "evaluation": evaluation,
        "plan": evaluation.plan,
        "items": list(evaluation.items.all()),
        "untouched": digest(evidence) == evaluation.evidence_digest,
        "format": evidence.get("format"),
        "loads": load_rows(evidence),
        "differences": difference_rows(evidence),
        "capacity": [
            (policy_name(name), text) for name, text in (evidence.get("replay") or {}).get("capacity", {}).items()
        ],
        "policy": _named(evidence.get("policy"), POLICY_WORDS, rest=True),
        "envelope": _named(evidence.get("envelope"), ENVELOPE_WORDS),
        "radius": _named(evidence.get("blast_radius"), RADIUS_WORDS),
        "dip": _named((evidence.get("blast_radius") or {}).get("dip"), DIP_WORDS),
        "against": (evidence.get("blast_radius") or {}).get("against"),
        "tenants": (evidence.get("blast_radius") or {}).get("tenants", []),
        "sources": _sources(evidence),
        "waivers": evidence.get("waivers", []),
        "simulated": _simulated(evidence),
        "decisions": decisions(evaluation),
        "comments": list(
            evaluation.plan.comments.filter(evidence_digest=evaluation.evidence_digest).select_related("author")
        ),
    }


def decisions(evaluation: GateEvaluation) -> list[Decision]:
    """Who decided on this very evidence, however often it was judged."""
    rows = evaluation.plan.approvals.filter(evidence_digest=evaluation.evidence_digest)
    return decisions_on(evaluation.plan, rows, evaluation.evidence_digest)


def load_rows(evidence: JsonObject) -> list[FigureRow]:
    """A row a load and policy: means with 95% intervals over seeds, as the replay had them."""
    replay = evidence.get("replay")
    if not replay:
        return []
    of = [("cacheroute", replay["cacheroute"]), ("flat-lb", replay["flat"])]
    if beside := replay.get("incumbent"):
        of.append((beside["policy"], beside))
    found = [(row, policy) for policy, figures in of for row in PolicyFigures.from_json(figures).loads]
    found.sort(key=lambda pair: pair[0].load_rps)  # stable: policies stay in order
    loads = [None, *(row.load_rps for row, _ in found)]
    return [
        FigureRow(
            load=row.load_rps,
            policy=policy,
            name=policy_name(policy),
            figures=row,
            within=row.p99_s.mean <= replay["slo_p99_s"],
            first=before != row.load_rps,
        )
        for before, (row, policy) in zip(loads, found, strict=False)
    ]


@dataclass(frozen=True)
class ComparedRow:
    """Paired differences at a load, candidate minus another: p99 and hit rate of Flat-LB, p99 of the active plan."""

    load: float
    p99_s: LoadDifference | None
    hit_rate: LoadDifference | None
    incumbent_p99_s: LoadDifference | None


def difference_rows(evidence: JsonObject) -> list[ComparedRow]:
    """A row a load: paired differences of p99 and hit rate to Flat-LB, and to the plan that was active."""
    replay = evidence.get("replay")
    if not replay or not replay.get("against_flat"):
        return []
    against = Comparison.from_json(replay["against_flat"])
    beside = replay.get("incumbent")
    # Stored is the incumbent minus the candidate; every column here is the candidate minus another.
    incumbent = [
        dataclasses.replace(row, mean=-row.mean)
        for row in Comparison.from_json(beside["against"] if beside else {}).p99_s
    ]
    columns = [{row.load_rps: row for row in rows} for rows in (against.p99_s, against.hit_rate, incumbent)]
    loads = sorted({load for column in columns for load in column})
    return [ComparedRow(load, *(column.get(load) for column in columns)) for load in loads]


def _named(values: JsonObject | None, words: dict[str, str], *, rest: bool = False) -> Rows:
    if not values:
        return []
    found: Rows = [(text, values[name]) for name, text in words.items() if name in values]
    if rest:
        found += [(name.replace("_", " "), value) for name, value in values.items() if name not in words]
    return found


def _sources(evidence: JsonObject) -> Rows:
    """What it was made of: digests and measurements."""
    workload, calibration = evidence.get("workload") or {}, evidence.get("calibration") or {}
    replay, plan = evidence.get("replay") or {}, evidence.get("plan") or {}
    rows: Rows = [
        ("table sha256", plan.get("table_digest")),
        ("inputs sha256", plan.get("inputs_digest")),
        ("built by code", plan.get("code_version")),
        ("keys admitted", plan.get("admitted")),
        ("slots used", f"{plan['slots_used']:,} of {plan['slots']:,}" if "slots" in plan else None),
        ("rates", workload.get("name")),
        ("rates sha256", workload.get("rates_digest")),
        ("rates measured", workload.get("measured_at")),
        ("requests/s measured", workload.get("total_rps")),
        ("trace sha256", workload.get("trace_digest")),
        ("q_cap, requests/s", calibration.get("q_cap")),
        ("W calibrated", calibration.get("warm_slots")),
        ("calibration", calibration.get("source")),
        ("replay", replay.get("id")),
        ("figures sha256", replay.get("figures_digest")),
        ("seeds", ", ".join(map(str, replay["seeds"])) if replay.get("seeds") else None),
        ("arrivals", replay.get("arrivals")),
        ("replayed by code", replay.get("code_version")),
    ]
    for name, value in (evidence.get("fingerprints") or {}).items():
        rows.append((f"fingerprint of the {name}", value))
    return [(name, value) for name, value in rows if value not in (None, "")]


def _simulated(evidence: JsonObject) -> str:
    """What of it was simulated, in words. The replicas of a replay always are."""
    replay = evidence.get("replay")
    parts = [
        ("generated rates", (evidence.get("workload") or {}).get("simulated")),
        ("simulated calibration", (evidence.get("calibration") or {}).get("source") == "simulated"),
        ("synthetic requests", replay and replay.get("synthetic_trace")),
        ("simulated replicas", replay),
    ]
    return ", ".join(words for words, on in parts if on)
