"""What the page of a plan shows of a replay's verdict, as rows of tables; older verdicts lack some of them."""

from __future__ import annotations

from typing import Any

from planner.analysis import t_interval
from planner.formatting import give_or_take, rounded
from planner.models import BASELINE, Replay
from planner.selectors.replays.policy_names import CANDIDATE, in_order, policy_name

Row = dict[str, Any]
DIFFERENCES = ("hit_rate", "p99_s", "p50_s", "busy_imbalance", "throughput_rps")


def verdict_tables(replay: Replay) -> dict[str, Any]:
    """Every table of the verdict; one without rows is not shown."""
    return {
        "figures": figure_rows(replay),
        "differences": difference_rows(replay.verdict.get("against_flat", {})),
        "other_plans": difference_rows(replay.verdict.get("against_candidate", {})),
        "ladder": ladder(replay),
        "chain": chain_rows(replay),
        "fairness": fairness(replay),
        "recovery": recovery_rows(replay),
    }


def rows_of(replay: Replay, policy: str) -> dict[float, Row]:
    """The figures of a policy by load; only the loads that it was run at."""
    found = replay.verdict["policies"].get(policy, {"loads": []})
    return {row["load_rps"]: row for row in found["loads"]}


def compared_at(replay: Replay) -> tuple[float, Row, Row] | None:
    """The highest load at which candidate or Flat-LB still meets the SLO, else the lowest; and both rows there.

    None when there is no load that both were run at.
    """
    mine, flat = rows_of(replay, CANDIDATE), rows_of(replay, BASELINE)
    both = sorted(set(mine) & set(flat))
    if not both:
        return None
    within = [x for x in both if min(mine[x]["p99_s"]["mean"], flat[x]["p99_s"]["mean"]) <= replay.slo_p99_s]
    at = within[-1] if within else both[0]
    return at, mine[at], flat[at]


