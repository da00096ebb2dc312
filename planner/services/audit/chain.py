"""Proving that the audit trail is what it was: the chain read from end to end, and checkpoints signed with Ed25519.

The chain shows every change, gap and swap within what is there. Whoever owns the database could cut off its end, or
write a whole new chain: against that stand checkpoints, kept elsewhere, which say what the chain was at their time.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from planner.digests import canonical_json
from planner.errors import Conflict, Invalid
from planner.models import AuditCheckpoint, AuditEvent, AuditLink
from planner.models.audit_chain import GENESIS, event_text
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit.events import record_event

FORMAT = "cacheroute.checkpoint/1"
MOST_FAULTS = 100  # that are named; all are counted
# An event gets its time when it is written and its place when its transaction commits, which is minutes later at most.
MOST_LATE = dt.timedelta(hours=1)
FETCHED = 5_000  # rows at a time


@dataclass(frozen=True)
class Fault:
    """One thing that is not as it was written."""

    kind: str
    position: int | None
    event: int | None
    message: str


@dataclass
class Verdict:
    """What reading the whole chain found."""

    links: int = 0
    last: int = 0  # position of the last link: the same where nothing is missing
    head: str = GENESIS
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)
    checkpoints: int = 0

    @property
    def intact(self) -> bool:
        """Whether nothing was altered, removed or moved."""
        return not self.fault_count

    def add(self, kind: str, position: int | None, event: int | None, message: str) -> None:
        """Count a fault, and name it while there are few."""
        self.fault_count += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(Fault(kind, position, event, message))


def verify(checkpoints: list[JsonObject] | None = None) -> Verdict:
    """Read the chain and hold it against the stored checkpoints and those given (documents with their signature).

    Names every event that was altered, is missing or stands at another place, links that are missing, and events that
    were written around the chain. What is added meanwhile is not looked at: checkpoints are read
    before the chain, and the chain by one query.
    """
    verdict = Verdict()
    wanted: dict[int, list[JsonObject]] = {}
    known = []
    for row in AuditCheckpoint.objects.order_by("id"):
        try:
            known.append(check_signature(row.document))
        except Invalid as refusal:
            verdict.add("checkpoint", None, None, f"stored checkpoint {row.pk}: {refusal.message}")
    for document in [*known, *(checkpoints or [])]:
        wanted.setdefault(int(document["position"]), []).append(document)
    with transaction.atomic():  # a cursor on the server lives in one
        wrong = _read_chain(verdict, wanted)
        _name_swaps(verdict, wrong)
        for position, documents in wanted.items():
            if position > verdict.last:
                for document in documents:
                    covered = f"the checkpoint of {document['issued_at']} covers {position} links"
                    verdict.add("cut-off", position, None, f"{covered}, the chain ends at {verdict.last}: cut off")
        verdict.checkpoints = sum(len(found) for found in wanted.values())
        for event in AuditEvent.objects.filter(link=None).order_by("id").values_list("id", flat=True)[:MOST_FAULTS]:
            verdict.add("unchained", None, event, f"event {event} has no place in the chain")
    return verdict


def _rows() -> Iterator[tuple[int, int, str, str, dt.datetime | None, str | None]]:
    sql = (
        f"SELECT l.position, l.event_id, l.previous, l.digest, e.created_at, "  # noqa: S608 - constants of models.audit_chain only
        f"CASE WHEN e.id IS NULL THEN NULL ELSE {event_text('e', 'l.position')} END "
        "FROM planner_auditlink l LEFT JOIN planner_auditevent e ON e.id = l.event_id ORDER BY l.position"
    )
    with connection.cursor() as plain:
        plain.execute("SET LOCAL work_mem = '64MB'")
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql)
        while rows := cursor.fetchmany(FETCHED):
            yield from rows


def _read_chain(verdict: Verdict, wanted: dict[int, list[JsonObject]]) -> list[tuple[int, int]]:
    """Walk the links; returns (position, event) of those whose digest is not that of the event that stands there."""
    expected, earlier, wrong, newest = 1, GENESIS, [], None
    for position, event, previous, digest, at, text in _rows():
        if expected < position:
            gap = f"link {expected} is" if position == expected + 1 else f"links {expected} to {position - 1} are"
            verdict.add("missing-link", expected, None, f"{gap} missing")
            earlier = previous
        if previous != earlier:
            verdict.add(
                "broken", position, event, f"link {position} (event {event}) does not follow the link before it"
            )
        if text is None:
            verdict.add("missing-event", position, event, f"event {event} is missing; it stood at {position}")
        elif hashlib.sha256((previous + text).encode()).hexdigest() != digest:
            wrong.append((position, event))
        if at is not None:
            if newest is not None and at < newest - MOST_LATE:
                verdict.add("backdated", position, event, f"event {event} at {position} says {at}, after {newest}")
            newest = at if newest is None else max(newest, at)
        for document in wanted.get(position, ()):
            if document["digest"] != digest:
                issued = document["issued_at"]
                verdict.add("checkpoint", position, event, f"the checkpoint of {issued} says otherwise of {position}")
        expected, earlier = position + 1, digest
        verdict.links += 1
    verdict.last, verdict.head = expected - 1, earlier
    return wrong


def _name_swaps(verdict: Verdict, wrong: list[tuple[int, int]]) -> None:
    """Tell events that were moved from those that were altered: a moved one fits at another place."""
    for position, event in wrong:
        home = None
        if len(wrong) <= MOST_FAULTS:
            home = next((p for p, other in wrong if p != position and _fits(event, p)), None)
        if home is not None:
            verdict.add("moved", position, event, f"event {event} stands at {position} and belongs at {home}")
        else:
            verdict.add("altered", position, event, f"event {event} at {position} was altered")


def _fits(event: int, position: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT l.digest = encode(sha256(convert_to(l.previous || "  # noqa: S608 - constants only
            f"{event_text('e', 'l.position')}, 'UTF8')), 'hex') "
            "FROM planner_auditlink l, planner_auditevent e WHERE l.position = %s AND e.id = %s",
            [position, event],
        )
        row = cursor.fetchone()
    return bool(row and row[0])


# --- checkpoints ---------------------------------------------------------------------------------------------
def signing_key() -> Ed25519PrivateKey:
    """The installation's key: `CACHEROUTE_AUDIT_KEY` (32 bytes, hex), else a file of the console's home.

    The file is made at the first use, for its owner only. Where the key should outlive the machine, set the variable.
    """
    given = settings.AUDIT_KEY
    if given:
        try:
            return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(given))
        except ValueError as error:
            raise Invalid("CACHEROUTE_AUDIT_KEY is not 32 bytes in hex") from error
    path = Path(settings.HOME) / "audit-key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"audit-key.{os.getpid()}")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(Ed25519PrivateKey.generate().private_bytes_raw().hex())
        try:
            os.link(fresh, path)  # never over a key that another process made meanwhile
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))


@transaction.atomic
def sign_checkpoint(*, acting_user: User) -> AuditCheckpoint:
    """Sign the head of the chain. The document is what to keep elsewhere."""
    rights.require(acting_user, rights.MANAGE)
    last = AuditLink.objects.order_by("-position").first()
    if last is None:
        raise Conflict("there is no event yet to sign")
    key = signing_key()
    document: JsonObject = {
        "format": FORMAT,
        "position": last.position,
        "digest": last.digest,
        "issued_at": timezone.now().astimezone(dt.UTC).isoformat(),
        "public_key": key.public_key().public_bytes_raw().hex(),
    }
    document["signature"] = key.sign(canonical_json(document)).hex()
    row = AuditCheckpoint.objects.create(
        position=last.position,
        digest=last.digest,
        signature=document["signature"],
        public_key=document["public_key"],
        document=document,
    )
    record_event(
        "audit.checkpointed",
        acting_user=acting_user,
        fleet=None,
        subject=row,
        after={"position": last.position},
        evidence_digest=last.digest,
    )
    return row


def check_signature(document: Any, public_key: str | None = None) -> JsonObject:
    """The document, when it is a checkpoint with a true signature, by the named key where one is named.

    Raises
    ------
    Invalid
        Saying what is wrong with it.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Invalid(f"this is no checkpoint ({FORMAT})")
    signed = {name: value for name, value in document.items() if name != "signature"}
    try:
        key, position = str(document["public_key"]), int(document["position"])
        signature = bytes.fromhex(str(document["signature"]))
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, canonical_json(signed))
    except (KeyError, ValueError, InvalidSignature) as error:
        raise Invalid("the checkpoint's signature does not hold: it was altered, or is not whole") from error
    if public_key is not None and key != public_key.strip().lower():
        raise Invalid("the checkpoint was signed with another key")
    if position < 1 or len(str(document.get("digest"))) != len(GENESIS):
        raise Invalid("the checkpoint names no place of a chain")
    return document


def read_checkpoint(path: Path, public_key: str | None = None) -> JsonObject:
    """A checkpoint from a file, its signature checked."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise Invalid(f"{path.name} cannot be read as a checkpoint: {error}") from error
    return check_signature(document, public_key)
