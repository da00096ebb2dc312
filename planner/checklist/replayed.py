"""Item 3: candidate, Flat-LB and what is live, replayed at matched loads below and at the knee, with paired seeds."""

from __future__ import annotations

from planner.analysis.verdict import PolicyFigures
from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence, ReplayEvidence, SyntheticTrace

REACHED = 0.99  # of a rate: loads are rounded
MIN_RUNS = 20  # of a bootstrap: fewer long runs are the trace itself in another order, for every seed


@check(item=3, name="flat-replayed", title="Candidate and Flat-LB replayed", waivable=False, needs="replay")
def flat_replayed(evidence: Evidence, live: Live) -> Judgement:
    """Without both there is nothing to compare."""
    replay = evidence.replayed
    numbers = {"policies": replay.policies, "earlier_replays": replay.earlier_replays}
    lacking = [p for p in ("flat-lb", "cacheroute") if p not in replay.policies]
    if lacking:
        return Judgement(MISSING, f"Not replayed: {', '.join(lacking)}.", numbers)
    return Judgement(PASS, f"Replay {replay.id} has both.", numbers)


@check(item=3, name="incumbent-replayed", title="The plan that is live replayed beside them", needs="replay")
def incumbent_replayed(evidence: Evidence, live: Live) -> Judgement:
    """Where Flat-LB is live it is there already; another plan has to be replayed as it is now."""
    incumbent = evidence.incumbent
    if incumbent is None:
        return Judgement(PASS, "Flat-LB is what is live.", {"incumbent": 0})
    numbers = {"incumbent": incumbent.plan}
    if incumbent.apart:
        return Judgement(
            MISSING,
            f"Plan {incumbent.plan}, which is live, cannot be replayed beside this one: {incumbent.apart}. Fall "
            "back to Flat-LB first, or ask for a waiver.",
            numbers,
        )
    if evidence.replayed.incumbent is None:
        return Judgement(
            MISSING,
            f"Plan {incumbent.plan}, which is live, was not replayed beside this one: replay again, it is added by "
            "itself.",
            numbers,
        )
    return Judgement(PASS, f"Plan {incumbent.plan}, which is live, was replayed beside.", numbers)


def _compared(replay: ReplayEvidence) -> list[PolicyFigures]:
    """Figures of the candidate, of Flat-LB, and of the active plan where it was replayed."""
    return [replay.cacheroute, replay.flat, *([replay.incumbent] if replay.incumbent else [])]


def matched_loads(replay: ReplayEvidence) -> list[float]:
    """Loads that all compared policies were run at, ascending."""
    return sorted(set.intersection(*({row.load_rps for row in figures.loads} for figures in _compared(replay))))


@check(item=3, name="loads-matched", title="Enough loads at which all were replayed", needs="replay")
def loads_matched(evidence: Evidence, live: Live) -> Judgement:
    """Differences are judged at the same arrivals: loads that bisection added to one policy do not count."""
    loads, least = matched_loads(evidence.replayed), evidence.policy.min_loads
    # A ladder is what was asked for; loads of single policies come on top.
    found = min(len(loads), len(evidence.replayed.loads_rps))
    numbers = {"loads": found, "min_loads": least}
    if found < least:
        return Judgement(MISSING, f"{found} loads that all were replayed at; the gate needs {least}.", numbers)
    return Judgement(PASS, f"{found} matched loads, {least} at least.", numbers)


@check(item=3, name="seeds-paired", title="Enough paired seeds", needs="replay")
def seeds_paired(evidence: Evidence, live: Live) -> Judgement:
    """Two seeds give no interval worth the name."""
    seeds, least = len(evidence.replayed.seeds), evidence.policy.min_seeds
    numbers = {"seeds": seeds, "min_seeds": least}
    if seeds < least:
        return Judgement(MISSING, f"{seeds} paired seeds; the gate needs {least}.", numbers)
    return Judgement(PASS, f"{seeds} paired seeds, {least} at least.", numbers)


@check(item=3, name="rate-reached", title="The measured rate among the replayed loads", needs="replay")
def rate_reached(evidence: Evidence, live: Live) -> Judgement:
    """What is not replayed at the rate that is to be served says nothing of it."""
    highest, measured = max(evidence.replayed.loads_rps), evidence.workload.total_rps
    numbers = {"highest_load_rps": highest, "workload_rps": measured}
    if highest < REACHED * measured:
        return Judgement(
            MISSING,
            f"Replayed up to {highest:g} requests/s; the rates were measured at {measured:g}: replay that load too.",
            numbers,
        )
    return Judgement(PASS, f"Replayed up to {highest:g} requests/s, measured {measured:g}.", numbers)


@check(item=3, name="below-the-knee", title="A load within the SLO", needs="replay")
def below_the_knee(evidence: Evidence, live: Live) -> Judgement:
    """A candidate that misses the SLO everywhere serves nothing."""
    replay = evidence.replayed
    within = [row.load_rps for row in replay.cacheroute.loads if row.p99_s.mean <= replay.slo_p99_s]
    if not within:
        return Judgement(FAIL, "The candidate misses the SLO at every replayed load.")
    return Judgement(PASS, f"The candidate meets the SLO up to {max(within):g} requests/s.")


