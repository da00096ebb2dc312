"""Why a key has its place and what a destination carries: by name, as JSON, with one sentence."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner import artifacts
from planner.errors import Conflict, Invalid
from planner.ingest.common import MAX_KEY_CHARS
from planner.models import Artifact, Plan
from planner.records import JsonObject
from planner.routing import RoutingTable
from planner.routing.explain import explain_destination, explain_key
from planner.selectors.plans import explanation_text as words
from planner.selectors.plans.suggestions import HEAD, closest

# Maximum names that are compared with an unknown name, and maximum suggestions.
COMPARED = 500
OFFERED = 5
LONGEST_NAME = MAX_KEY_CHARS
TOP_KEYS = 20
TOP_RECEIVERS = 100


@dataclass(frozen=True)
class Keys:
    """What a workload says about its keys, in key-index order; names stay in Arrow, where a search is quick."""

    names: pa.ChunkedArray
    rates: np.ndarray
    prefix_tokens: np.ndarray | None
    tenant_names: list[str]
    tenants: np.ndarray | None

    def name(self, key: int) -> str:
        """The name of a key."""
        found: str = self.names[key].as_py()
        return found

    def index(self, name: str) -> int:
        """The index of a key; -1 when no key has that name."""
        found: int = pc.index(self.names, pa.scalar(name, pa.string())).as_py()
        return found


@lru_cache(maxsize=2)
def _keys_of(digest: str) -> Keys:
    artifact = Artifact.objects.get(digest=digest)
    table = artifacts.load(artifact)
    tenant_names, tenants = artifacts.load_tenants(artifact) or ([], None)
    columns = table.column_names
    return Keys(
        names=table.column("key"),
        rates=table.column("rate").to_numpy(),
        prefix_tokens=table.column("prefix_tokens").to_numpy() if "prefix_tokens" in columns else None,
        tenant_names=tenant_names,
        tenants=tenants,
    )


def explain(plan: Plan, *, key: str | None = None, destination: str | None = None) -> JsonObject:
    """Explain one key or one destination of a built plan.

    Parameters
    ----------
    plan
        The plan.
    key, destination
        Name of a key of its workload, or of one of its destinations; exactly one of the two.

    Returns
    -------
    dict
        JSON without NaN and infinity (None in their place): ``plan``, ``kind`` ("key" or "destination"), ``name``,
        ``sentence``, and the figures of `explain_key` or `explain_destination` with names in place of indices.

    Raises
    ------
    Invalid
        Unless exactly one is named, and when nothing has that name: the message offers the closest ones.
    Conflict
        When the plan has no table.
    """
    if (key is None) == (destination is None):
        raise Invalid("give either a key or a destination, not both", field="key" if key is None else "destination")
    if plan.table is None or plan.workload is None:
        raise Conflict(f"{plan} has no table, so there is nothing to explain")
    table, _ = artifacts.load_table(plan.table)
    keys = _keys_of(plan.workload.rates.digest)
    names = destination_names(plan)
    told = _key(plan, table, keys, names, key) if key is not None else _at(plan, table, keys, names, destination or "")
    return {"plan": plan.pk, **told}


def destination_names(plan: Plan) -> list[str]:
    """Names of the plan's destinations, in the order of its table."""
    known = dict(plan.fleet.destinations.values_list("index", "name"))
    return [known.get(index, f"#{index}") for index in plan.parameters["destinations"]]


def _options(plan: Plan, keys: Keys) -> JsonObject:
    """The arguments of the build that are not stored in the table."""
    parameters = plan.parameters
    given = {
        "balance_target": parameters.get("balance_target"),
        "prefix_tokens": keys.prefix_tokens,
        "token_budget": parameters.get("tokens_per_destination"),
        "tenants": keys.tenants,
    }
    for name, missing in (("tenant_quota", -1), ("tenant_floor", 0)):
        if slots_of := parameters.get(name):
            given[name] = np.array([slots_of.get(tenant, missing) for tenant in keys.tenant_names], dtype=np.int64)
    return given


