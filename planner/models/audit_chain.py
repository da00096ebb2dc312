"""The hash chain of audit events: the text of an event, and the trigger that links it at commit.

The link of position n is sha256(previous digest + text of the event at n). The chain's lock is taken only at commit,
so transactions that write events do not wait for each other while they work.
"""

from __future__ import annotations

import pgtrigger

# Advisory lock of the end of the chain; jobs and cells have 7301 and 7302.
CHAIN_SPACE = 7303
GENESIS = "0" * 64


def event_text(event: str, position: str) -> str:
    """Return the SQL of an event's canonical text at a position; the digest is computed over this text.

    Parameters
    ----------
    event, position
        SQL names of the row of `planner_auditevent` and of its place in the chain.
    """
    columns = (
        f"{event}.id, {event}.fleet_id, {event}.action, {event}.actor_id, {event}.actor_name, {event}.token_number, "
        f"{event}.token_prefix, {event}.request_id, host({event}.ip_address), {event}.subject_type, "
        f"{event}.subject_id, {event}.subject_label, {event}.before, {event}.after, {event}.reason, "
        f"{event}.evidence_digest, to_char({event}.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
    )
    return f"jsonb_build_array({position}, {columns})::text"


def chained() -> pgtrigger.Trigger:
    """Return the trigger on audit events that adds the link at the end of the transaction."""
    return pgtrigger.Trigger(
        name="chained",
        when=pgtrigger.After,
        operation=pgtrigger.Insert,
        timing=pgtrigger.Deferred,
        declare=[("last", "RECORD"), ("place", "BIGINT"), ("earlier", "TEXT")],
        func=f"""
            PERFORM pg_advisory_xact_lock({CHAIN_SPACE}, 0);
            SELECT position, digest INTO last FROM planner_auditlink ORDER BY position DESC LIMIT 1;
            place := COALESCE(last.position, 0) + 1;
            earlier := COALESCE(last.digest, '{GENESIS}');
            INSERT INTO planner_auditlink (position, event_id, previous, digest)
            VALUES (place, NEW.id, earlier,
                    encode(sha256(convert_to(earlier || {event_text("NEW", "place")}, 'UTF8')), 'hex'));
            RETURN NULL;
        """,  # noqa: S608 - put together from constants of this module only
    )
