"""Item 1: per-key rates and the q_cap of one destination, measured and recent."""

from __future__ import annotations

import datetime as dt

from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence

# Clocks differ; more than an hour ahead is no measurement.
MOST_AHEAD_DAYS = 1 / 24


def _age_days(evidence: Evidence, now: dt.datetime) -> float:
    return (now - dt.datetime.fromisoformat(evidence.workload.measured_at)).total_seconds() / 86_400


@check(item=1, name="rates-recent", title="Rates measured, and no longer ago than the policy allows")
def rates_recent(evidence: Evidence, live: Live) -> Judgement:
    """Rates older than the policy's limit fail; of an unknown or future time they are missing."""
    workload, limit = evidence.workload, evidence.policy.max_rates_age_days
    age_days = _age_days(evidence, live.now)
    numbers = {"rates_age_days": round(age_days, 2), "max_rates_age_days": limit}
    if age_days < -MOST_AHEAD_DAYS:
        return Judgement(MISSING, f"The rates claim to be measured in the future ({workload.measured_at}).", numbers)
    if not workload.measured_at_stated:
        return Judgement(MISSING, "When the rates were measured was not stated at the import.", numbers)
    if age_days > limit:
        return Judgement(FAIL, f"The rates are {age_days:.1f} days old; the fleet's limit is {limit}.", numbers)
    return Judgement(PASS, f"Rates {age_days:.1f} days old, {limit} at most.", numbers)


@check(item=1, name="rates-measured", title="Rates measured on traffic")
def rates_measured(evidence: Evidence, live: Live) -> Judgement:
    """Generated rates count where the policy accepts simulated evidence."""
    simulated = evidence.workload.simulated
    return _measured("rates", simulated, evidence, {"rates_simulated": simulated})


@check(item=1, name="q-cap-measured", title="q_cap measured on one destination")
def q_cap_measured(evidence: Evidence, live: Live) -> Judgement:
    """A simulated calibration counts where the policy accepts simulated evidence."""
    calibration = evidence.calibration
    numbers = {"q_cap": calibration.q_cap, "q_cap_source": calibration.source}
    found = _measured("q_cap", calibration.source == "simulated", evidence, numbers)
    if found.verdict == PASS and calibration.source == "measured" and not calibration.sweep_points:
        return Judgement(PASS, f"{found.explanation} q_cap was stated without the points of a sweep.", numbers)
    return found


def _measured(what: str, simulated: bool, evidence: Evidence, numbers: dict[str, object]) -> Judgement:
    if not simulated:
        return Judgement(PASS, f"Measured {what}.", numbers)
    if evidence.policy.accept_simulated:
        return Judgement(PASS, f"Simulated {what}, which this fleet's policy accepts.", numbers)
    return Judgement(MISSING, f"Simulated {what}: this fleet's policy wants measured ones.", numbers)


@check(item=1, name="q-cap-bracketed", title="q_cap within its sweep, not at the end of it")
def q_cap_bracketed(evidence: Evidence, live: Live) -> Judgement:
    """A censored q_cap is a bound, not a measurement."""
    side = evidence.calibration.q_cap_censored
    numbers = {"q_cap_censored": side}
    if side:
        return Judgement(MISSING, f"q_cap is {side}-censored: the sweep did not bracket the knee.", numbers)
    return Judgement(PASS, "The sweep has loads below and above the knee.", numbers)


@summary(item=1)
def summary_of_inputs(evidence: Evidence) -> str:
    """What was measured; without the age, which is another one tomorrow."""
    workload, calibration = evidence.workload, evidence.calibration
    both = (("rates", workload.simulated), ("q_cap", calibration.source == "simulated"))
    simulated = [what for what, on in both if on]
    note = f" Simulated {' and '.join(simulated)}, which this fleet's policy accepts." if simulated else ""
    if calibration.source == "measured" and not calibration.sweep_points:
        note += " q_cap was stated without the points of a sweep."
    return (
        f"Rates measured {workload.measured_at[:16].replace('T', ' ')} UTC, {calibration.q_cap:g} requests/s at "
        f"the knee of one destination (q_cap).{note}"
    )
