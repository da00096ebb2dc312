"""The inputs of a plan beside its table, checked, for explanations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.ranking import as_float, exact_sum
from planner.routing.table import RoutingTable
from planner.routing.validation import index_vector, positive, rate_vector

__all__ = ["Inputs", "checked", "cold_of", "shares"]


@dataclass(frozen=True)
class Inputs:
    """Inputs of a plan that its table does not hold; names, shapes and units as in `build_table`."""

    rates: NDArray[np.float64]
    available: NDArray[np.bool_]
    capacity: NDArray[np.float64]
    balance_target: float | None
    cold_load: NDArray[np.float64] | None
    prefix_tokens: NDArray[np.float64] | None
    slot_tokens: NDArray[np.float64] | None
    room: NDArray[np.float64] | None  # KV tokens that each destination may keep warm
    tenants: NDArray[np.int64] | None
    tenant_quota: NDArray[np.int64] | None
    tenant_floor: NDArray[np.int64] | None

    @property
    def tenants_limited(self) -> bool:
        """Whether some tenant has a quota or a floor."""
        return self.tenants is not None and (self.tenant_quota is not None or self.tenant_floor is not None)


def checked(
    table: RoutingTable,
    rates: ArrayLike,
    balance_target: float | None = None,
    cold_load: ArrayLike | None = None,
    prefix_tokens: ArrayLike | None = None,
    slot_tokens: ArrayLike | None = None,
    token_budget: ArrayLike | None = None,
    tenants: ArrayLike | None = None,
    tenant_quota: ArrayLike | None = None,
    tenant_floor: ArrayLike | None = None,
) -> Inputs:
    """Check the inputs of a plan; a table of an early version without capacities has equal and available destinations.

    Parameters
    ----------
    table : RoutingTable
        Result of `build_table` or `replan`.
    rates : float64[B]
        The rates of the plan, requests/s.
    balance_target, cold_load, prefix_tokens, slot_tokens, token_budget, tenants, tenant_quota, tenant_floor
        The arguments of the plan, as in `build_table`.

    Returns
    -------
    Inputs
        The inputs as arrays.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    vector = rate_vector("rates", rates, table.keys)
    count = table.destinations
    saved = None if prefix_tokens is None else rate_vector("prefix_tokens", prefix_tokens, table.keys)
    held = saved if slot_tokens is None else rate_vector("slot_tokens", slot_tokens, table.keys)
    room = None
    if token_budget is not None:
        if held is None:
            raise ValueError("token_budget: needs prefix_tokens or slot_tokens")
        room = rate_vector("token_budget", np.broadcast_to(np.asarray(token_budget), (count,)))
    return Inputs(
        rates=vector,
        available=table.available if len(table.available) else np.ones(count, dtype=bool),
        capacity=table.capacity if len(table.capacity) else np.ones(count),
        balance_target=None if balance_target is None else positive("balance_target", balance_target, least=1.0),
        cold_load=None if cold_load is None else rate_vector("cold_load", cold_load, count),
        prefix_tokens=saved,
        slot_tokens=held,
        room=room,
        tenants=None if tenants is None else index_vector("tenants", tenants, table.keys),
        tenant_quota=None if tenant_quota is None else index_vector("tenant_quota", tenant_quota, least=-1),
        tenant_floor=None if tenant_floor is None else index_vector("tenant_floor", tenant_floor),
    )


def shares(table: RoutingTable, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the load of each unit of ``table.members`` in requests/s."""
    return np.repeat(rates[table.admitted] / np.maximum(table.replicas, 1), table.replicas)


def cold_of(table: RoutingTable, given: Inputs) -> NDArray[np.float64]:
    """Return the cold load of each destination: as given, else as the planner spreads it, else the rest of the load."""
    if given.cold_load is not None:
        return given.cold_load
    planned = np.bincount(table.members, weights=shares(table, given.rates), minlength=table.destinations)
    speeds = np.where(given.available, given.capacity, 0.0)
    left = as_float(max(0, exact_sum(given.rates) - exact_sum(given.rates[table.admitted])))
    spread = left * (speeds / speeds.sum())
    if np.allclose(planned + spread, table.load, rtol=1e-9, atol=0.0):
        return spread
    return np.maximum(table.load - planned, 0.0)
