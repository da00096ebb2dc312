"""Verification of the audit trail: reading the whole chain, and checkpoints signed with Ed25519.

The chain shows every change, gap and reordering within the stored events. The owner of the database could remove the
newest events or write a whole new chain; checkpoints, which are kept elsewhere and record the head of the chain at
their time, detect that.
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
MAX_FAULTS = 100  # Faults that are listed; all are counted.
# An event gets its time when it is written and its position when its transaction commits, at most minutes later.
MAX_LATE = dt.timedelta(hours=1)
FETCHED = 5_000  # Rows per fetch.


@dataclass(frozen=True)
class Fault:
    """One event or link that is not as it was written."""

    kind: str
    position: int | None
    event: int | None
    message: str


@dataclass
class Verdict:
    """The result of reading the whole chain."""

    links: int = 0
    last: int = 0  # Position of the last link; equal to the number of links when none is missing.
    head: str = GENESIS
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)
    checkpoints: int = 0

    @property
    def intact(self) -> bool:
        """Whether no event was altered, removed or moved."""
        return not self.fault_count

    def add(self, kind: str, position: int | None, event: int | None, message: str) -> None:
        """Count a fault, and list it while fewer than `MAX_FAULTS` are listed.

        Parameters
        ----------
        kind
            Name of the kind of fault, such as ``missing-link``.
        position, event
            Position in the chain and id of the audit event; None where there is none.
        message
            One sentence for people.
        """
        self.fault_count += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(Fault(kind, position, event, message))


def verify(checkpoints: list[JsonObject] | None = None) -> Verdict:
    """Read the chain and compare it with the stored checkpoints and those given (documents with their signature).

    Lists every event that was altered, is missing or has another position, links that are missing, and events without
    a link. Events added meanwhile are not read: checkpoints are read before the chain, and the chain by one query.
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
    with transaction.atomic():  # A server-side cursor needs a transaction.
        wrong = _read_chain(verdict, wanted)
        _name_swaps(verdict, wrong)
        for position, documents in wanted.items():
            if position > verdict.last:
                for document in documents:
                    covered = f"the checkpoint of {document['issued_at']} covers {position} links"
                    verdict.add("cut-off", position, None, f"{covered}, the chain ends at {verdict.last}: cut off")
        verdict.checkpoints = sum(len(found) for found in wanted.values())
        for event in AuditEvent.objects.filter(link=None).order_by("id").values_list("id", flat=True)[:MAX_FAULTS]:
            verdict.add("unchained", None, event, f"event {event} has no position in the chain")
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
    """Read the links; return (position, event) of those whose digest is not that of the event at their position."""
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
            verdict.add("missing-event", position, event, f"event {event} is missing; its position was {position}")
        elif hashlib.sha256((previous + text).encode()).hexdigest() != digest:
            wrong.append((position, event))
        if at is not None:
            if newest is not None and at < newest - MAX_LATE:
                verdict.add("backdated", position, event, f"event {event} at {position} is dated {at}, after {newest}")
            newest = at if newest is None else max(newest, at)
        for document in wanted.get(position, ()):
            if document["digest"] != digest:
                issued = document["issued_at"]
                verdict.add(
                    "checkpoint", position, event, f"the checkpoint of {issued} has another digest for {position}"
                )
        expected, earlier = position + 1, digest
        verdict.links += 1
    verdict.last, verdict.head = expected - 1, earlier
    return wrong


def _name_swaps(verdict: Verdict, wrong: list[tuple[int, int]]) -> None:
    """Distinguish moved events from altered events: a moved event fits at another position."""
    for position, event in wrong:
        home = None
        if len(wrong) <= MAX_FAULTS:
            home = next((p for p, other in wrong if p != position and _fits(event, p)), None)
        if home is not None:
            verdict.add("moved", position, event, f"event {event} is at {position} and belongs at {home}")
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
    """The key of the installation: `CACHEROUTE_AUDIT_KEY` (32 bytes, hex), else a file in the home of the console.

    The file is created at the first use, readable by its owner only. To keep the key when the machine is replaced, set
    the variable.
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
            os.link(fresh, path)  # Never overwrite a key that another process created meanwhile.
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))


@transaction.atomic
def sign_checkpoint(*, acting_user: User) -> AuditCheckpoint:
    """Sign the head of the chain. Keep the document elsewhere."""
    rights.require(acting_user, rights.MANAGE)
    last = AuditLink.objects.order_by("-position").first()
    if last is None:
        raise Conflict("the audit trail has no event to sign yet")
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
    """Return the document, when it is a checkpoint with a valid signature, by the named key where one is named.

    Raises
    ------
    Invalid
        If the document is not a checkpoint, was altered, or was signed with another key.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Invalid(f"this is not a checkpoint ({FORMAT})")
    signed = {name: value for name, value in document.items() if name != "signature"}
    try:
        key, position = str(document["public_key"]), int(document["position"])
        signature = bytes.fromhex(str(document["signature"]))
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, canonical_json(signed))
    except (KeyError, ValueError, InvalidSignature) as error:
        raise Invalid("the checkpoint's signature is not valid: it was altered, or is incomplete") from error
    if public_key is not None and key != public_key.strip().lower():
        raise Invalid("the checkpoint was signed with another key")
    if position < 1 or len(str(document.get("digest"))) != len(GENESIS):
        raise Invalid("the checkpoint has no position in a chain")
    return document


def read_checkpoint(path: Path, public_key: str | None = None) -> JsonObject:
    """Read a checkpoint from a file and verify its signature."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise Invalid(f"{path.name} cannot be read as a checkpoint: {error}") from error
    return check_signature(document, public_key)