def shown_load(replay: Replay) -> float | None:
    """The load that charts of a single load start with: in the middle of those that most policies were run at."""
    ran = {load: sum(load in rows_of(replay, p) for p in replay.policies) for load in rows_of(replay, CANDIDATE)}
    most = [load for load, times in ran.items() if times == max(ran.values())]
    return most[len(most) // 2] if most else None


def _by_load(replay: Replay) -> list[tuple[float, str, Row, bool]]:
    """(load, policy, figures, whether it is the first of its load), load by load."""
    of = {policy: rows_of(replay, policy) for policy in in_order(replay.policies)}
    found = []
    for load in replay.verdict["loads_rps"]:
        there = [policy for policy in of if load in of[policy]]
        found += [(load, policy, of[policy][load], at == 0) for at, policy in enumerate(there)]
    return found


def figure_rows(replay: Replay) -> list[Row]:
    """One row a load and policy: means with 95% intervals over seeds."""
    return [
        {
            **figures,
            "load": load,
            "policy": policy,
            "name": policy_name(policy),
            "within": figures["p99_s"]["mean"] <= replay.slo_p99_s,
            "first": first,
        }
        for load, policy, figures, first in _by_load(replay)
    ]


def difference_rows(against: dict[str, dict[str, Any]]) -> list[Row]:
    """One row a load and policy: paired differences, with the number of loads that were looked at together."""
    rows: list[Row] = []
    for policy in in_order(list(against)):
        of = {name: {row["load_rps"]: row for row in against[policy].get(name, [])} for name in DIFFERENCES}
        for load, p99 in of["p99_s"].items():
            differences = {name: of[name].get(load) for name in DIFFERENCES}
            rows.append({"load": load, "policy": policy, "name": policy_name(policy), **differences, "p99_s": p99})
    order = in_order(list(against))
    rows.sort(key=lambda row: (row["load"], order.index(row["policy"])))
    for before, row in zip([None, *rows], rows, strict=False):
        row["first"] = before is None or before["load"] != row["load"]
    return rows


def ladder(replay: Replay) -> dict[str, Any]:
    """The loads, and one row a policy: its capacity as text and at each load how many seeds met the SLO up to there.

    A load that a policy was not run at (bisection adds loads policy by policy) has None in its place.
    """
    loads = replay.verdict["loads_rps"]
    rows = []
    for policy in in_order(replay.policies):
        capacity = replay.verdict["policies"][policy]["capacity"]
        own, steps = list(rows_of(replay, policy)), capacity["steps"]
        cells = [
            {"met": sum(step > own.index(load) for step in steps), "of": len(steps)} if load in own else None
            for load in loads
        ]
        rows.append({"policy": policy, "name": policy_name(policy), "cells": cells, **capacity})
    return {"loads": loads, "rows": rows, "left": [row["name"] for row in rows if row["censored"] == ["left"]]}


def capacities(replay: Replay) -> dict[str, Row]:
    """Capacity of each policy to be drawn: text, where it lies, and on which sides it is censored.

    ``low`` and ``high`` are the least and the greatest of the seeds' known values, ``mean`` and ``half`` their
    interval; None when no seed has one.
    """
    found = {}
    for policy in replay.policies:
        capacity = replay.verdict["policies"][policy]["capacity"]
        own = list(rows_of(replay, policy))
        values = [own[step - 1] for step in capacity["steps"] if step]
        mean = t_interval(values) if values else None
        found[policy] = {
            "text": capacity["text"],
            "left": "left" in capacity["censored"],
            "right": "right" in capacity["censored"],
            "low": min(values, default=None),
            "high": max(values, default=None),
            "mean": mean.mean if mean else None,
            "half": mean.half_width if mean else None,
        }
    return found


def chain_rows(replay: Replay) -> list[Row]:
    """One row a load and policy: available, planned and delivered hit rate; empty where the cells did not keep it."""
    return [
        {**{k: figures[k] for k in ("available", "planned", "delivered", "delivered_planned")}, "load": load,
         "name": policy_name(policy), "first": first}
        for load, policy, figures, first in _by_load(replay) if figures.get("available")
    ]  # fmt: skip


def fairness(replay: Replay) -> dict[str, Any] | None:
    """Tenants at the compared load: a summary of each policy, and a row a tenant with candidate beside Flat-LB.

    None when the workload names no tenants.
    """
    found, at = replay.verdict.get("tenants"), compared_at(replay)
    if not found or at is None:
        return None
    load = at[0]
    here = {
        policy: row for policy in in_order(list(found)) for row in found[policy] if row["load_rps"] == load
    }  # a policy that was not run at this load is not there
    if CANDIDATE not in here:
        return None
    summary = [
        {**{k: rows_of(replay, policy)[load][k] for k in ("jain_hit", "jain_p99", "worst_tenant_ratio")},
         "name": policy_name(policy), "worst": row["worst"], "too_few": row["too_few"]}
        for policy, row in here.items()
    ]  # fmt: skip
    flat = {row["tenant"]: row for row in here[BASELINE]["rows"]} if BASELINE in here else {}
    rows = [{**row, "flat": flat.get(row["tenant"])} for row in here[CANDIDATE]["rows"]]
    return {"load": load, "summary": summary, "rows": rows, **{k: v for k, v in here[CANDIDATE].items() if k != "rows"}}


def event_labels(replay: Replay, policy: str) -> list[str]:
    """What happened in a cell of this policy, one label a moment, in the order of its dips."""
    at: dict[float, list[str]] = {}
    for fault in replay.parameters.get("faults", []):
        at.setdefault(fault["start"], []).append(f"{fault['destination']} {fault['kind']}")
        end = fault.get("end")
        if fault["kind"] == "down" and end is not None and end < 1:
            at.setdefault(end, []).append(f"{fault['destination']} back, cold")
    switch = replay.parameters.get("switch")
    if switch and policy == CANDIDATE:
        at.setdefault(switch["at"], []).append(f"plan {switch['plan']} gives way to plan {replay.plan.number}")
    return [" and ".join(at[moment]) for moment in sorted(at)]


def recovery_rows(replay: Replay) -> list[Row]:
    """One row a load, policy and event: how deep the hit rate dipped and how long it took to come back."""
    events = replay.verdict.get("events", {})
    found = []
    for policy in in_order(list(events)):
        labels = event_labels(replay, policy)
        for row in events[policy]:
            for at, dip in enumerate(row["dips"]):
                label = labels[at] if at < len(labels) else f"event {at + 1}"
                found.append({**dip, "load": row["load_rps"], "name": policy_name(policy), "policy": policy,
                              "event": label, "back": _back(dip)})  # fmt: skip
    order = in_order(list(events))
    return sorted(found, key=lambda row: (row["load"], row["at_s"], order.index(row["policy"])))


def _back(dip: Row) -> str:
    """When the curve was back, in words: never a bare number where some seeds did not see it."""
    if dip["before"] is None:
        return "no requests before to compare with"
    if dip["censored"] == dip["of"]:
        return f">{rounded(dip['seen_s'])} s: not back before the end"
    mean, half = dip["duration_s"]["mean"], dip["duration_s"]["half"]
    text = f"{give_or_take(mean, half)} s"
    if dip["censored"]:
        text += f" where it came back; {dip['censored']} of {dip['of']} seeds did not within {rounded(dip['seen_s'])} s"
    return text
