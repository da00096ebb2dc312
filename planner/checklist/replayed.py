"""Item 3: candidate, Flat-LB and the live plan replayed at matched loads below and at the knee, with paired seeds."""

from __future__ import annotations

from planner.analysis.verdict import PolicyFigures
from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence, ReplayEvidence, SyntheticTrace

REACHED = 0.99  # share of a rate that counts as reached: loads are rounded
MIN_RUNS = 20  # runs of a bootstrap: with fewer, every seed replays almost the same arrivals


@check(item=3, name="flat-replayed", title="Candidate and Flat-LB replayed", waivable=False, needs="replay")
def flat_replayed(evidence: Evidence, live: Live) -> Judgement:
    """Check that both policies were replayed."""
    replay = evidence.replayed
    numbers = {"policies": replay.policies, "earlier_replays": replay.earlier_replays}
    lacking = [p for p in ("flat-lb", "cacheroute") if p not in replay.policies]
    if lacking:
        return Judgement(MISSING, f"Not replayed: {', '.join(lacking)}.", numbers)
    return Judgement(PASS, f"Replay {replay.id} has both.", numbers)


@check(item=3, name="incumbent-replayed", title="The live plan replayed too", needs="replay")
def incumbent_replayed(evidence: Evidence, live: Live) -> Judgement:
    """Check that the live plan, where it is not Flat-LB, was replayed with its present table."""
    incumbent = evidence.incumbent
    if incumbent is None:
        return Judgement(PASS, "Flat-LB is live.", {"incumbent": 0})
    numbers = {"incumbent": incumbent.plan}
    if incumbent.apart:
        return Judgement(
            MISSING,
            f"The live plan {incumbent.plan} cannot be replayed with this one: {incumbent.apart}. Fall back to Flat-LB "
            "first, or request a waiver.",
            numbers,
        )
    if evidence.replayed.incumbent is None:
        return Judgement(
            MISSING,
            f"The live plan {incumbent.plan} was not replayed with this one. Replay again: it is added automatically.",
            numbers,
        )
    return Judgement(PASS, f"The live plan {incumbent.plan} was replayed too.", numbers)


def _compared(replay: ReplayEvidence) -> list[PolicyFigures]:
    """Figures of the candidate, of Flat-LB, and of the active plan where it was replayed."""
    return [replay.cacheroute, replay.flat, *([replay.incumbent] if replay.incumbent else [])]


def matched_loads(replay: ReplayEvidence) -> list[float]:
    """Return the loads that all compared policies were run at, ascending."""
    return sorted(set.intersection(*({row.load_rps for row in figures.loads} for figures in _compared(replay))))


@check(item=3, name="loads-matched", title="Enough loads at which all policies were replayed", needs="replay")
def loads_matched(evidence: Evidence, live: Live) -> Judgement:
    """Count loads with the same arrivals for all policies; loads that bisection added to one do not count."""
    loads, least = matched_loads(evidence.replayed), evidence.policy.min_loads
    # Only loads that were ordered count; loads of single policies are additional.
    found = min(len(loads), len(evidence.replayed.loads_rps))
    numbers = {"loads": found, "min_loads": least}
    if found < least:
        return Judgement(MISSING, f"{found} matched loads; the gate needs {least}.", numbers)
    return Judgement(PASS, f"{found} matched loads; at least {least} are needed.", numbers)


@check(item=3, name="seeds-paired", title="Enough paired seeds", needs="replay")
def seeds_paired(evidence: Evidence, live: Live) -> Judgement:
    """Check for enough seeds for an interval."""
    seeds, least = len(evidence.replayed.seeds), evidence.policy.min_seeds
    numbers = {"seeds": seeds, "min_seeds": least}
    if seeds < least:
        return Judgement(MISSING, f"{seeds} paired seeds; the gate needs {least}.", numbers)
    return Judgement(PASS, f"{seeds} paired seeds; at least {least} are needed.", numbers)


@check(item=3, name="rate-reached", title="Measured rate reached by the replayed loads", needs="replay")
def rate_reached(evidence: Evidence, live: Live) -> Judgement:
    """Require a replayed load of at least the measured rate."""
    highest, measured = max(evidence.replayed.loads_rps), evidence.workload.total_rps
    numbers = {"highest_load_rps": highest, "workload_rps": measured}
    if highest < REACHED * measured:
        return Judgement(
            MISSING,
            f"Replayed up to {highest:g} requests/s; the measured rate is {measured:g}. Replay that load too.",
            numbers,
        )
    return Judgement(PASS, f"Replayed up to {highest:g} requests/s, measured {measured:g}.", numbers)


@check(item=3, name="below-the-knee", title="A load within the SLO", needs="replay")
def below_the_knee(evidence: Evidence, live: Live) -> Judgement:
    """Fail when the candidate misses the SLO at every load."""
    replay = evidence.replayed
    within = [row.load_rps for row in replay.cacheroute.loads if row.p99_s.mean <= replay.slo_p99_s]
    if not within:
        return Judgement(FAIL, "The candidate misses the SLO at every replayed load.")
    return Judgement(PASS, f"The candidate meets the SLO up to {max(within):g} requests/s.")


