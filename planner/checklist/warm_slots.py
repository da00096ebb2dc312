"""Item 2: warm slots within the measured capacity and budget, and balanced load, also after losing a destination."""

from __future__ import annotations

from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence


@check(item=2, name="keys-admitted", title="The table routes keys")
def keys_admitted(evidence: Evidence, live: Live) -> Judgement:
    """Fail for a table without keys, which would be Flat-LB."""
    admitted = evidence.plan.admitted
    if not admitted:
        return Judgement(FAIL, "The plan admits no key, so it is the same as Flat-LB.", {"admitted": 0})
    return Judgement(PASS, f"{admitted:,} keys are admitted.", {"admitted": admitted})


@check(item=2, name="w-within-calibrated", title="W within the calibrated capacity times its margin")
def w_within_calibrated(evidence: Evidence, live: Live) -> Judgement:
    """Compare W with the calibrated capacity, which is the measured one times the margin."""
    w, calibrated = evidence.plan.slots_per_destination, evidence.calibration.warm_slots
    numbers = {
        "slots_per_destination": w,
        "slots_calibrated": calibrated,
        "margin": evidence.calibration.margin,
    }
    if w > calibrated:
        return Judgement(FAIL, "W is above the calibrated capacity, so admitted keys would evict each other.", numbers)
    return Judgement(PASS, f"W {w} of {calibrated} calibrated.", numbers)


@check(item=2, name="w-below-measured", title="W below the measured capacity")
def w_below_measured(evidence: Evidence, live: Live) -> Judgement:
    """Fail when W is the whole measured capacity."""
    w, measured = evidence.plan.slots_per_destination, evidence.calibration.slots_measured
    numbers = {"slots_measured": measured}
    if w >= measured > 0:
        return Judgement(FAIL, "W is the whole measured capacity, without a margin.", numbers)
    return Judgement(PASS, f"W {w} of {measured} measured.", numbers)


@check(item=2, name="most-held-bounded", title="No destination holds more keys than stay warm")
def most_held_bounded(evidence: Evidence, live: Live) -> Judgement:
    """Compare the keys of the fullest destination with the measured capacity: the budget is of the whole fleet."""
    held, measured = evidence.plan.most_held, evidence.calibration.slots_measured
    numbers = {"most_held": held}
    if held is None:
        return Judgement(MISSING, "The number of keys of each destination is not known. Build the plan again.", numbers)
    if held >= measured > 0:
        return Judgement(
            FAIL,
            f"One destination holds {held:,} keys; {measured:,} were measured to stay warm, so keys would evict each "
            "other. Order the plan with a lower W.",
            numbers,
        )
    return Judgement(PASS, f"At most {held:,} keys on a destination of {measured:,} measured.", numbers)


@check(item=2, name="slots-within-budget", title="Slots used within the budget C")
def slots_within_budget(evidence: Evidence, live: Live) -> Judgement:
    """Check equation 3: the k_b of admitted keys add up to at most C."""
    used, budget = evidence.plan.slots_used, evidence.plan.slots
    numbers = {"slots_used": used, "slots": budget}
    if used > budget:
        return Judgement(FAIL, "The plan uses more warm slots than its budget.", numbers)
    return Judgement(PASS, f"{used:,} of {budget:,} slots.", numbers)


@check(item=2, name="peak-within-q-cap", title="No destination planned above q_cap")
def peak_within_q_cap(evidence: Evidence, live: Live) -> Judgement:
    """Check the planned load of the fullest destination, as a share of q_cap times its speed."""
    peak = evidence.plan.peak_use
    numbers = {"peak_use": peak}
    if peak is None:
        return Judgement(MISSING, "The planned load of each destination is not known. Build the plan again.", numbers)
    if peak > 1:
        return Judgement(
            FAIL,
            f"One destination is planned at {peak:.0%} of q_cap times its speed. The fleet is too small for these "
            "rates.",
            numbers,
        )
    return Judgement(PASS, f"At most {peak:.0%} of q_cap.", numbers)


@check(item=2, name="keys-fit", title="Every key fits the destinations")
def keys_fit(evidence: Evidence, live: Live) -> Judgement:
    """Fail for keys that need more than all destinations at q_cap."""
    cannot = evidence.plan.cannot_fit
    if cannot:
        return Judgement(FAIL, f"{cannot} keys need more than all destinations at q_cap.", {"cannot_fit": cannot})
    return Judgement(PASS, "No key needs more than all destinations at q_cap.", {"cannot_fit": 0})


@check(item=2, name="load-balanced", title="Planned load balanced")
def load_balanced(evidence: Evidence, live: Live) -> Judgement:
    """Compare the planned max/mean load with the policy's limit."""
    imbalance, most = evidence.plan.imbalance, evidence.policy.max_imbalance
    numbers = {"imbalance": imbalance, "max_imbalance": most}
    if imbalance > most:
        return Judgement(
            FAIL,
            f"Planned max/mean load {imbalance:.3f} is above {most:g}. Order the plan with a balance target, which "
            "splits the heaviest keys.",
            numbers,
        )
    return Judgement(PASS, f"Planned max/mean {imbalance:.3f}; the limit is {most:g}.", numbers)


@check(item=2, name="loss-bounded", title="Balanced after losing any one destination")
def loss_bounded(evidence: Evidence, live: Live) -> Judgement:
    """Compare the max/mean load after the worst single loss, with backups, with the policy's limit."""
    worst, most = evidence.plan.worst_loss, evidence.policy.max_loss_imbalance
    numbers = {"worst_loss": worst, "max_loss_imbalance": most}
    if worst is None:
        why = (
            "The plan has one destination: without it nothing serves."
            if len(evidence.plan.destinations) == 1
            else "The load after losing a destination is not known. Build the plan again."
        )
        return Judgement(MISSING, why, numbers)
    if worst > most:
        return Judgement(
            FAIL,
            f"After the worst loss of one destination max/mean would be {worst:.3f}; the fleet's limit is {most:g}. "
            "Order the plan with a balance target, or with more destinations.",
            numbers,
        )
    return Judgement(PASS, f"Max/mean {worst:.3f} after the worst loss; the limit is {most:g}.", numbers)


@summary(item=2)
def summary_of_slots(evidence: Evidence) -> str:
    """Return slots, balance and headroom as a sentence."""
    plan, calibration = evidence.plan, evidence.calibration
    return (
        f"{plan.slots_used:,} of {plan.slots:,} slots, W {plan.slots_per_destination} and at most "
        f"{plan.most_held} keys on a destination of {calibration.slots_measured} measured, planned max/mean "
        f"{plan.imbalance:.3f} and {plan.worst_loss:.3f} after the worst loss of one destination, at most "
        f"{plan.peak_use:.0%} of q_cap."
    )
