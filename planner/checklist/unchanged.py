"""Item 6: what serves now is what was calibrated, planned and replayed."""

from __future__ import annotations

from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence
from planner.records import JsonObject

# Shares of a distribution may move by so many points, the number of active keys by that share, before it is another.
SHAPE_POINTS = 0.05
SHAPE_KEYS = 0.2


@check(item=6, name="profile-unchanged", title="Model, precision, context, batching, cache, engine", waivable=False)
def profile_unchanged(evidence: Evidence, live: Live) -> Judgement:
    """One fingerprint stands for all of these."""
    prints = evidence.fingerprints.to_json()
    numbers = {name: (value or "")[:12] for name, value in prints.items()}
    other = [name for name, value in prints.items() if value and value != prints["fleet"]]
    if other:
        return Judgement(FAIL, f"The serving profile changed since the {', '.join(other)}: run them again.", numbers)
    absent = [name for name, value in prints.items() if not value]
    if absent:
        return Judgement(MISSING, f"No fingerprint of the {', '.join(absent)}.", numbers)
    return Judgement(PASS, "Calibrated, planned and replayed with the profile that serves now.", numbers)


@check(item=6, name="destinations-unchanged", title="Destinations that are up are those planned for", waivable=False)
def destinations_unchanged(evidence: Evidence, live: Live) -> Judgement:
    """By index, in the fleet's order."""
    planned, up = evidence.plan.destinations, evidence.destinations_up
    numbers = {"destinations_planned": len(planned), "destinations_up": len(up)}
    if planned != up:
        return Judgement(
            FAIL,
            f"The plan is for {len(planned)} destinations; those that are up now are {len(up)} or others.",
            numbers,
        )
    return Judgement(PASS, f"All {len(up)} destinations that were planned for are up, and no other.", numbers)


@check(item=6, name="speeds-unchanged", title="Speeds of the destinations are those planned for", waivable=False)
def speeds_unchanged(evidence: Evidence, live: Live) -> Judgement:
    """Relative speeds decide how much each one is given."""
    planned, up = evidence.plan.destinations, evidence.destinations_up
    # Of destinations that are not both planned for and up another check speaks.
    was = dict(zip(planned, evidence.plan.capacity, strict=True))
    now = dict(zip(up, evidence.capacity_up, strict=False))
    changed = [index for index in planned if index in now and was[index] != now[index]]
    if changed:
        return Judgement(
            FAIL,
            f"The speed of {len(changed)} of {len(planned)} destinations is not the one that the plan was made for: "
            "order another plan.",
            {"speeds_changed": changed[:10]},
        )
    return Judgement(PASS, "The speeds are those that the plan was made for.")


@check(item=6, name="table-readable", title="The table can be read and is what was judged", waivable=False)
def table_readable(evidence: Evidence, live: Live) -> Judgement:
    """Read from storage at this moment and held against its digest."""
    if not live.table_readable:
        return Judgement(FAIL, "The plan's table cannot be read from storage, or was altered there: order it again.")
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


@check(item=6, name="active-set-unchanged", title="Active-set distribution is the one calibrated and replayed")
def active_set_unchanged(evidence: Evidence, live: Live) -> Judgement:
    """The rates that were planned for, replayed and calibrated with, and those measured on the fleet since."""
    found = evidence.distribution
    if found.replay and found.replay != found.plan:
        return Judgement(FAIL, "The replay is of other rates than the plan: replay it again.")
    for other, words in (
        (found.calibration, "that the calibration was made with"),
        (found.newer, "measured since"),
    ):
        if other and other.apart:
            figures = "; ".join(f"{name} {a:.3g} and {b:.3g}" for name, (a, b) in sorted(other.apart.items()))
            return Judgement(
                FAIL,
                f"The rates of {other.name}, {words}, are another distribution than those of the plan ({figures}).",
                {"distribution_apart": other.apart},
            )
    return Judgement(PASS, "The rates that were planned for, replayed and calibrated with are one distribution.")


@summary(item=6)
def summary_of_same(evidence: Evidence) -> str:
    """All alike; and whether what a replan keeps warm is warm."""
    note = ""
    replan = evidence.replan
    if replan is not None and not replan.incumbent_is_live:
        note = f" Plan {replan.incumbent}, whose warm keys it keeps, is not live: more will be cold than it says."
    return (
        "Model, precision, context, batching, cache allocation and active-set distribution are those replayed; so are "
        "the destinations." + note
    )
