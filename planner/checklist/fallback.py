"""Item 5: the validated range is known, the monitor runs, routers report, and Flat-LB is ready."""

from __future__ import annotations

import datetime as dt

from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence
from planner.checklist.replayed import REACHED

# The monitor runs once a minute. After three missed runs it counts as stopped.
MONITOR_ALIVE_S = 180.0
ENVELOPE = ("p99_limit_s", "load_high_rps", "active_keys", "max_imbalance", "max_error_rate")


@check(item=5, name="flat-ready", title="Flat-LB ready", waivable=False)
def flat_ready(evidence: Evidence, live: Live) -> Judgement:
    """Fail without an approved Flat-LB plan."""
    if not evidence.fallback.ready:
        return Judgement(FAIL, "The fleet has no approved Flat-LB plan to fall back to.")
    return Judgement(PASS, "Flat-LB is ready.")


@check(item=5, name="envelope-set", title="Validated range set: active set, p99, imbalance, error rate")
def envelope_set(evidence: Evidence, live: Live) -> Judgement:
    """Check that every limit of the validated range is known."""
    envelope = evidence.envelope
    if envelope is None:
        why = "No replay" if evidence.replay is None else "No replayed load met the SLO"
        return Judgement(MISSING, f"{why}, so there is no validated range.")
    lacking = [name for name in ENVELOPE if getattr(envelope, name) is None]
    if lacking:
        return Judgement(
            MISSING, f"The validated range has no {', '.join(lacking)}: evaluate the gate again.", envelope.to_json()
        )
    return Judgement(
        PASS,
        f"p99 up to {envelope.p99_limit_s:g} s, {envelope.load_low_rps:g} to {envelope.load_high_rps:g} "
        f"requests/s, {envelope.active_keys:,} active keys, max/mean {envelope.max_imbalance:.3g}, "
        f"{envelope.max_error_rate:.2%} errors.",
        envelope.to_json(),
    )


@check(item=5, name="range-reaches-rate", title="Validated up to the measured rate")
def range_reaches_rate(evidence: Evidence, live: Live) -> Judgement:
    """Fail when traffic at the measured rate would be outside the range."""
    envelope, measured = evidence.envelope, evidence.workload.total_rps
    if envelope is None or envelope.load_high_rps is None:
        return Judgement(MISSING, "There is no validated range.")
    numbers = {"workload_rps": measured}
    if envelope.load_high_rps < REACHED * measured:
        return Judgement(
            FAIL,
            f"Validated up to {envelope.load_high_rps:g} requests/s, the highest replayed load up to which p99 meets "
            f"the SLO. The measured rate, {measured:g} requests/s, is outside that range.",
            numbers,
        )
    return Judgement(PASS, f"Validated up to {envelope.load_high_rps:g} requests/s, measured {measured:g}.", numbers)


def _not_connected(evidence: Evidence, live: Live) -> bool:
    """Return whether no router has ever reported, on a fleet whose policy accepts simulated evidence."""
    return live.telemetry_at is None and bool(evidence.policy.accept_simulated)


NOT_CONNECTED = "No router has reported yet. This fleet's policy accepts that until the first report."


@check(item=5, name="monitor-alive", title="The monitor runs")
def monitor_alive(evidence: Evidence, live: Live) -> Judgement:
    """Judge the state of the moment, again at each approval and deployment; no digest covers it."""
    if _not_connected(evidence, live):
        return Judgement(PASS, NOT_CONNECTED)
    if live.monitor_at is None:
        return Judgement(
            MISSING, "The monitor has never run, so breaches of the range cannot be detected. Is beat running?"
        )
    age_s = (live.now - live.monitor_at).total_seconds()
    if age_s > MONITOR_ALIVE_S:
        return Judgement(FAIL, f"The monitor last ran {_ago(age_s)} ago; it should run every minute. Is beat running?")
    return Judgement(PASS, "The monitor ran within the last three minutes.")


@check(item=5, name="telemetry-fresh", title="Routers report")
def telemetry_fresh(evidence: Evidence, live: Live) -> Judgement:
    """Judge the state of the moment, again at each approval and deployment; no digest covers it."""
    if _not_connected(evidence, live):
        return Judgement(PASS, NOT_CONNECTED)
    if live.telemetry_at is None:
        return Judgement(
            MISSING,
            "No router of this fleet has reported telemetry yet, so breaches of the range cannot be detected. Routers "
            "can report while Flat-LB is live.",
        )
    age_s, limit = (live.now - live.telemetry_at).total_seconds(), evidence.policy.telemetry_stale_s
    if age_s > limit:
        return Judgement(MISSING, f"The last telemetry is {_ago(age_s)} old; the fleet's limit is {_ago(limit)}.")
    return Judgement(PASS, f"Telemetry within the last {_ago(limit)}.")


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else str(dt.timedelta(seconds=round(seconds)))


@summary(item=5)
def summary_of_fallback(evidence: Evidence) -> str:
    """Return the validated range as a sentence."""
    envelope = evidence.envelope
    assert envelope is not None  # its check passed
    return (
        f"Validated for p99 up to {envelope.p99_limit_s:g} s, {envelope.load_low_rps:g} to "
        f"{envelope.load_high_rps:g} requests/s, {envelope.active_keys:,} active keys, max/mean up to "
        f"{envelope.max_imbalance:.3g} and {envelope.max_error_rate:.2%} errors; Flat-LB is ready."
    )
