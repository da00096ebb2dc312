"""The chain of the audit trail: what was altered, removed, moved or cut off is found and named."""

import json
import threading

import pgtrigger
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import Invalid, NotAllowed
from planner.models import AuditCheckpoint, AuditEvent, AuditLink
from planner.models.audit_chain import GENESIS
from planner.services.audit import chain
from planner.services.audit.events import record_event
from planner.services.rollouts.fallback import fall_back
from tests import factories as make

pytestmark = pytest.mark.django_db(transaction=True)


def write(fleet, count=1, **values):
    for n in range(count):
        record_event("plan.commented", acting_user=None, fleet=fleet, subject=fleet, reason=f"event {n}", **values)


def tamper(sql, *values):
    """What somebody with the rights of the database's owner may do."""
    with pgtrigger.ignore(), connection.cursor() as cursor:
        cursor.execute(sql, values)


def faults():
    return {(fault.kind, fault.position, fault.event) for fault in chain.verify().faults}


def test_every_event_has_its_place_and_the_chain_holds(cast, fleet):
    write(fleet, 20)
    verdict = chain.verify()
    assert verdict.intact, verdict.faults
    assert verdict.links == AuditEvent.objects.count() == AuditLink.objects.count()
    first, *_, last = AuditLink.objects.order_by("position")
    assert (first.position, first.previous, last.digest) == (1, GENESIS, verdict.head)


def test_an_event_of_a_transaction_that_failed_leaves_no_gap(cast, fleet):
    before = chain.verify().links
    with transaction.atomic():
        write(fleet, 3)
        transaction.set_rollback(True)
    write(fleet)
    verdict = chain.verify()
    assert (verdict.links, verdict.intact) == (before + 1, True)


@pytest.mark.parametrize("column", ["actor_name", "action", "reason", "subject_label", "evidence_digest", "request_id"])
def test_an_altered_event_is_named(cast, fleet, column):
    write(fleet, 5)
    victim = AuditLink.objects.order_by("position")[3]
    tamper(f"UPDATE planner_auditevent SET {column} = 'x' WHERE id = %s", victim.event_id)
    assert faults() == {("altered", victim.position, victim.event_id)}


def test_altered_json_and_times_are_named_too(cast, fleet):
    write(fleet, 5, after={"weight": 0.1})
    one, two = AuditLink.objects.order_by("-position")[:2]
    tamper("""UPDATE planner_auditevent SET after = '{"weight": 0.2}' WHERE id = %s""", one.event_id)
    tamper("UPDATE planner_auditevent SET created_at = created_at - interval '1 us' WHERE id = %s", two.event_id)
    assert faults() == {("altered", one.position, one.event_id), ("altered", two.position, two.event_id)}


def test_a_missing_event_is_named(cast, fleet):
    write(fleet, 5)
    victim = AuditLink.objects.order_by("position")[2]
    tamper("ALTER TABLE planner_auditlink DISABLE TRIGGER ALL")
    tamper("ALTER TABLE planner_auditevent DISABLE TRIGGER ALL")
    try:
        tamper("DELETE FROM planner_auditevent WHERE id = %s", victim.event_id)
        assert faults() == {("missing-event", victim.position, victim.event_id)}
    finally:
        tamper("DELETE FROM planner_auditlink WHERE event_id = %s", victim.event_id)
        tamper("ALTER TABLE planner_auditlink ENABLE TRIGGER ALL")
        tamper("ALTER TABLE planner_auditevent ENABLE TRIGGER ALL")


def test_a_link_that_was_moved_far_away_is_named_at_once(cast, fleet):
    write(fleet, 5)
    victim = AuditLink.objects.order_by("position").last()
    tamper("UPDATE planner_auditlink SET position = 9000000000000000000 WHERE position = %s", victim.position)
    assert {("missing-link", victim.position, None)} <= faults()
    assert chain.verify().fault_count < 10


def test_an_event_that_was_added_later_with_an_older_time_is_named(cast, fleet):
    write(fleet, 3)
    with connection.cursor() as cursor:  # with all triggers on, as a client of the database may
        cursor.execute(
            "INSERT INTO planner_auditevent (fleet_id, action, actor_name, token_prefix, request_id, subject_type, "
            "subject_label, before, after, reason, evidence_digest, created_at) VALUES (%s, 'plan.approved', 'ghost', "
            "'', '', 'plan', 'Plan 1', '{}', '{}', '', '', now() - interval '30 days')",
            [fleet.pk],
        )
    last = AuditLink.objects.order_by("position").last()
    assert faults() == {("backdated", last.position, last.event_id)}


def test_a_stored_checkpoint_whose_signature_does_not_hold_is_named(cast, fleet):
    write(fleet, 3)
    row = chain.sign_checkpoint(acting_user=cast.root)
    tamper("""UPDATE planner_auditcheckpoint SET document = document || '{"position": 1}' WHERE id = %s""", row.pk)
    (fault,) = chain.verify().faults
    assert (fault.kind, "signature is not valid" in fault.message) == ("checkpoint", True)


def test_a_missing_link_and_the_event_without_place_are_named(cast, fleet):
    write(fleet, 5)
    victim = AuditLink.objects.order_by("position")[2]
    tamper("DELETE FROM planner_auditlink WHERE position = %s", victim.position)
    assert faults() == {("missing-link", victim.position, None), ("unchained", None, victim.event_id)}


