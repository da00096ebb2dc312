"""The deployment checklist (paper, section 5.7): six small judgements over stored evidence.

Each function reads the evidence only, so that a verdict can be given again years later. Missing data never
passes, and a higher hit rate alone never passes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from planner.wording import give_or_take

PASS, FAIL, MISSING = "pass", "fail", "missing"
MIN_LOADS = 3
MIN_SEEDS = 3
REACHED = 0.99  # of the measured rate: loads are rounded
MATTERS = 0.5  # of the measured rate: at lower loads being better says nothing of the traffic that is to be served
MIN_RUNS = 20  # of a bootstrap: fewer long runs are the trace itself in another order, for every seed
MIN_REQUESTS = 1_000  # measured requests a cell: ten of them lie beyond the p99


@dataclass(frozen=True)
class Judgement:
    """Verdict of one item, with the numbers it rests on."""

    verdict: str
    explanation: str
    numbers: dict[str, Any] = field(default_factory=dict)


Evidence = dict[str, Any]


def measured_inputs(evidence: Evidence, now: dt.datetime) -> Judgement:
    """1. Per-key rates and a single-destination q_cap, measured and recent."""
    workload, calibration, policy = evidence["workload"], evidence["calibration"], evidence["policy"]
    age_days = (now - dt.datetime.fromisoformat(workload["measured_at"])).total_seconds() / 86_400
    if age_days < -1 / 24:
        return Judgement(MISSING, f"The rates claim to be measured in the future ({workload['measured_at']}).")
    numbers = {
        "rates_age_days": round(age_days, 2),
        "rates_simulated": workload["simulated"],
        "q_cap": calibration["q_cap"],
        "q_cap_source": calibration["source"],
        "q_cap_censored": calibration["q_cap_censored"],
    }
    if calibration["q_cap_censored"]:
        side = calibration["q_cap_censored"]
        return Judgement(MISSING, f"q_cap is {side}-censored: the sweep did not bracket the knee.", numbers)
    if not workload["measured_at_stated"]:
        return Judgement(MISSING, "When the rates were measured was not stated at the import.", numbers)
    if age_days > policy["max_rates_age_days"]:
        limit = policy["max_rates_age_days"]
        return Judgement(FAIL, f"The rates are {age_days:.1f} days old; the fleet's limit is {limit}.", numbers)
    simulated = [
        w for w, on in (("rates", workload["simulated"]), ("q_cap", calibration["source"] == "simulated")) if on
    ]
    if simulated and not policy["accept_simulated"]:
        what = " and ".join(simulated)
        return Judgement(MISSING, f"Simulated {what}: this fleet's policy wants measured ones.", numbers)
    note = f" Simulated {' and '.join(simulated)}, which this fleet's policy accepts." if simulated else ""
    if calibration["source"] == "measured" and not calibration["sweep_points"]:
        note += " q_cap was stated without the points of a sweep."
    return Judgement(PASS, f"Rates {age_days:.1f} days old, q_cap {calibration['q_cap']:g} requests/s.{note}", numbers)


def conservative_slots(evidence: Evidence, now: dt.datetime) -> Judgement:
    """2. W within what was measured, the budget kept, the planned load balanced."""
    plan, calibration, policy = evidence["plan"], evidence["calibration"], evidence["policy"]
    numbers = {
        "slots_per_destination": plan["slots_per_destination"],
        "slots_calibrated": calibration["warm_slots"],
        "slots_measured": calibration["slots_measured"],
        "slots_used": plan["slots_used"],
        "slots": plan["slots"],
        "imbalance": plan["imbalance"],
        "max_imbalance": policy["max_imbalance"],
        "cannot_fit": plan["cannot_fit"],
        "most_held": plan["most_held"],
        "peak_use": plan["peak_use"],
    }
    if plan["most_held"] is None or plan["peak_use"] is None:
        return Judgement(MISSING, "How many keys each destination holds is not known: build the plan again.", numbers)
    if not plan["admitted"]:
        return Judgement(FAIL, "The plan admits no key: it is Flat-LB under another name.", numbers)
    if plan["slots_per_destination"] > calibration["warm_slots"]:
        return Judgement(FAIL, "W is above the calibrated allocation: admitted keys would evict each other.", numbers)
    if plan["slots_per_destination"] >= calibration["slots_measured"] > 0:
        return Judgement(FAIL, "W is all that was measured, without a margin: that is not conservative.", numbers)
    if plan["most_held"] >= calibration["slots_measured"] > 0:
        held, measured = plan["most_held"], calibration["slots_measured"]
        return Judgement(
            FAIL,
            f"One destination holds {held:,} keys and {measured:,} were measured to stay warm: they would evict each "
            "other. Order the plan with a lower W.",
            numbers,
        )
    if plan["peak_use"] > 1:
        return Judgement(
            FAIL,
            f"One destination is planned at {plan['peak_use']:.0%} of q_cap times its speed: the fleet is too small "
            "for these rates.",
            numbers,
        )
    if plan["slots_used"] > plan["slots"]:
        return Judgement(FAIL, "The plan uses more warm slots than its budget.", numbers)
    if plan["cannot_fit"]:
        return Judgement(FAIL, f"{plan['cannot_fit']} keys need more than all destinations at q_cap.", numbers)
    if plan["imbalance"] > policy["max_imbalance"]:
        return Judgement(
            FAIL,
            f"Planned max/mean load {plan['imbalance']:.3f} is above {policy['max_imbalance']:g}: order the plan with "
            "a balance target, which splits the keys that weigh too much.",
            numbers,
        )
    return Judgement(
        PASS,
        f"{plan['slots_used']:,} of {plan['slots']:,} slots, W {plan['slots_per_destination']} and at most "
        f"{plan['most_held']} keys on a destination of {calibration['slots_measured']} measured, planned max/mean "
        f"{plan['imbalance']:.3f}, at most {plan['peak_use']:.0%} of q_cap.",
        numbers,
    )


def shadow_replay(evidence: Evidence, now: dt.datetime) -> Judgement:
    """3. Candidate and Flat-LB replayed at matched loads, with paired seeds."""
    replay = evidence["replay"]
    if replay is None and evidence.get("what_ifs"):
        what_ifs = evidence["what_ifs"]
        latest = what_ifs[0]
        return Judgement(
            MISSING,
            f"Replayed only as a what-if: replay {latest['id']} had {' and '.join(latest['with'])}. That shows what "
            "would happen then; the gate needs a replay without.",
            {"what_ifs": what_ifs},
        )
    if replay is None:
        return Judgement(MISSING, "No finished replay of this plan.")
    numbers = {
        "loads": len(replay["loads_rps"]),
        "seeds": len(replay["seeds"]),
        "policies": replay["policies"],
        "synthetic_trace": replay["synthetic_trace"],
        "measured_requests": replay["measured_requests"],
        # Evidence of an older format has none of these.
        **{name: replay.get(name) for name in ("arrivals", "cv", "run_length", "runs", "warmup", "refined_loads")},
        "earlier_replays": replay["earlier_replays"],
        "slo_p99_s": replay["slo_p99_s"],
        "refused": sum(row["refused"] for row in replay["cacheroute"]["loads"]),
        "highest_load_rps": max(replay["loads_rps"]),
        "workload_rps": evidence["workload"]["total_rps"],
    }
    policy = evidence["policy"]
    lacking = [p for p in ("flat-lb", "cacheroute") if p not in replay["policies"]]
    if lacking:
        return Judgement(MISSING, f"Not replayed: {', '.join(lacking)}.", numbers)
    if len(replay["loads_rps"]) < MIN_LOADS or len(replay["seeds"]) < MIN_SEEDS:
        return Judgement(
            MISSING,
            f"{len(replay['loads_rps'])} loads and {len(replay['seeds'])} seeds; the gate needs {MIN_LOADS} of each.",
            numbers,
        )
    if max(replay["loads_rps"]) < REACHED * evidence["workload"]["total_rps"]:
        return Judgement(
            MISSING,
            f"Replayed up to {max(replay['loads_rps']):g} requests/s; the rates were measured at "
            f"{evidence['workload']['total_rps']:g}: replay that load too.",
            numbers,
        )
    if replay["measured_requests"] < MIN_REQUESTS:
        few = replay["measured_requests"]
        return Judgement(
            MISSING, f"{few:,} measured requests a cell are too few for a p99; {MIN_REQUESTS:,} at least.", numbers
        )
    if calmer := _too_calm(replay):
        return Judgement(MISSING, calmer, numbers)
    if replay["slo_p99_s"] != policy["slo_p99_s"]:
        return Judgement(
            MISSING,
            f"Replayed for an SLO of {replay['slo_p99_s']:g} s; the fleet's is {policy['slo_p99_s']:g} s now.",
            numbers,
        )
    if replay["synthetic_trace"] and not policy["accept_simulated"]:
        return Judgement(
            MISSING,
            "The requests were synthesised from the rates: this fleet's policy wants a measured trace.",
            numbers,
        )
    if numbers["refused"]:
        return Judgement(
            FAIL, f"{numbers['refused']:,} requests are larger than a whole cache and were refused.", numbers
        )
    if not any(row["p99_s"]["mean"] <= replay["slo_p99_s"] for row in replay["cacheroute"]["loads"]):
        return Judgement(FAIL, "The candidate misses the SLO at every replayed load.", numbers)
    made = replay["synthetic_trace"]
    note = f" {describe_synthetic(made)}" if made else ""
    if earlier := replay["earlier_replays"]:
        note += (
            f" It is replay {earlier + 1} of this plan: {earlier} earlier one{'s' if earlier > 1 else ''} had figures "
            "to look at, finished or not."
        )
    return Judgement(
        PASS,
        f"{len(replay['loads_rps'])} matched loads from {min(replay['loads_rps']):g} to "
        f"{max(replay['loads_rps']):g} requests/s, {len(replay['seeds'])} paired seeds.{note}",
        numbers,
    )


def _too_calm(replay: dict[str, Any]) -> str:
    """Why the arrivals put less strain on queues than traffic does; empty when they do not."""
    cv, runs = replay.get("cv"), replay.get("runs")
    if cv is not None and cv < 1:
        return (
            f"Gamma arrivals with a coefficient of variation of {cv:g} are more even than chance (1): queues look "
            "shorter than traffic makes them. Replay with 1 or more, or other arrivals."
        )
    if runs is not None and runs < MIN_RUNS:
        return (
            f"Runs of {replay['run_length']:,} gaps leave {runs} different ones to draw from; {MIN_RUNS} are needed. "
            "Replay with shorter runs or more requests."
        )
    return ""


def describe_synthetic(made: dict[str, Any]) -> str:
    """How requests were made from rates alone, in a sentence."""
    prefix, suffix, output = (made[name][0] for name in ("prefix_tokens", "suffix_tokens", "output_tokens"))
    return (
        f"Requests were synthesised from the rates: to the {made['active_keys']:,} busiest keys, with a median of "
        f"{prefix:,.0f} prefix, {suffix:,.0f} suffix and {output:,.0f} answer tokens."
    )


def better_than_flat(evidence: Evidence, now: dt.datetime) -> Judgement:
    """4. p99 or capacity better than Flat-LB, with an interval that excludes zero. Hit rate alone never counts."""
    replay = evidence["replay"]
    if replay is None or replay["against_flat"] is None:
        return Judgement(MISSING, "No replay to compare with Flat-LB.")
    against = replay["against_flat"]
    if len(replay["seeds"]) < MIN_SEEDS:
        return Judgement(MISSING, f"{len(replay['seeds'])} seeds give no interval; {MIN_SEEDS} are needed.")
    steps = against["capacity_steps"]
    # Above the loads that either policy serves within the SLO, both are broken and their p99 says nothing.
    p99_at = [{row["load_rps"]: row["p99_s"]["mean"] for row in replay[who]["loads"]} for who in ("cacheroute", "flat")]
    served = [row for row in against["p99_s"] if min(p99[row["load_rps"]] for p99 in p99_at) <= replay["slo_p99_s"]]
    if not served:
        return Judgement(
            MISSING,
            "Neither policy meets the SLO at any replayed load, so there is nothing to compare: replay lower loads.",
        )
    if any(row["half"] <= 1e-9 * abs(row["mean"]) for row in served if row["mean"] and row["half"] is not None):
        return Judgement(MISSING, "The seeds gave identical replays, so there is no interval: take other arrivals.")
    # Better: with one chance in twenty over all loads together. Worse: at any single load.
    anywhere = [row for row in served if row["excludes_zero_all_loads"] and row["mean"] < 0]
    matters = MATTERS * evidence["workload"]["total_rps"]
    better = [row for row in anywhere if row["load_rps"] >= matters]
    # More capacity counts where it is more at a load that matters: the candidate serves it, and Flat-LB does not.
    validated = (evidence["envelope"] or {"load_high_rps": 0.0})["load_high_rps"]
    flat = p99_at[1]
    more = [load for load in flat if matters <= load <= validated and flat[load] > replay["slo_p99_s"]]
    worse = [row for row in served if row["excludes_zero"] and row["mean"] > 0]
    hit = [row for row in against["hit_rate"] if row["excludes_zero"] and row["mean"] > 0]
    numbers = {
        "capacity": replay["capacity"],
        "capacity_steps": steps,
        "better_counts_from_rps": matters,
        "p99_difference_s": against["p99_s"],
        "hit_rate_difference": against["hit_rate"],
    }
    capacities = f"capacity {replay['capacity']['cacheroute']} against {replay['capacity']['flat-lb']} requests/s"
    if steps["excludes_zero"] and steps["mean"] < 0:
        return Judgement(FAIL, f"Capacity is lower than Flat-LB's: {capacities}.", numbers)
    if worse:
        row = worse[0]
        return Judgement(
            FAIL,
            f"p99 is worse by {give_or_take(row['mean'], row['half'])} s at {row['load_rps']:g} requests/s.",
            numbers,
        )
    wider = steps["excludes_zero"] and steps["mean"] > 0
    if wider and more:
        return Judgement(PASS, f"Better {capacities}; p99 is worse at no load within the SLO.", numbers)
    if better:
        row = max(better, key=lambda r: r["load_rps"])
        return Judgement(
            PASS,
            f"p99 is better by {give_or_take(-row['mean'], row['half'])} s at {row['load_rps']:g} requests/s; "
            f"{capacities}.",
            numbers,
        )
    if wider or anywhere:
        return Judgement(
            MISSING,
            f"Better only below {matters:g} requests/s, which is {MATTERS:.0%} of the measured rate: that says nothing "
            f"of the traffic that is to be served ({capacities}).",
            numbers,
        )
    if hit:
        return Judgement(FAIL, f"Only the hit rate is higher; p99 and capacity are not ({capacities}).", numbers)
    return Judgement(MISSING, f"The intervals straddle zero: no difference shown ({capacities}).", numbers)


def fallback_armed(evidence: Evidence, now: dt.datetime) -> Judgement:
    """5. The validated range is known and holds the measured rate, and Flat-LB is ready to take over."""
    envelope = evidence["envelope"]
    if envelope is None:
        why = "No replay" if evidence["replay"] is None else "No replayed load met the SLO"
        return Judgement(MISSING, f"{why}, so there is no validated range to leave.")
    measured = evidence["workload"]["total_rps"]
    numbers = envelope | {"workload_rps": measured}
    if not evidence["fallback"]["ready"]:
        return Judgement(FAIL, "The fleet has no approved Flat-LB plan to fall back to.", envelope)
    if envelope["load_high_rps"] < REACHED * measured:
        return Judgement(
            FAIL,
            f"Validated up to {envelope['load_high_rps']:g} requests/s only, the highest replayed load up to which p99 "
            f"meets the SLO; the rates were measured at {measured:g}, where traffic would leave the range at once.",
            numbers,
        )
    return Judgement(
        PASS,
        f"Validated for p99 up to {envelope['p99_limit_s']:g} s, {envelope['load_low_rps']:g} to "
        f"{envelope['load_high_rps']:g} requests/s and {envelope['active_keys']:,} active keys; Flat-LB stands ready.",
        numbers,
    )


def same_fingerprint(evidence: Evidence, now: dt.datetime) -> Judgement:
    """6. What serves now is what was calibrated, planned and replayed."""
    prints = evidence["fingerprints"]
    numbers: dict[str, Any] = {name: (value or "")[:12] for name, value in prints.items()}
    planned, up = evidence["plan"]["destinations"], evidence["destinations_up"]
    numbers |= {"destinations_planned": len(planned), "destinations_up": len(up)}
    absent = [name for name, value in prints.items() if not value]
    if absent:
        return Judgement(MISSING, f"No fingerprint of the {', '.join(absent)}.", numbers)
    other = [name for name, value in prints.items() if value != prints["fleet"]]
    if other:
        return Judgement(FAIL, f"The serving profile changed since the {', '.join(other)}: run them again.", numbers)
    if planned != up:
        return Judgement(
            FAIL,
            f"The plan is for {len(planned)} destinations; those that are up now are {len(up)} or others.",
            numbers,
        )
    speeds, speeds_now = evidence["plan"]["capacity"], evidence["capacity_up"]
    if speeds != speeds_now:
        changed = [i for i, was, now in zip(planned, speeds, speeds_now, strict=True) if was != now]
        return Judgement(
            FAIL,
            f"The speed of {len(changed)} of {len(planned)} destinations is not the one that the plan was made for: "
            "order another plan.",
            numbers | {"speeds_changed": changed[:10]},
        )
    note = ""
    replan = evidence["replan"]
    if replan is not None and not replan["incumbent_is_live"]:
        note = f" Plan {replan['incumbent']}, whose warm keys it keeps, is not live: more will be cold than it says."
    return Judgement(
        PASS,
        "Model, precision, context, batching and cache allocation are those replayed; so are the destinations." + note,
        numbers,
    )


CHECKLIST: tuple[tuple[str, Callable[[Evidence, dt.datetime], Judgement]], ...] = (
    ("Rates and q_cap measured", measured_inputs),
    ("Warm slots conservative", conservative_slots),
    ("Shadow replay against Flat-LB", shadow_replay),
    ("Better p99 or capacity", better_than_flat),
    ("Fallback armed", fallback_armed),
    ("Serving profile unchanged", same_fingerprint),
)
