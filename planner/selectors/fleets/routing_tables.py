"""The routing table that routers poll: arms, destinations, version, digest."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import json
import threading
from dataclasses import dataclass
from functools import lru_cache

from planner.artifacts import load_table
from planner.digests import canonical_json
from planner.models import Artifact, Fleet, Plan, Rollout
from planner.records import JsonObject

FORMAT = "cacheroute.table/1"


@dataclass(frozen=True)
class Published:
    """The bytes that routers receive: one content for each version."""

    version: int
    issued_at: dt.datetime
    plain: bytes
    packed: bytes  # gzip


# The newest version of each fleet: rendering a million keys takes seconds, and all routers request the same version.
_newest: dict[int, Published] = {}
_rendering = (
    threading.Lock()
)  # After a publish all routers request the table at once: one request renders it, the others wait.


def published(fleet_id: int) -> Published:
    """The published table as bytes, rendered once per version in this process."""
    known = _known(fleet_id)
    if known is not None:
        return known
    with _rendering:
        known = _known(fleet_id)
        if known is not None:
            return known
        body = routing_table(Fleet.objects.get(pk=fleet_id))
        plain = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        issued_at = dt.datetime.fromisoformat(body["issued_at"])
        known = Published(body["version"], issued_at, plain, gzip.compress(plain, compresslevel=3, mtime=0))
        _newest[fleet_id] = known
        return known


def _known(fleet_id: int) -> Published | None:
    known = _newest.get(fleet_id)
    newest = Fleet.objects.values_list("table_version", "table_issued_at").get(pk=fleet_id)
    return known if known is not None and (known.version, known.issued_at) == newest else None


def routing_table(fleet: Fleet) -> JsonObject:
    """The published document of a fleet (`cacheroute.table/1`, docs/api.md).

    Members and backups are indices into ``destinations``. A change published between the fleet's row and its arms
    is waited for, so that a version names one content.
    """
    while True:
        body = _document(fleet)
        fleet = Fleet.objects.get(pk=fleet.pk)
        if fleet.table_version == body["version"]:
            return body


def _document(fleet: Fleet) -> JsonObject:
    destinations = [
        {"index": d.index, "name": d.name, "url": d.url, "state": d.state} for d in fleet.destinations.order_by("index")
    ]
    live = {r.state: r for r in fleet.rollouts.filter(state__in=["active", "canary"]).select_related("plan__table")}
    canary = live.get(Rollout.State.CANARY)
    share = canary.weight if canary else 0.0
    arms = [_arm("incumbent", live[Rollout.State.ACTIVE].plan, round(1.0 - share, 9))]
    if canary:
        arms.append(_arm("canary", canary.plan, share))
    body: JsonObject = {
        "format": FORMAT,
        "fleet": fleet.slug,
        "version": fleet.table_version,
        "issued_at": fleet.table_issued_at.isoformat(),
        "salt": fleet.salt,
        "destinations": destinations,
        "arms": arms,
        "fallback": "power-of-two",
    }
    body["digest"] = "sha256:" + hashlib.sha256(canonical_json(body)).hexdigest()
    return body


def _arm(name: str, plan: Plan, weight: float) -> JsonObject:
    keys: dict[str, list[int]] = {}
    backup: dict[str, int] = {}
    if plan.table is not None:
        keys, backup = _members(plan.table.digest, tuple(plan.parameters["destinations"]))
    return {"name": name, "plan": plan.number, "kind": plan.kind, "weight": weight, "keys": keys, "backup": backup}


@lru_cache(maxsize=8)
def _members(digest: str, index_of: tuple[int, ...]) -> tuple[dict[str, list[int]], dict[str, int]]:
    table, names = load_table(Artifact.objects.get(digest=digest))
    members, offsets = table.members.tolist(), table.offsets.tolist()
    keys = {name: [index_of[m] for m in members[offsets[i] : offsets[i + 1]]] for i, name in enumerate(names)}
    backup = {name: index_of[b] for name, b in zip(names, table.backup.tolist(), strict=True) if b >= 0}
    return keys, backup