def test_two_swapped_events_are_distinguished_from_altered_ones(cast, fleet):
    write(fleet, 6)
    one, two = AuditLink.objects.order_by("position")[2], AuditLink.objects.order_by("position")[4]
    for link in (one, two):
        tamper("DELETE FROM planner_auditlink WHERE position = %s", link.position)
    for link, event in ((one, two.event_id), (two, one.event_id)):
        tamper(
            "INSERT INTO planner_auditlink (position, event_id, previous, digest) VALUES (%s, %s, %s, %s)",
            link.position, event, link.previous, link.digest,
        )  # fmt: skip
    assert faults() == {("moved", one.position, two.event_id), ("moved", two.position, one.event_id)}


def test_events_written_around_the_chain_are_named(cast, fleet):
    write(fleet, 2)
    with pgtrigger.ignore("planner.AuditEvent:chained"):
        write(fleet)
    stray = AuditEvent.objects.latest("id")
    assert faults() == {("unchained", None, stray.pk)}


def test_an_end_that_was_cut_off_is_shown_by_a_checkpoint_only(cast, fleet, tmp_path):
    write(fleet, 3)
    row = chain.sign_checkpoint(acting_user=cast.root)
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(row.document))
    last = AuditLink.objects.order_by("-position")[:3]
    doomed = [(link.position, link.event_id) for link in last]
    tamper("DELETE FROM planner_auditcheckpoint")
    for position, event in doomed:
        tamper("DELETE FROM planner_auditlink WHERE position = %s", position)
        tamper("DELETE FROM planner_auditevent WHERE id = %s", event)
    assert chain.verify().intact
    with pytest.raises(CommandError, match="1 faults"):
        call_command("verify_audit", checkpoint=[kept])


def test_a_rewritten_chain_is_shown_by_a_checkpoint(cast, fleet):
    write(fleet, 3)
    row = chain.sign_checkpoint(acting_user=cast.root)
    tamper("UPDATE planner_auditlink SET digest = %s WHERE position = %s", "f" * 64, row.position)
    kinds = {fault.kind for fault in chain.verify().faults}
    assert {"checkpoint", "altered", "broken"} <= kinds


def test_a_checkpoint_that_was_altered_or_signed_by_another_is_refused(cast, fleet, tmp_path):
    write(fleet, 3)
    document = chain.sign_checkpoint(acting_user=cast.root).document
    assert chain.check_signature(document, document["public_key"]) == document
    for change in ({"position": 1}, {"digest": "0" * 64}, {"signature": "00"}, {"format": "x"}, {"issued_at": "y"}):
        with pytest.raises(Invalid):
            chain.check_signature({**document, **change})
    with pytest.raises(Invalid, match="another key"):
        chain.check_signature(document, "ab" * 32)
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(Invalid, match=r"broken\.json"):
        chain.read_checkpoint(broken)


def test_the_key_is_made_once_for_its_owner_only_and_may_be_given(settings, tmp_path):
    settings.HOME = tmp_path
    first = chain.signing_key().private_bytes_raw()
    assert chain.signing_key().private_bytes_raw() == first
    assert (tmp_path / "audit-key").stat().st_mode & 0o777 == 0o600
    settings.AUDIT_KEY = "11" * 32
    assert chain.signing_key().private_bytes_raw().hex() == "11" * 32
    settings.AUDIT_KEY = "not hex"
    with pytest.raises(Invalid, match="CACHEROUTE_AUDIT_KEY"):
        chain.signing_key()


def test_only_who_manages_signs(cast, fleet):
    with pytest.raises(NotAllowed):
        chain.sign_checkpoint(acting_user=cast.ada)
    assert not AuditCheckpoint.objects.exists()


@pytest.mark.parametrize("table", ["planner_auditevent", "planner_auditlink", "planner_auditcheckpoint"])
def test_rows_of_the_trail_are_neither_changed_nor_removed_nor_truncated(cast, fleet, table):
    chain.sign_checkpoint(acting_user=cast.root)
    column = {"planner_auditevent": "reason", "planner_auditlink": "digest", "planner_auditcheckpoint": "digest"}[table]
    for sql in (f"UPDATE {table} SET {column} = 'x'", f"DELETE FROM {table}", f"TRUNCATE {table} CASCADE"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)


def test_writers_at_once_give_one_chain(cast, fleet):
    def run():
        try:
            for _ in range(10):
                write(fleet)
        finally:
            connections.close_all()

    before = AuditLink.objects.count()
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    verdict = chain.verify()
    assert (verdict.links - before, verdict.intact) == (80, True)


@given(
    reason=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), number=st.floats(-1e300, 1e300)
)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_recorded_verifies(cast, fleet, reason, number):
    record_event(
        "plan.commented", acting_user=cast.ada, fleet=None, subject=fleet, reason=reason, after={reason: [number, None]}
    )
    assert chain.verify().intact


def test_the_command_says_what_it_found_as_json(cast, fleet, capsys):
    write(fleet, 2)
    call_command("verify_audit", json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["intact"], found["links"], found["faults"]) == (True, AuditLink.objects.count(), [])


def test_a_fall_back_does_not_wait_for_a_long_transaction_that_has_written_events(cast, fleet):
    busy, done = threading.Event(), threading.Event()

    def long_one():
        try:
            with transaction.atomic():
                record_event("workload.imported", acting_user=None, fleet=None, subject=fleet)
                busy.set()
                assert done.wait(20)
        finally:
            connections.close_all()

    thread = threading.Thread(target=long_one)
    thread.start()
    try:
        assert busy.wait(10)
        fall_back(acting_user=cast.linus, fleet=fleet, reason="now")
        assert make.Fleet.objects.get(pk=fleet.pk).table_version >= 1
    finally:
        done.set()
        thread.join()
    assert chain.verify().intact