@check(item=3, name="knee-reached", title="A load at the knee", needs="replay")
def knee_reached(evidence: Evidence, live: Live) -> Judgement:
    """At the calibrated knee of the fleet, or where a compared policy stops meeting the SLO: that is a knee seen."""
    replay = evidence.replayed
    loads = matched_loads(replay)
    if not loads:
        return Judgement(MISSING, "There is no load that all were replayed at.")
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
    """Of a thousand requests ten lie beyond the p99."""
    few, least = evidence.replayed.measured_requests, evidence.policy.min_requests
    numbers = {"measured_requests": few, "min_requests": least}
    if few < least:
        return Judgement(
            MISSING, f"{few:,} measured requests a cell are too few for a p99; {least:,} at least.", numbers
        )
    return Judgement(PASS, f"{few:,} measured requests in the smallest cell, {least:,} at least.", numbers)


@check(item=3, name="arrivals-like-traffic", title="Arrivals no calmer than traffic", needs="replay")
def arrivals_like_traffic(evidence: Evidence, live: Live) -> Judgement:
    """Even arrivals make short queues; a bootstrap of few long runs is the trace itself."""
    replay = evidence.replayed
    # Evidence of an older format has none of these.
    names = ("arrivals", "cv", "run_length", "runs", "warmup", "refined_loads")
    numbers = {name: getattr(replay, name) for name in names}
    cv, runs = replay.cv, replay.runs
    if cv is not None and cv < 1:
        return Judgement(
            MISSING,
            f"Gamma arrivals with a coefficient of variation of {cv:g} are more even than chance (1): queues look "
            "shorter than traffic makes them. Replay with 1 or more, or other arrivals.",
            numbers,
        )
    if runs is not None and runs < MIN_RUNS:
        return Judgement(
            MISSING,
            f"Runs of {replay.run_length:,} gaps leave {runs} different ones to draw from; {MIN_RUNS} are needed. "
            "Replay with shorter runs or more requests.",
            numbers,
        )
    return Judgement(PASS, f"{str(replay.arrivals or 'poisson').capitalize()} arrivals.", numbers)


@check(item=3, name="slo-current", title="Replayed for the SLO of today", needs="replay")
def slo_current(evidence: Evidence, live: Live) -> Judgement:
    """Capacity is read at the SLO."""
    then, now = evidence.replayed.slo_p99_s, evidence.policy.slo_p99_s
    numbers = {"slo_p99_s": then}
    if then != now:
        return Judgement(MISSING, f"Replayed for an SLO of {then:g} s; the fleet's is {now:g} s now.", numbers)
    return Judgement(PASS, f"p99 within {now:g} s.", numbers)


@check(item=3, name="trace-measured", title="Requests of a measured trace", needs="replay")
def trace_measured(evidence: Evidence, live: Live) -> Judgement:
    """Requests made from rates alone count where the policy accepts simulated evidence."""
    made = evidence.replayed.synthetic_trace
    numbers = {"synthetic_trace": made}
    if made and not evidence.policy.accept_simulated:
        return Judgement(
            MISSING,
            "The requests were synthesised from the rates: this fleet's policy wants a measured trace.",
            numbers,
        )
    if made:
        return Judgement(PASS, describe_synthetic(made), numbers)
    if evidence.workload.simulated:
        if not evidence.policy.accept_simulated:
            return Judgement(MISSING, "The trace was generated: this fleet's policy wants a measured one.", numbers)
        return Judgement(PASS, "Simulated: the trace was generated, which this fleet's policy accepts.", numbers)
    return Judgement(PASS, "The requests are those of a measured trace.", numbers)


@check(item=3, name="none-refused", title="Every request fits a cache", needs="replay")
def none_refused(evidence: Evidence, live: Live) -> Judgement:
    """Requests larger than a whole cache are served by nobody."""
    refused = sum(row.refused for row in evidence.replayed.cacheroute.loads)
    if refused:
        return Judgement(
            FAIL, f"{refused:,} requests are larger than a whole cache and were refused.", {"refused": refused}
        )
    return Judgement(PASS, "No request was refused.", {"refused": 0})


def describe_synthetic(made: SyntheticTrace) -> str:
    """How requests were made from rates alone, in a sentence."""
    prefix, suffix, output = made.prefix_tokens[0], made.suffix_tokens[0], made.output_tokens[0]
    return (
        f"Requests were synthesised from the rates: to the {made.active_keys:,} busiest keys, with a median of "
        f"{prefix:,.0f} prefix, {suffix:,.0f} suffix and {output:,.0f} answer tokens."
    )


@summary(item=3)
def summary_of_replay(evidence: Evidence) -> str:
    """Loads, seeds, what was made up, and how often it was tried."""
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
