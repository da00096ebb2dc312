"""Item 2: warm slots within what was measured, the budget kept, the planned load balanced, also after a loss."""

from __future__ import annotations

from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence


@check(item=2, name="keys-admitted", title="The table routes keys")
def keys_admitted(evidence: Evidence, live: Live) -> Judgement:
    """A table without keys is Flat-LB."""
    admitted = evidence.plan.admitted
    if not admitted:
        return Judgement(FAIL, "The plan admits no key: it is Flat-LB under another name.", {"admitted": 0})
    return Judgement(PASS, f"{admitted:,} keys have a place.", {"admitted": admitted})


@check(item=2, name="w-within-calibrated", title="W within the calibrated capacity times its margin")
def w_within_calibrated(evidence: Evidence, live: Live) -> Judgement:
    """The calibrated W is what was measured to stay warm times the margin."""
    w, calibrated = evidence.plan.slots_per_destination, evidence.calibration.warm_slots
    numbers = {
        "slots_per_destination": w,
        "slots_calibrated": calibrated,
        "margin": evidence.calibration.margin,
    }
    if w > calibrated:
        return Judgement(FAIL, "W is above the calibrated allocation: admitted keys would evict each other.", numbers)
    return Judgement(PASS, f"W {w} of {calibrated} calibrated.", numbers)


@check(item=2, name="w-below-measured", title="W leaves a margin below what was measured")
def w_below_measured(evidence: Evidence, live: Live) -> Judgement:
    """All that was measured is not conservative."""
    w, measured = evidence.plan.slots_per_destination, evidence.calibration.slots_measured
    numbers = {"slots_measured": measured}
    if w >= measured > 0:
        return Judgement(FAIL, "W is all that was measured, without a margin: that is not conservative.", numbers)
    return Judgement(PASS, f"W {w}, {measured} measured to stay warm.", numbers)


@check(item=2, name="most-held-bounded", title="No destination holds more keys than stay warm")
def most_held_bounded(evidence: Evidence, live: Live) -> Judgement:
    """The budget is the fleet's; one destination may hold more than its share of it."""
    held, measured = evidence.plan.most_held, evidence.calibration.slots_measured
    numbers = {"most_held": held}
    if held is None:
        return Judgement(MISSING, "How many keys each destination holds is not known: build the plan again.", numbers)
    if held >= measured > 0:
        return Judgement(
            FAIL,
            f"One destination holds {held:,} keys and {measured:,} were measured to stay warm: they would evict each "
            "other. Order the plan with a lower W.",
            numbers,
        )
    return Judgement(PASS, f"At most {held:,} keys on a destination of {measured:,} measured.", numbers)


@check(item=2, name="slots-within-budget", title="Slots used within the budget C")
def slots_within_budget(evidence: Evidence, live: Live) -> Judgement:
    """Equation 3: the k_b of admitted keys add up to C at most."""
    used, budget = evidence.plan.slots_used, evidence.plan.slots
    numbers = {"slots_used": used, "slots": budget}
    if used > budget:
        return Judgement(FAIL, "The plan uses more warm slots than its budget.", numbers)
    return Judgement(PASS, f"{used:,} of {budget:,} slots.", numbers)


@check(item=2, name="peak-within-q-cap", title="No destination planned above q_cap")
def peak_within_q_cap(evidence: Evidence, live: Live) -> Judgement:
    """Planned load of the fullest destination, as a share of q_cap times its speed."""
    peak = evidence.plan.peak_use
    numbers = {"peak_use": peak}
    if peak is None:
        return Judgement(MISSING, "How full each destination is planned is not known: build the plan again.", numbers)
    if peak > 1:
        return Judgement(
            FAIL,
            f"One destination is planned at {peak:.0%} of q_cap times its speed: the fleet is too small for these "
            "rates.",
            numbers,
        )
    return Judgement(PASS, f"At most {peak:.0%} of q_cap.", numbers)


@check(item=2, name="keys-fit", title="Every key fits the destinations")
def keys_fit(evidence: Evidence, live: Live) -> Judgement:
    """A key that needs more than all destinations at q_cap fits nowhere."""
    cannot = evidence.plan.cannot_fit
    if cannot:
        return Judgement(FAIL, f"{cannot} keys need more than all destinations at q_cap.", {"cannot_fit": cannot})
    return Judgement(PASS, "No key needs more than all destinations at q_cap.", {"cannot_fit": 0})


@check(item=2, name="load-balanced", title="Planned load balanced")
def load_balanced(evidence: Evidence, live: Live) -> Judgement:
    """Planned max/mean load within the policy's limit."""
    imbalance, most = evidence.plan.imbalance, evidence.policy.max_imbalance
    numbers = {"imbalance": imbalance, "max_imbalance": most}
    if imbalance > most:
        return Judgement(
            FAIL,
            f"Planned max/mean load {imbalance:.3f} is above {most:g}: order the plan with a balance target, which "
            "splits the keys that weigh too much.",
            numbers,
        )
    return Judgement(PASS, f"Planned max/mean {imbalance:.3f}, {most:g} at most.", numbers)


@check(item=2, name="loss-bounded", title="Balanced after the loss of any one destination")
def loss_bounded(evidence: Evidence, live: Live) -> Judgement:
    """Planned max/mean load of the rest after the worst single loss, backups included."""
    worst, most = evidence.plan.worst_loss, evidence.policy.max_loss_imbalance
    numbers = {"worst_loss": worst, "max_loss_imbalance": most}
    if worst is None:
        why = (
            "The plan is for one destination: nothing is left to serve when it is lost."
            if len(evidence.plan.destinations) == 1
            else "The load after the loss of a destination is not known: build the plan again."
        )
        return Judgement(MISSING, why, numbers)
    if worst > most:
        return Judgement(
            FAIL,
            f"After the worst loss of one destination the rest would stand at max/mean {worst:.3f}; the fleet's limit "
            f"is {most:g}. Order the plan with a balance target, or with more destinations.",
            numbers,
        )
    return Judgement(PASS, f"Max/mean {worst:.3f} after the worst loss, {most:g} at most.", numbers)


@summary(item=2)
def summary_of_slots(evidence: Evidence) -> str:
    """Slots, balance and head room in one sentence."""
    plan, calibration = evidence.plan, evidence.calibration
    return (
        f"{plan.slots_used:,} of {plan.slots:,} slots, W {plan.slots_per_destination} and at most "
        f"{plan.most_held} keys on a destination of {calibration.slots_measured} measured, planned max/mean "
        f"{plan.imbalance:.3f} and {plan.worst_loss:.3f} after the worst loss of one destination, at most "
        f"{plan.peak_use:.0%} of q_cap."
    )
