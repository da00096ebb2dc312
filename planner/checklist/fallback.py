"""Item 5: the validated range is known, somebody watches it, and Flat-LB is ready to take over."""

from __future__ import annotations

import datetime as dt

from planner.checklist.engine import FAIL, MISSING, PASS, Judgement, Live, check, summary
from planner.checklist.evidence import Evidence
from planner.checklist.replayed import REACHED

# Runs once a minute; after three that were missed it is not alive.
MONITOR_ALIVE_S = 180.0
ENVELOPE = ("p99_limit_s", "load_high_rps", "active_keys", "max_imbalance", "max_error_rate")


@check(item=5, name="flat-ready", title="Flat-LB ready", waivable=False)
def flat_ready(evidence: Evidence, live: Live) -> Judgement:
    """What a fleet falls back to."""
    if not evidence.fallback.ready:
        return Judgement(FAIL, "The fleet has no approved Flat-LB plan to fall back to.")
    return Judgement(PASS, "Flat-LB stands ready.")


@check(item=5, name="envelope-set", title="Validated range set: active set, p99, imbalance, error rate")
def envelope_set(evidence: Evidence, live: Live) -> Judgement:
    """The limits that the monitor holds telemetry against."""
    envelope = evidence.envelope
    if envelope is None:
        why = "No replay" if evidence.replay is None else "No replayed load met the SLO"
        return Judgement(MISSING, f"{why}, so there is no validated range to leave.")
    lacking = [name for name in ENVELOPE if getattr(envelope, name) is None]
    if lacking:
        return Judgement(
            MISSING, f"The validated range has no {', '.join(lacking)}: evaluate again.", envelope.to_json()
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
    """Otherwise traffic would leave the range at once."""
    envelope, measured = evidence.envelope, evidence.workload.total_rps
    if envelope is None or envelope.load_high_rps is None:
        return Judgement(MISSING, "There is no validated range.")
    numbers = {"workload_rps": measured}
    if envelope.load_high_rps < REACHED * measured:
        return Judgement(
            FAIL,
            f"Validated up to {envelope.load_high_rps:g} requests/s only, the highest replayed load up to which p99 "
            f"meets the SLO; the rates were measured at {measured:g}, where traffic would leave the range at once.",
            numbers,
        )
    return Judgement(PASS, f"Validated up to {envelope.load_high_rps:g}, measured {measured:g}.", numbers)


def _not_connected(evidence: Evidence, live: Live) -> bool:
    """A sample or trial fleet from which nothing was ever heard: there is nobody to watch yet."""
    return live.telemetry_at is None and bool(evidence.policy.accept_simulated)


NOT_CONNECTED = "Nothing has reported yet, which this fleet's policy accepts; once something has, it must go on."


@check(item=5, name="monitor-alive", title="The monitor runs")
def monitor_alive(evidence: Evidence, live: Live) -> Judgement:
    """Judged at this moment, and again at each vote and deployment; no digest holds it."""
    if _not_connected(evidence, live):
        return Judgement(PASS, NOT_CONNECTED)
    if live.monitor_at is None:
        return Judgement(MISSING, "The monitor has never run: nobody would notice that the range is left.")
    age_s = (live.now - live.monitor_at).total_seconds()
    if age_s > MONITOR_ALIVE_S:
        return Judgement(FAIL, f"The monitor ran {_ago(age_s)} ago last; it should every minute. Is beat running?")
    return Judgement(PASS, "The monitor ran within the last three minutes.")


@check(item=5, name="telemetry-fresh", title="Routers report")
def telemetry_fresh(evidence: Evidence, live: Live) -> Judgement:
    """Judged at this moment, and again at each vote and deployment; no digest holds it."""
    if _not_connected(evidence, live):
        return Judgement(PASS, NOT_CONNECTED)
    if live.telemetry_at is None:
        return Judgement(
            MISSING,
            "No router of this fleet has reported telemetry yet, so that leaving the range would not be seen. Routers "
            "report while Flat-LB is live, too.",
        )
    age_s, limit = (live.now - live.telemetry_at).total_seconds(), evidence.policy.telemetry_stale_s
    if age_s > limit:
        return Judgement(MISSING, f"Telemetry is silent for {_ago(age_s)}; the fleet's limit is {_ago(limit)}.")
    return Judgement(PASS, f"Telemetry within the last {_ago(limit)}.")


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else str(dt.timedelta(seconds=round(seconds)))


@summary(item=5)
def summary_of_fallback(evidence: Evidence) -> str:
    """The validated range in a sentence."""
    envelope = evidence.envelope
    assert envelope is not None  # its check passed
    return (
        f"Validated for p99 up to {envelope.p99_limit_s:g} s, {envelope.load_low_rps:g} to "
        f"{envelope.load_high_rps:g} requests/s, {envelope.active_keys:,} active keys, max/mean up to "
        f"{envelope.max_imbalance:.3g} and {envelope.max_error_rate:.2%} errors; Flat-LB stands ready."
    )
