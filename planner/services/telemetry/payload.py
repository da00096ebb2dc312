"""The report of a window, validated: impossible figures are refused with a pointer to them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.analysis.latency import LatencySketch, merge
from planner.errors import Invalid
from planner.models import Fleet, Publication
from planner.records import JsonObject

SHORTEST_S, LONGEST_S = 1.0, 3_600.0
# How far ahead of the console's clock a window may end, and how old it may be.
SKEW_S = 60.0
KEPT_DAYS = 30
MAX_SOURCE_CHARS = 120
MAX_KEY_CHARS = 500
# Keys that are stored by name, the busiest; number and requests are stored of all keys.
KEPT_KEYS = 2_000
COUNTED = ("requests", "prompt_tokens", "cached_tokens", "errors")
MOST = 10**12  # highest value of a count


@dataclass(frozen=True)
class DestinationFigures:
    """Figures of one destination in an arm."""

    index: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    errors: int
    latency: LatencySketch

    def as_dict(self) -> JsonObject:
        """Return the stored form: the latency as two percentiles, since the sketch of the arm is stored whole."""
        quantiles = {f"p{q}_s": self.latency.quantile(q / 100) if self.latency.n else None for q in (50, 99)}
        return {"index": self.index, **{name: getattr(self, name) for name in COUNTED}, **quantiles}


@dataclass(frozen=True)
class ArmFigures:
    """Figures of one arm of a published table."""

    name: str
    plan: int
    destinations: tuple[DestinationFigures, ...]

    def total(self, name: str) -> int:
        """Return a count over all destinations."""
        return sum(getattr(d, name) for d in self.destinations)

    @property
    def latency(self) -> LatencySketch:
        """Return the latency sketch over all destinations."""
        return merge(d.latency for d in self.destinations)

    def as_dict(self) -> JsonObject:
        """Return the stored figures of the arm."""
        return {
            "prompt_tokens": self.total("prompt_tokens"),
            "cached_tokens": self.total("cached_tokens"),
            "latency": self.latency.as_payload(),
            "destinations": [d.as_dict() for d in self.destinations],
        }


@dataclass(frozen=True)
class Window:
    """A reported window, resolved to plans and destinations."""

    source: str
    table_version: int
    started_at: dt.datetime
    ended_at: dt.datetime
    simulated: bool
    arms: tuple[ArmFigures, ...]
    keys: Mapping[str, int] | None

    def canonical(self) -> JsonObject:
        """Return the canonical form: equal for equal reports in any order. Its digest detects repeats."""
        return {
            "source": self.source,
            "table_version": self.table_version,
            "started_at": self.started_at.astimezone(dt.UTC).isoformat(),
            "ended_at": self.ended_at.astimezone(dt.UTC).isoformat(),
            "simulated": self.simulated,
            "arms": {
                arm.name: [
                    [d.index, d.requests, d.prompt_tokens, d.cached_tokens, d.errors, d.latency.as_payload()]
                    for d in arm.destinations
                ]
                for arm in self.arms
            },
            "keys": None if self.keys is None else dict(self.keys),
        }

    def key_figures(self) -> JsonObject:
        """Return the stored keys, and the counts of all keys."""
        if self.keys is None:
            return {}
        seen = {name: count for name, count in self.keys.items() if count}
        busiest = sorted(seen, key=lambda name: (-seen[name], name))[:KEPT_KEYS]
        kept = {name: seen[name] for name in busiest}
        total = sum(seen.values())
        return {
            "active_keys": len(seen),
            "key_requests": total,
            "keys": kept,
            "dropped_keys": len(seen) - len(kept),
            "dropped_requests": total - sum(kept.values()),
        }


def read(fleet: Fleet, payload: Mapping[str, Any], *, now: dt.datetime) -> Window:
    """Return the window of a payload.

    Parameters
    ----------
    fleet
        The fleet of the router.
    payload
        The report, with the types of its fields checked. A window lasts 1 to 3,600 s.
    now
        Time of receipt. A window ends at most 60 s later and begins less than 30 days before.

    Returns
    -------
    Window
        The window, resolved to plans and destinations.

    Raises
    ------
    Invalid
        For the first impossible figure; `field` is its path, such as ``arms/0/destinations/3/errors``.
    """
    source = payload["source"]
    if not (0 < len(source) <= MAX_SOURCE_CHARS and source.isprintable() and source.strip() == source):
        raise Invalid(f"give the router a name of 1 to {MAX_SOURCE_CHARS} visible characters", field="source")
    started_at, ended_at = _times(payload, now)
    version = payload["table_version"]
    publication = Publication.objects.filter(fleet=fleet, version=version).first()
    if publication is None:
        raise Invalid(f"the fleet never published a table of version {version}", field="table_version")
    arms = _arms(fleet, publication, payload["arms"])
    keys = payload.get("keys")
    if keys is not None:
        _check_keys(keys, sum(arm.total("requests") for arm in arms))
    return Window(source, version, started_at, ended_at, bool(payload.get("simulated", False)), arms, keys)


def _times(payload: Mapping[str, Any], now: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    started_at, ended_at = payload["started_at"], payload["ended_at"]
    length_s = (ended_at - started_at).total_seconds()
    if not SHORTEST_S <= length_s <= LONGEST_S:
        raise Invalid(
            f"a window lasts {SHORTEST_S:g} s to {LONGEST_S:g} s; this one lasts {length_s:g} s", field="ended_at"
        )
    if (ahead_s := (ended_at - now).total_seconds()) > SKEW_S:
        raise Invalid(f"the window ends {ahead_s:.0f} s ahead of the console's clock", field="ended_at")
    if (now - started_at).days >= KEPT_DAYS:
        raise Invalid(f"telemetry is kept for {KEPT_DAYS} days; this window is older", field="started_at")
    return started_at, ended_at


def _arms(fleet: Fleet, publication: Publication, sent: list[Mapping[str, Any]]) -> tuple[ArmFigures, ...]:
    published = {arm["name"]: arm["plan"] for arm in publication.arms}
    place = {name: index for index, name in fleet.destinations.values_list("index", "name")}
    indices = set(place.values())
    arms: dict[str, ArmFigures] = {}
    if not sent:
        raise Invalid("report at least one arm", field="arms")
    for at, arm in enumerate(sent):
        name = arm["name"]
        if name not in published:
            there = ", ".join(published)
            raise Invalid(f"table {publication.version} has no arm {name!r}; it has {there}", field=f"arms/{at}/name")
        if name in arms:
            raise Invalid(f"the arm {name!r} occurs twice", field=f"arms/{at}/name")
        found: dict[int, DestinationFigures] = {}
        for nth, row in enumerate(arm["destinations"]):
            path = f"arms/{at}/destinations/{nth}"
            index = _index(row, place, indices, path)
            if index in found:
                raise Invalid("this destination occurs twice in the arm", field=path)
            found[index] = _destination(row, index, path)
        arms[name] = ArmFigures(name, published[name], tuple(found[index] for index in sorted(found)))
    return tuple(arms[name] for name in published if name in arms)


def _index(row: Mapping[str, Any], place: dict[str, int], indices: set[int], path: str) -> int:
    name, index = row.get("name"), row.get("index")
    if (name is None) == (index is None):
        raise Invalid("name the destination either by its name or by its index", field=path)
    if name is not None:
        if name not in place:
            raise Invalid(f"the fleet has no destination {name!r}", field=f"{path}/name")
        return place[name]
    assert index is not None  # one of both is given
    if index not in indices:
        raise Invalid(f"the fleet has no destination of index {index}", field=f"{path}/index")
    return int(index)


def _destination(row: Mapping[str, Any], index: int, path: str) -> DestinationFigures:
    counts = {name: row.get(name, 0) for name in COUNTED}
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
            raise Invalid(f"expected a whole number from 0 to {MOST:,}", field=f"{path}/{name}")
    if counts["errors"] > counts["requests"]:
        raise Invalid(f"more failed than were sent ({counts['requests']:,})", field=f"{path}/errors")
    if counts["cached_tokens"] > counts["prompt_tokens"]:
        raise Invalid(
            f"more tokens were cached than prompted ({counts['prompt_tokens']:,})", field=f"{path}/cached_tokens"
        )
    latency = _latency(row, path)
    if latency.n > counts["requests"]:
        raise Invalid(
            f"{latency.n:,} latencies of {counts['requests']:,} requests",
            field=f"{path}/{'sample_s' if row.get('latency') is None else 'latency'}",
        )
    return DestinationFigures(index=index, latency=latency, **counts)


def _latency(row: Mapping[str, Any], path: str) -> LatencySketch:
    sketch, sample = row.get("latency"), row.get("sample_s")
    if sketch is not None and sample is not None:
        raise Invalid("report latencies as a sketch or as a sample, not both", field=f"{path}/sample_s")
    try:
        if sketch is not None:
            return LatencySketch.from_payload(sketch)
        return LatencySketch.from_samples(sample or [])
    except ValueError as fault:
        raise Invalid(str(fault), field=f"{path}/{'sample_s' if sketch is None else 'latency'}") from fault


def _check_keys(keys: Mapping[str, Any], requests: int) -> None:
    total = 0
    for name, count in keys.items():
        if not 0 < len(name) <= MAX_KEY_CHARS:
            raise Invalid(f"key names have 1 to {MAX_KEY_CHARS} characters: {name[:40]!r}", field="keys")
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST:
            raise Invalid(f"key {name[:80]!r}: expected a whole number from 0 to {MOST:,}", field="keys")
        total += count
    if total > requests:
        raise Invalid(f"the keys have {total:,} requests, and the arms {requests:,}", field="keys")