@check(item=3, name="knee-reached", title="A load at the knee", needs="replay")
def knee_reached(evidence: Evidence, live: Live) -> Judgement:
    """Require a load at the calibrated knee of the fleet, or one at which a compared policy misses the SLO."""
    replay = evidence.replayed
    loads = matched_loads(replay)
    if not loads:
        return Judgement(MISSING, "There is no load that all policies were replayed at.")
    knee = evidence.calibration.q_cap * sum(evidence.plan.capacity)
    numbers = {"knee_rps": knee}
    broken = [
        row.load_rps
        for figures in _compared(replay)
        for row in figures.loads
        if row.load_rps in loads and row.p99_s.mean > replay.slo_p99_s
    ]
    if loads[-1] < REACHED * knee and not broken:
        return Judgement(
            MISSING,
            f"Every policy meets the SLO at every load up to {loads[-1]:g} requests/s, and the calibrated knee is at "
            f"{knee:g}: replay a load there, or what breaks first stays unknown.",
            numbers,
        )
    at = f"from {min(broken):g} requests/s on one of them misses the SLO" if broken else f"the knee is at {knee:g}"
    return Judgement(PASS, f"Loads up to {loads[-1]:g} requests/s; {at}.", numbers)


@check(item=3, name="requests-enough", title="Enough measured requests a cell", needs="replay")
def requests_enough(evidence: Evidence, live: Live) -> Judgement:
    """Require enough measured requests for a p99."""
    few, least = evidence.replayed.measured_requests, evidence.policy.min_requests
    numbers = {"measured_requests": few, "min_requests": least}
    if few < least:
        return Judgement(
            MISSING, f"{few:,} measured requests a cell are too few for a p99; at least {least:,} are needed.", numbers
        )
    return Judgement(PASS, f"{few:,} measured requests in the smallest cell; at least {least:,} are needed.", numbers)


@check(item=3, name="arrivals-like-traffic", title="Arrivals as variable as traffic", needs="replay")
def arrivals_like_traffic(evidence: Evidence, live: Live) -> Judgement:
    """Reject arrivals that are too regular, and bootstraps of too few runs."""
    replay = evidence.replayed
    # Evidence of an earlier format has none of these.
    names = ("arrivals", "cv", "run_length", "runs", "warmup", "refined_loads")
    numbers = {name: getattr(replay, name) for name in names}
    cv, runs = replay.cv, replay.runs
    if cv is not None and cv < 1:
        return Judgement(
            MISSING,
            f"Gamma arrivals with a coefficient of variation of {cv:g} are more regular than Poisson arrivals (1), so "
            "queues are too short. Replay with 1 or more, or with other arrivals.",
            numbers,
        )
    if runs is not None and runs < MIN_RUNS:
        return Judgement(
            MISSING,
            f"Runs of {replay.run_length:,} gaps give only {runs} runs to draw from; {MIN_RUNS} are needed. Replay "
            "with shorter runs or more requests.",
            numbers,
        )
    return Judgement(PASS, f"{str(replay.arrivals or 'poisson').capitalize()} arrivals.", numbers)


@check(item=3, name="slo-current", title="Replayed for the present SLO", needs="replay")
def slo_current(evidence: Evidence, live: Live) -> Judgement:
    """Require the present SLO: capacity depends on it."""
    then, now = evidence.replayed.slo_p99_s, evidence.policy.slo_p99_s
    numbers = {"slo_p99_s": then}
    if then != now:
        return Judgement(MISSING, f"Replayed for an SLO of {then:g} s; the fleet's SLO is now {now:g} s.", numbers)
    return Judgement(PASS, f"p99 within {now:g} s.", numbers)


@check(item=3, name="trace-measured", title="Requests of a measured trace", needs="replay")
def trace_measured(evidence: Evidence, live: Live) -> Judgement:
    """Accept requests made from rates where the policy accepts simulated evidence."""
    made = evidence.replayed.synthetic_trace
    numbers = {"synthetic_trace": made}
    if made and not evidence.policy.accept_simulated:
        return Judgement(
            MISSING,
            "The requests are synthetic, generated from the rates: this fleet's policy requires a measured trace.",
            numbers,
        )
    if made:
        return Judgement(PASS, describe_synthetic(made), numbers)
    if evidence.workload.simulated:
        if not evidence.policy.accept_simulated:
            return Judgement(MISSING, "The trace was generated: this fleet's policy requires a measured one.", numbers)
        return Judgement(PASS, "Simulated: the trace was generated, which this fleet's policy accepts.", numbers)
    return Judgement(PASS, "The requests are from a measured trace.", numbers)


@check(item=3, name="none-refused", title="Every request fits a cache", needs="replay")
def none_refused(evidence: Evidence, live: Live) -> Judgement:
    """Fail when requests are larger than a whole cache."""
    refused = sum(row.refused for row in evidence.replayed.cacheroute.loads)
    if refused:
        return Judgement(
            FAIL, f"{refused:,} requests are larger than a whole cache and were refused.", {"refused": refused}
        )
    return Judgement(PASS, "No request was refused.", {"refused": 0})


def describe_synthetic(made: SyntheticTrace) -> str:
    """Return a sentence on how requests were made from rates."""
    prefix, suffix, output = made.prefix_tokens[0], made.suffix_tokens[0], made.output_tokens[0]
    return (
        f"Requests are synthetic, generated from the rates of the {made.active_keys:,} busiest keys, with a median of "
        f"{prefix:,.0f} prefix, {suffix:,.0f} suffix and {output:,.0f} output tokens."
    )


@summary(item=3)
def summary_of_replay(evidence: Evidence) -> str:
    """Return loads, seeds, how requests were made, and the number of earlier replays."""
    replay = evidence.replayed
    made = replay.synthetic_trace
    note = f" {describe_synthetic(made)}" if made else ""
    if earlier := replay.earlier_replays:
        note += (
            f" It is replay {earlier + 1} of this plan: {earlier} earlier one{'s' if earlier > 1 else ''} had figures "
            "to look at, finished or not."
        )
    beside = f", plan {evidence.incumbent.plan} beside" if evidence.incumbent else ""
    return (
        f"{len(replay.loads_rps)} matched loads from {min(replay.loads_rps):g} to "
        f"{max(replay.loads_rps):g} requests/s, {len(replay.seeds)} paired seeds{beside}.{note}"
    )
