"""Item 6: the present serving profile, destinations and rates are those calibrated, planned and replayed."""

from __future__ import annotations

from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence
from planner.records import JsonObject

# A distribution is another when a share moves by more than this, or the number of active keys by that share.
SHAPE_POINTS = 0.05
SHAPE_KEYS = 0.2


@check(item=6, name="profile-unchanged", title="Model, precision, context, batching, cache, engine", waivable=False)
def profile_unchanged(evidence: Evidence, live: Live) -> Judgement:
    """Compare the fingerprints of the serving profile."""
    prints = evidence.fingerprints.to_json()
    numbers = {name: (value or "")[:12] for name, value in prints.items()}
    other = [name for name, value in prints.items() if value and value != prints["fleet"]]
    if other:
        return Judgement(FAIL, f"The serving profile changed since the {', '.join(other)}. Run them again.", numbers)
    absent = [name for name, value in prints.items() if not value]
    if absent:
        return Judgement(MISSING, f"No fingerprint of the {', '.join(absent)}.", numbers)
    return Judgement(PASS, "Calibrated, planned and replayed with the present profile.", numbers)


@check(item=6, name="destinations-unchanged", title="Destinations that are up are the planned ones", waivable=False)
def destinations_unchanged(evidence: Evidence, live: Live) -> Judgement:
    """Compare the indices of destinations that are up with the planned ones."""
    planned, up = evidence.plan.destinations, evidence.destinations_up
    numbers = {"destinations_planned": len(planned), "destinations_up": len(up)}
    if planned != up:
        return Judgement(
            FAIL,
            f"The plan is for {len(planned)} destinations; {len(up)} are up now, or others than planned.",
            numbers,
        )
    return Judgement(PASS, f"The {len(up)} planned destinations are up, and no other.", numbers)


@check(item=6, name="speeds-unchanged", title="Speeds of the destinations are the planned ones", waivable=False)
def speeds_unchanged(evidence: Evidence, live: Live) -> Judgement:
    """Compare the speeds of destinations with those planned for."""
    planned, up = evidence.plan.destinations, evidence.destinations_up
    # Another check judges destinations that are not both planned and up.
    was = dict(zip(planned, evidence.plan.capacity, strict=True))
    now = dict(zip(up, evidence.capacity_up, strict=False))
    changed = [index for index in planned if index in now and was[index] != now[index]]
    if changed:
        return Judgement(
            FAIL,
            f"The speed of {len(changed)} of {len(planned)} destinations changed since the plan was ordered. Order "
            "another plan.",
            {"speeds_changed": changed[:10]},
        )
    return Judgement(PASS, "The speeds are those of the plan.")


@check(item=6, name="table-readable", title="The table can be read and has its digest", waivable=False)
def table_readable(evidence: Evidence, live: Live) -> Judgement:
    """Fail when the table cannot be read from storage or has another digest."""
    if not live.table_readable:
        return Judgement(
            FAIL, "The plan's table cannot be read from storage, or was altered there. Order the plan again."
        )
    return Judgement(PASS, f"The table is {evidence.plan.table_digest[:12]}.")


def apart(one: JsonObject, other: JsonObject) -> dict[str, tuple[float, float]]:
    """Figures in which two shapes of rates (`planner.analysis.RateShape` as JSON) are different distributions."""
    found = {}
    for name in ("gini", "top_4pct_share", "largest_share"):
        if abs(one[name] - other[name]) > SHAPE_POINTS:
            found[name] = (one[name], other[name])
    if abs(one["active_keys"] - other["active_keys"]) > SHAPE_KEYS * one["active_keys"]:
        found["active_keys"] = (one["active_keys"], other["active_keys"])
    return found


@check(item=6, name="active-set-unchanged", title="Distribution of rates unchanged")
def active_set_unchanged(evidence: Evidence, live: Live) -> Judgement:
    """Compare the rates of the plan with those replayed, calibrated with and measured since."""
    found = evidence.distribution
    if found.replay and found.replay != found.plan:
        return Judgement(FAIL, "The replay used other rates than the plan. Replay it again.")
    for other, words in (
        (found.calibration, "used for the calibration"),
        (found.newer, "measured since"),
    ):
        if other and other.apart:
            figures = "; ".join(f"{name} {a:.3g} and {b:.3g}" for name, (a, b) in sorted(other.apart.items()))
            return Judgement(
                FAIL,
                f"The rates of {other.name}, {words}, have another distribution than those of the plan ({figures}).",
                {"distribution_apart": other.apart},
            )
    return Judgement(PASS, "Planned, replayed and calibrated rates have the same distribution.")


@summary(item=6)
def summary_of_same(evidence: Evidence) -> str:
    """Return that all is unchanged, and whether the plan that a replan starts from is live."""
    note = ""
    replan = evidence.replan
    if replan is not None and not replan.incumbent_is_live:
        note = f" Plan {replan.incumbent}, whose warm keys it keeps, is not live: more keys will be cold than planned."
    return (
        "Model, precision, context, batching, cache allocation, distribution of rates and destinations are those "
        "replayed." + note
    )