def _key(plan: Plan, table: RoutingTable, keys: Keys, names: list[str], name: str) -> JsonObject:
    index = keys.index(name) if len(name) <= LONGEST_NAME else -1
    if index < 0:
        raise Invalid(_unknown("key", name, _alike(name, keys, table)), field="key")
    before = _held_before(plan, name)
    found = explain_key(table, keys.rates, index, incumbent=before, **_options(plan, keys))
    told = asdict(found)
    all_names = dict(enumerate(names)) | _further_names(plan, before or [], len(names))
    for member in told["members"]:
        member["destination"] = names[member["destination"]]
    for field in ("next_destination", "backup"):
        told[field] = None if told[field] is None else names[told[field]]
    for field in ("was", "lost", "gained"):
        told[field] = None if told[field] is None else [all_names[at] for at in told[field]]
    told["index"] = told.pop("key")
    told["reason"] = found.reason.value
    told["tenant"] = None if keys.tenants is None else keys.tenant_names[int(keys.tenants[index])]
    if "tenant" in told["figures"]:
        told["figures"]["tenant"] = told["tenant"]
    told["incumbent"] = None if plan.incumbent is None else plan.incumbent.number
    told = {"kind": "key", "name": name, **_json(told)}
    return {**told, "sentence": words.of_key(told)}


def _held_before(plan: Plan, name: str) -> list[int] | None:
    """Return the positions, in the destinations of this plan, of the destinations that held the key in the incumbent.

    A position beyond the plan's own destinations is their number plus the fleet's index.
    """
    if plan.incumbent is None or plan.incumbent.table is None:
        return None
    table, _ = artifacts.load_table(plan.incumbent.table)
    try:
        row = _row_of(plan.incumbent.table.digest)[name]
    except KeyError:
        return []
    own = plan.parameters["destinations"]
    held = table.members[table.offsets[row] : table.offsets[row + 1]].tolist()
    indices = [plan.incumbent.parameters["destinations"][at] for at in held]
    return [own.index(i) if i in own else len(own) + i for i in indices]


@lru_cache(maxsize=2)
def _row_of(digest: str) -> dict[str, int]:
    _, admitted = artifacts.load_table(Artifact.objects.get(digest=digest))
    return {name: row for row, name in enumerate(admitted)}


def _further_names(plan: Plan, positions: list[int], own: int) -> dict[int, str]:
    beyond = [at for at in positions if at >= own]
    if not beyond:
        return {}
    known = dict(plan.fleet.destinations.values_list("index", "name"))
    return {at: known.get(at - own, f"#{at - own}") for at in beyond}


def _at(plan: Plan, table: RoutingTable, keys: Keys, names: list[str], name: str) -> JsonObject:
    if name not in names:
        alike = closest(name, names, OFFERED) or names[:OFFERED]
        raise Invalid(_unknown("destination", name, alike), field="destination")
    r = names.index(name)
    told = asdict(explain_destination(table, keys.rates, r, top=TOP_KEYS, slot_tokens=keys.prefix_tokens))
    told["index"] = plan.parameters["destinations"][told.pop("destination")]
    for row in told["busiest"]:
        row["key"] = keys.name(row["key"])
    for row in told["receivers"]:
        row["destination"] = names[row["destination"]]
    told = {"kind": "destination", "name": name, **_json(told)}
    count = len(told["receivers"])
    shown = {"receivers": told["receivers"][:TOP_RECEIVERS], "receiver_count": count}
    return {**told, **shown, "sentence": words.of_destination(told)}  # The sentence counts all of them.


def _unknown(what: str, name: str, alike: list[str]) -> str:
    shown = name if len(name) <= 80 else name[:77] + "..."
    hint = f"; the closest: {', '.join(alike)}" if alike else ""
    return f"this plan has no {what} named {shown!r}{hint}"


def _alike(name: str, keys: Keys, table: RoutingTable) -> list[str]:
    """Names most similar to `name`, among keys with the longest common prefix and admitted keys of high rate."""
    name = name[:HEAD]
    low, high = 0, len(name)  # Some key begins with name[:low]; none with name[: high + 1].
    while low < high:
        middle = (low + high + 1) // 2
        if pc.any(pc.starts_with(keys.names, name[:middle])).as_py():
            low = middle
        else:
            high = middle - 1
    found = [keys.name(key) for key in table.admitted[:COMPARED].tolist()]
    if low:
        found += keys.names.filter(pc.starts_with(keys.names, name[:low])).slice(0, COMPARED).to_pylist()
    return closest(name, found, OFFERED)


def _json(value: Any) -> Any:
    """The same with None for numbers that are not finite, and lists for tuples."""
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
