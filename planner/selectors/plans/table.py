"""The table on the page of a plan: admission, N-1, tenants, and the changes from the incumbent."""

from __future__ import annotations

from typing import Any

from planner.models import Plan

# Destinations whose loss is shown, the worst first; the others are counted.
SHOWN_LOSSES = 20
SHOWN_KEYS = 12
ADMISSIONS = {
    "top_rate": "By rate: the busiest keys first.",
    "density": "By density: the most saved per unit of the budget first.",
    "exact": "Exact: the set of keys that saves most within the budget.",
}


def table_facts(plan: Plan) -> dict[str, object]:
    """Texts and rows for a built plan; plans built before a figure was recorded have None or nothing for it."""
    if not plan.summary:
        return {}
    name_of = dict(plan.fleet.destinations.values_list("index", "name"))
    names = [name_of.get(i, f"#{i}") for i in plan.parameters["destinations"]]
    return {
        "admission": admission(plan.summary),
        "losses": losses(plan.summary, names),
        "tenants": tenants(plan),
        "moves": moves(plan),
        "top_keys": [
            {**row, "destinations": [names[m] for m in row["members"]]} for row in plan.summary["top_keys"][:SHOWN_KEYS]
        ],
    }


def admission(summary: dict[str, Any]) -> str:
    """Which keys were admitted, and how far that is from an upper bound on any choice of keys."""
    policy = summary.get("admission", "top_rate")
    sentence = ADMISSIONS.get(policy, policy)
    gap = summary.get("value_gap")
    if gap is None or not summary.get("value_bound"):
        return sentence
    unit = summary["value_unit"]
    what = "requests/s reach warm keys" if unit == "requests/s" else "prefill tokens/s are saved"
    value = (
        f"{summary['admitted_value']:,.0f}" if summary["admitted_value"] >= 100 else f"{summary['admitted_value']:.3g}"
    )
    if gap < 5e-7:
        return f"{sentence} {value} {what}; this equals the upper bound on any choice of keys."
    share = f"{gap:.1%}" if gap >= 0.0005 else "less than 0.1%"
    return f"{sentence} {value} {what}, {share} below the upper bound on any choice of keys."


def losses(summary: dict[str, Any], names: list[str]) -> dict[str, object] | None:
    """Max/mean of the survivors after the loss of each destination, the worst first; None where it is unknown."""
    after = summary.get("after_loss")
    if not after:
        return None
    if len(names) == 1:
        return {"only": names[0]}
    rows = [
        {"name": name, "load": load, "after": value}
        for name, load, value in zip(names, summary["load"], after, strict=True)
    ]
    rows.sort(key=lambda row: -1.0 if row["after"] is None else row["after"], reverse=True)
    worst = rows[0]["after"]
    if worst is None:
        return None
    # Equal figures are equally bad: each is marked.
    rows = [{**row, "worst": row["after"] == worst} for row in rows]
    return {
        "worst": rows[0],
        "all_equal": all(row["worst"] for row in rows),
        "planned": summary["imbalance"],
        "shown": rows[:SHOWN_LOSSES],
        "more": max(0, len(rows) - SHOWN_LOSSES),
    }


def tenants(plan: Plan) -> dict[str, object] | None:
    """The admitted keys by tenant, with the reserved and allowed slots; None for a workload without tenants."""
    rows = plan.summary.get("tenants")
    if not rows:
        return None
    quota, floor = plan.parameters.get("tenant_quota") or {}, plan.parameters.get("tenant_floor") or {}
    return {
        "rows": [
            {
                **row,
                "name": row["tenant"] or "(unnamed)",
                "quota": quota.get(row["tenant"]),
                "floor": floor.get(row["tenant"]),
            }
            for row in rows
        ],
        "count": plan.summary["tenant_count"],
        "limited": bool(quota or floor),
    }


def moves(plan: Plan) -> dict[str, object] | None:
    """The changes of a replan from its incumbent; None for a plan from scratch."""
    if plan.incumbent is None or plan.summary.get("moved_keys") is None:
        return None
    names = ("moved_keys", "moved_rate", "moved_share", "rewarm_tokens", "gone_keys")
    later = (
        "cooled_keys",
        "cooled_rate",
        "cooled_share",
        "target_imbalance",
    )  # Plans built before these were recorded have none.
    return {
        "incumbent": plan.incumbent,
        "factor": plan.parameters["max_imbalance_factor"],
        "most": plan.parameters["max_moved_share"],
        **{name: plan.summary[name] for name in names},
        **{name: plan.summary.get(name) for name in later},
        "imbalance": plan.summary["imbalance"],
    }
