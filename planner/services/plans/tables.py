"""Compute a plan's table from its inputs: Algorithm 1 from scratch, or a replan of another plan's table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner import artifacts
from planner.models import Plan
from planner.records import JsonObject
from planner.routing import RoutingTable, build_table, replan
from planner.routing.parameters import PlanParameters
from planner.routing.renumber import with_destinations, with_keys

# Maximum tenants in a summary; the table has all of them.
LISTED_TENANTS = 100


@dataclass(frozen=True)
class Inputs:
    """What a workload says about its keys, in key-index order."""

    key_names: list[str]
    rates: np.ndarray
    prefix_tokens: np.ndarray | None
    tenant_names: list[str]
    tenants: np.ndarray | None


@dataclass(frozen=True)
class Built:
    """A table over the destinations of the plan; for a replan also how many keys of the incumbent are gone."""

    table: RoutingTable
    inputs: Inputs
    gone_keys: int | None = None


def load_inputs(plan: Plan) -> Inputs:
    """The rates of the workload of the plan, with prefix lengths and tenants where they are known."""
    workload = plan.workload
    assert workload is not None  # A database constraint of this kind of plan.
    table = artifacts.load(workload.rates)
    names, tenants = artifacts.tenants_of(table) or ([], None)
    key_names, rates = table.column("key").to_pylist(), table.column("rate").to_numpy()
    return Inputs(key_names, rates, artifacts.prefix_tokens_of(table), names, tenants)


def build(plan: Plan, inputs: Inputs) -> Built:
    """The table of a plan: the same inputs always give the same table.

    Raises
    ------
    ValueError
        As `build_table` and `replan` do; also when the parameters of the plan name another incumbent than its row.
    """
    row, ordered = plan.incumbent and plan.incumbent.number, plan.parameters.get("incumbent")
    if row != ordered:
        raise ValueError(f"incumbent: the plan was ordered with {ordered} and its row has {row}")
    if plan.incumbent is not None:
        return _replanned(plan, plan.incumbent, inputs)
    options = build_options(plan, inputs)
    return Built(build_table(inputs.rates, destinations=len(plan.parameters["destinations"]), **options), inputs)


def _replanned(plan: Plan, incumbent: Plan, inputs: Inputs) -> Built:
    """Replan over the destinations of both plans, then keep the destinations of the new plan.

    1. The keys of the incumbent are found by name in the new workload; keys that are gone leave its table.
    2. Its destinations come first, in its order, and new ones after them; destinations that are not up now are not
       available.
    3. The new table is renumbered to the destinations of the plan; unavailable destinations hold no keys.
    """
    assert incumbent.table is not None  # Checked when the plan was ordered, and a table is never removed.
    parameters = PlanParameters.from_json(plan.parameters)
    before, old_names = artifacts.load_table(incumbent.table)
    place = {name: at for at, name in enumerate(inputs.key_names)}
    new_index = np.full(before.keys, -1, dtype=np.int64)
    new_index[before.admitted] = [place.get(name, -1) for name in old_names]
    known = with_keys(before, new_index, len(inputs.key_names))

    weight = dict(zip(parameters.destinations, plan.capacity, strict=True))
    # Insertion order: the incumbent's first. Positions are looked up, because a fleet may have thousands.
    union = list(dict.fromkeys([*incumbent.parameters["destinations"], *parameters.destinations]))
    position = {index: at for at, index in enumerate(union)}
    available = np.array([index in weight for index in union])
    options = _options(parameters, inputs, [weight.get(index, 1.0) for index in union])
    options["max_imbalance_factor"] = parameters.max_imbalance_factor
    if parameters.max_moved_share is not None:
        options["max_moved_share"] = parameters.max_moved_share
    table = replan(known, inputs.rates, destinations=len(union), available=available, **options)
    table = with_destinations(table, [position[index] for index in parameters.destinations])
    return Built(table, inputs, gone_keys=len(before.admitted) - len(known.admitted))


def build_options(plan: Plan, inputs: Inputs) -> JsonObject:
    """The arguments of `build_table`, besides rates and destinations, to build this plan from scratch."""
    return _options(PlanParameters.from_json(plan.parameters), inputs, plan.capacity)


def _options(parameters: PlanParameters, inputs: Inputs, capacity: list[float]) -> JsonObject:
    """Return the keyword arguments that `build_table` and `replan` share."""
    given = {
        "capacity": np.array(capacity) if any(speed != 1.0 for speed in capacity) else None,
        "balance_target": parameters.balance_target,
        "prefix_tokens": inputs.prefix_tokens,
        "token_budget": parameters.tokens_per_destination,
        "tenants": inputs.tenants,
        "tenant_quota": _by_index(parameters.tenant_quota, inputs.tenant_names, missing=-1),
        "tenant_floor": _by_index(parameters.tenant_floor, inputs.tenant_names, missing=0),
    }
    return {
        "q_cap": parameters.q_cap,
        "slots": parameters.slots,
        "admission": parameters.admission,
        **{name: value for name, value in given.items() if value is not None},
    }


def _by_index(slots_of: dict[str, int] | None, names: list[str], *, missing: int) -> np.ndarray | None:
    """int64[T] in the order of `names`; None when no tenant has a value."""
    return np.array([slots_of.get(name, missing) for name in names], dtype=np.int64) if slots_of else None


def summary_of(plan: Plan, built: Built) -> JsonObject:
    """The values of a table that pages and searches need, as JSON; a figure that is not finite is None."""
    table, inputs = built.table, built.inputs
    total = float(inputs.rates.sum())
    losses = [_finite(x) for x in table.after_loss.tolist()]
    worst = _finite(table.worst_loss)
    return {
        "keys": table.keys,
        "admitted": len(table.admitted),
        "admitted_rate": float(table.admitted_rate),
        "admitted_share": float(table.admitted_rate) / total if total else 0.0,
        "replicated": int(np.count_nonzero(table.replicas > 1)),
        "cannot_fit": len(table.cannot_fit),
        "slots_used": int(table.slots_used),
        "imbalance": float(table.imbalance),
        "load": [float(f"{x:.9g}") for x in table.load.tolist()],
        # Most keys on one destination, and the highest load as a share of what q_cap lets it serve.
        "most_held": int(np.bincount(table.members, minlength=1).max()),
        "peak_use": _finite(float((table.load / (table.q_cap * table.capacity)).max())),
        "top_keys": [
            {
                "key": inputs.key_names[i],
                "rate": float(inputs.rates[i]),
                "members": table.members_of(i).tolist(),
            }
            for i in table.admitted[:20].tolist()
        ],
        "admission": table.admission,
        "admitted_value": float(table.admitted_value),
        "value_bound": _finite(table.value_bound),
        "value_gap": _finite(table.value_gap),
        "value_unit": "requests/s" if inputs.prefix_tokens is None else "tokens/s",
        "warm_tokens": table.warm_tokens,
        "after_loss": losses,
        "worst_loss": worst,
        # Index in the fleet of the destination whose loss is the worst.
        "worst_loss_destination": None if worst is None else plan.parameters["destinations"][losses.index(worst)],
        "tenants": _tenants(built)[:LISTED_TENANTS],
        "tenant_count": len(inputs.tenant_names),
        **_moves(plan, built),
    }


def _tenants(built: Built) -> list[JsonObject]:
    """Return the admitted keys by tenant, the largest share first: shares of used slots and of the admitted rate.

    ``warm_share`` is the share of the tenant's requests that go to its admitted keys.
    """
    table, inputs = built.table, built.inputs
    if inputs.tenants is None:
        return []
    demand = np.bincount(inputs.tenants, weights=inputs.rates, minlength=len(inputs.tenant_names)).tolist()
    slots, rates = table.tenant_slots.tolist(), table.tenant_rate.tolist()
    rows = [
        {
            "tenant": name,
            "slots": taken,
            "share_of_slots": taken / table.slots_used if table.slots_used else 0.0,
            "rate": rate,
            "share_of_rate": rate / table.admitted_rate if table.admitted_rate else 0.0,
            "warm_share": rate / own if own else 0.0,
        }
        for name, taken, rate, own in zip(inputs.tenant_names, slots, rates, demand, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row["slots"], row["tenant"]))


def _moves(plan: Plan, built: Built) -> JsonObject:
    """What changes from the incumbent, as shares of the admitted rate; None throughout for a plan from scratch."""
    if plan.incumbent is None:
        names = (
            "incumbent", "moved_keys", "moved_rate", "moved_share", "rewarm_tokens", "gone_keys", "cooled_keys",
            "cooled_rate", "cooled_share", "target_imbalance",
        )  # fmt: skip
        return dict.fromkeys(names)
    table = built.table
    return {
        "incumbent": plan.incumbent.number,
        "moved_keys": int(table.moved),
        "moved_rate": float(table.moved_rate),
        "moved_share": float(table.moved_rate / table.admitted_rate) if table.admitted_rate else 0.0,
        "rewarm_tokens": table.rewarm_tokens,
        "gone_keys": built.gone_keys,
        "cooled_keys": int(table.cooled),
        "cooled_rate": float(table.cooled_rate),
        "cooled_share": float(table.cooled_rate / table.total_rate) if table.total_rate else 0.0,
        "target_imbalance": _finite(table.target_imbalance or np.nan),
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
