"""The explanation page of a plan: one key or destination, and the sensitivity of the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.errors import Refused
from planner.models import Job, Plan, Study
from planner.selectors.plans.explanations import destination_names, explain
from planner.selectors.plans.page import simulated_parts

REASONS = {
    "admitted": "admitted",
    "slots_gone": "all slots were taken before its rank",
    "slots_short": "fewer slots were left than it needs",
    "tokens_short": "fewer KV tokens were left than it needs",
    "no_room": "too few destinations had room for its tokens",
    "quota_full": "its tenant's quota was full",
    "preferred_others": "the policy preferred others",
    "not_told": "more than one limit, or the table does not tell which",
}
# Labels of the figures of a reason; other figures appear only in the sentence.
FIGURES = {
    "keys_before": "Keys before it",
    "slots": "Warm slots of the plan",
    "last_rate": "Rate of the last of them, requests/s",
    "reserved_keys": "Of them in reserved slots",
    "needed": "Slots that it needs",
    "left": "Slots left",
    "needed_tokens": "KV tokens that it needs",
    "left_tokens": "KV tokens left in the fleet",
    "tokens": "KV tokens of one copy",
    "with_room": "Destinations with room for it",
    "quota": "Slots that its tenant may take",
    "used": "Slots of the tenant's other keys",
    "density": "Its value",
    "lowest_density": "Lowest value taken",
}


@dataclass(frozen=True)
class Metric:
    """A figure of a study: its name on the page, whether it is a share, and which direction is better (0: neither)."""

    label: str
    is_share: bool
    better: int


METRICS = {
    "admitted_share": Metric("Admitted share of requests", True, 1),
    "imbalance": Metric("Imbalance, max/mean load", False, -1),
    "worst_loss": Metric("Worst N-1, max/mean after a loss", False, -1),
    "churn_rate": Metric("Churn, share of the warm rate that moves", True, -1),
    "slots_used": Metric("Slots used", False, 0),
    "replicated": Metric("Keys on several destinations", False, 0),
}
# Differences from the base (shares of its value) that are not shown, and differences that are shaded darker.
EQUAL, FAR = 0.001, 0.05


def explain_page(
    plan: Plan, *, key: str = "", destination: str = "", head: str = "", metric: str = ""
) -> dict[str, Any]:
    """Return the data of the page, except the header of the fleet.

    Parameters
    ----------
    plan
        The plan.
    key, destination
        Name of the key or destination to explain; empty for none.
    head, metric
        Share of the key of highest rate (its position in the study) and figure that the grid of the study shows, as
        text of the request. Anything unknown shows the first share and the admitted share.

    Returns
    -------
    dict
        `fault` is a refusal of the input, or None.
    """
    told, fault = None, None
    if key or destination:
        try:
            told = explain(plan, key=key or None, destination=destination or None)
        except Refused as refusal:
            fault = refusal
    study = plan.studies.filter(kind=Study.Kind.SENSITIVITY).select_related("created_by").first()
    jobs = Job.objects.filter(kind=Job.Kind.STUDY, subject_id=plan.pk)
    latest = jobs.first()
    return {
        "plan": plan,
        "told": told,
        "fault": fault,
        "asked": {"key": key, "destination": destination},
        "reason": REASONS[told["reason"]] if told and told["kind"] == "key" else "",
        "figures": _figures(told),
        "destinations": destination_names(plan) if plan.table_id else [],
        "busiest": [row["key"] for row in plan.summary.get("top_keys", [])],
        "simulated_inputs": simulated_parts(plan),
        "study": study,
        "other_code": study is not None and study.code_version != plan.code_version,
        "grid": _grid(study, head, metric) if study else None,
        "job": latest if latest is not None and latest.is_open else None,
        "failed": latest if latest is not None and latest.state in ("failed", "errored") else None,
    }


def _figures(told: dict[str, Any] | None) -> list[tuple[str, Any]]:
    if told is None or told["kind"] != "key":
        return []
    found, unit = told["figures"], told["figures"].get("unit")
    return [
        (f"{label} a {unit}" if name.endswith("density") else label, found[name])
        for name, label in FIGURES.items()
        if name in found and (found[name] or name != "reserved_keys")
    ]


def _grid(study: Study, head: str, metric: str) -> dict[str, object]:
    """The chosen figure for every pair of factors, under the chosen share of the key of highest rate."""
    settings, factors = study.results["settings"], study.parameters["factors"]
    shares = study.parameters["head_shares"]
    at = int(head) if head.isascii() and head.isdigit() and len(head) < 4 and int(head) < len(shares) else 0
    name = metric if metric in METRICS else "admitted_share"
    chosen = [row for row in settings if row["head_share"] == shares[at]]
    base = next(row for row in chosen if row["w_factor"] == 1.0 and row["q_cap_factor"] == 1.0)
    by_pair = {(row["w_factor"], row["q_cap_factor"]): row for row in chosen}
    return {
        "metric": METRICS[name],
        "metrics": [(each, METRICS[each].label, each == name) for each in METRICS],
        "heads": [(i, _head(share, settings), i == at) for i, share in enumerate(shares)],
        "head": _head(shares[at], settings),
        "columns": [(factor, by_pair[1.0, factor]["q_cap"], factor == 1.0) for factor in factors],
        "rows": [
            {
                "factor": w,
                "slots": by_pair[w, 1.0]["slots"],
                "is_base": w == 1.0,
                "cells": [_cell(by_pair[w, q], base, name) for q in factors],
            }
            for w in factors
        ],
    }


def _head(share: float | None, settings: list[dict[str, Any]]) -> str:
    row = next(row for row in settings if row["head_share"] == share)
    if share is None:
        return f"as measured ({row['held_share']:.1%} of requests)"
    if row["head_left"]:
        return f"{share:.0%}: it holds {row['held_share']:.1%} already, so as measured"
    return f"raised to {share:.0%} of requests"


def _cell(row: dict[str, Any], base: dict[str, Any], name: str) -> dict[str, object]:
    value, normal = row[name], base[name]
    return {
        "value": value,
        "is_base": row is base,
        "tone": "base" if row is base else _tone(value, normal, METRICS[name].better),
    }


def _tone(value: float | None, normal: float | None, better: int) -> str:
    """Return better, worse, much-better, much-worse or same, compared with the base."""
    if value is None or normal is None or not better:
        return "same"
    difference = (value - normal) * better
    scale = abs(normal) or 1.0
    if abs(difference) <= EQUAL * scale:
        return "same"
    word = "better" if difference > 0 else "worse"
    return f"much-{word}" if abs(difference) > FAR * scale else word
