"""The input of one plan: the arguments of `build_table`, checked once and named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.ranking import as_float, exact_sum
from planner.routing.validation import flags, index_vector, positive, rate_vector, summed, whole, within

__all__ = ["CAPACITY_RANGE", "MAX_SLOTS", "KeyInputs", "PlanOptions", "Problem"]

CAPACITY_RANGE = (1e-6, 1e6)
MAX_KEYS = 2**31 - 1  # the sort keeps positions as int32
MAX_DESTINATIONS = 2**14  # memory and time of the N-1 table grow with the square
MAX_SLOTS = 2**62
MAX_TENANTS = 2**24


class KeyInputs(TypedDict, total=False):
    """Optional inputs about keys, load and tenants; `build_table` states their meaning, shapes and units."""

    balance_target: float | None
    cold_load: ArrayLike | None
    prefix_tokens: ArrayLike | None
    slot_tokens: ArrayLike | None
    token_budget: ArrayLike | None
    tenants: ArrayLike | None
    tenant_quota: ArrayLike | None
    tenant_floor: ArrayLike | None


class PlanOptions(KeyInputs, total=False):
    """Optional arguments of `build_table` and `replan`; `build_table` states their meaning, shapes and units."""

    admission: str
    capacity: ArrayLike | None
    available: ArrayLike | None


@dataclass(frozen=True)
class Problem:
    """Checked input of one plan.

    Attributes
    ----------
    rates : float64[B]
        Requests/s of each key.
    exact_total : int
        Sum of ``rates`` as `exact_sum` counts it.
    values : float64[B]
        Value of each key, see `RoutingTable.admitted_value`.
    room : float64[R] or None
        KV tokens that each destination may keep warm; None without ``token_budget``.
    **others
        As in `build_table`, as arrays.
    """

    rates: NDArray[np.float64]
    exact_total: int
    values: NDArray[np.float64]
    destinations: int
    q_cap: float
    slots: int
    cold_load: NDArray[np.float64] | None
    prefix_tokens: NDArray[np.float64] | None
    slot_tokens: NDArray[np.float64] | None
    room: NDArray[np.float64] | None
    admission: str
    balance_target: float | None
    capacity: NDArray[np.float64]
    available: NDArray[np.bool_]
    tenants: NDArray[np.int64] | None
    tenant_quota: NDArray[np.int64] | None
    tenant_floor: NDArray[np.int64] | None

    @classmethod
    def checked(
        cls,
        rates: ArrayLike,
        *,
        destinations: int,
        q_cap: float,
        slots: int,
        cold_load: ArrayLike | None = None,
        prefix_tokens: ArrayLike | None = None,
        admission: str = "top_rate",
        balance_target: float | None = None,
        capacity: ArrayLike | None = None,
        available: ArrayLike | None = None,
        slot_tokens: ArrayLike | None = None,
        token_budget: ArrayLike | None = None,
        tenants: ArrayLike | None = None,
        tenant_quota: ArrayLike | None = None,
        tenant_floor: ArrayLike | None = None,
    ) -> Problem:
        """Check every argument and convert it to the type that the planner works on.

        Parameters
        ----------
        rates : float64[B]
            Requests/s of each key.
        destinations, q_cap, slots
            R, requests/s, and slots of the fleet, as in `build_table`.
        cold_load, prefix_tokens, admission, balance_target, capacity, available, slot_tokens, token_budget
            As in `build_table`.
        tenants, tenant_quota, tenant_floor
            As in `build_table`.

        Returns
        -------
        Problem
            Input of `planner.routing.build.plan_table`.

        Raises
        ------
        ValueError
            Naming the argument, the index and the value.
        """
        vector, total = summed("rates", rates)
        if len(vector) > MAX_KEYS:
            raise ValueError(f"rates: {len(vector)} keys; at most {MAX_KEYS} can be planned")
        fleet = whole("destinations", destinations, 1)
        if fleet > MAX_DESTINATIONS:
            raise ValueError(f"destinations = {fleet}: at most {MAX_DESTINATIONS} can be planned")
        speeds = np.ones(fleet) if capacity is None else within("capacity", capacity, fleet, CAPACITY_RANGE)
        takes = np.ones(fleet, dtype=bool) if available is None else flags("available", available, fleet)
        if not takes.any():
            raise ValueError(f"available: none of {fleet} destinations is available")
        cold = None if cold_load is None else rate_vector("cold_load", cold_load, fleet)
        if cold is not None and not takes[cold > 0].all():
            at = int(np.argmax((cold > 0) & ~takes))
            raise ValueError(f"cold_load[{at}] = {cold[at]}: this destination is not available")
        _check_load(total + (0 if cold is None else exact_sum(cold)), speeds, takes)
        saved = None if prefix_tokens is None else rate_vector("prefix_tokens", prefix_tokens, len(vector))
        held = saved if slot_tokens is None else rate_vector("slot_tokens", slot_tokens, len(vector))
        room = None
        if token_budget is not None:
            if held is None:
                raise ValueError("token_budget: needs prefix_tokens or slot_tokens")
            given = np.asarray(token_budget)
            room = rate_vector("token_budget", np.full(fleet, given) if given.ndim == 0 else given, fleet).copy()
        owner = None if tenants is None else index_vector("tenants", tenants, len(vector), most=MAX_TENANTS - 1)
        if owner is None and (tenant_quota is not None or tenant_floor is not None):
            raise ValueError("tenant_quota and tenant_floor: require tenants")
        return cls(
            rates=vector,
            exact_total=total,
            values=vector if saved is None else _values(vector, saved),
            destinations=fleet,
            q_cap=positive("q_cap", q_cap),
            slots=whole("slots", slots, 0),
            cold_load=cold,
            prefix_tokens=saved,
            slot_tokens=held,
            room=room,
            admission=admission,
            balance_target=None if balance_target is None else positive("balance_target", balance_target, least=1.0),
            capacity=speeds,
            available=takes,
            tenants=owner,
            tenant_quota=None if tenant_quota is None else index_vector("tenant_quota", tenant_quota, least=-1),
            tenant_floor=None if tenant_floor is None else index_vector("tenant_floor", tenant_floor),
        )

    @property
    def total_rate(self) -> float:
        """Requests/s of all keys."""
        return as_float(self.exact_total)

    @property
    def token_budget(self) -> float | None:
        """Sum of ``room`` over the available destinations, in KV tokens."""
        return None if self.room is None else as_float(exact_sum(self.room[self.available]))

    @property
    def tenant_count(self) -> int:
        """T: the length of the quotas or floors, else the highest tenant index + 1."""
        for limits in (self.tenant_quota, self.tenant_floor):
            if limits is not None:
                return len(limits)
        return 0 if self.tenants is None else int(self.tenants.max(initial=-1)) + 1

    @property
    def budget(self) -> int:
        """The slots, clipped to an int64; a higher budget limits nothing."""
        return min(self.slots, MAX_SLOTS)

    @property
    def is_uniform(self) -> bool:
        """Whether all available destinations have the same speed."""
        speeds = self.capacity[self.available]
        return bool(speeds.min() == speeds.max())


def _check_load(total: int, capacity: NDArray[np.float64], available: NDArray[np.bool_]) -> None:
    """Refuse a load whose sum, or whose quotient by a capacity, overflows."""
    try:
        load = as_float(total)
    except OverflowError:
        raise ValueError("rates and cold_load: their sum overflows") from None
    slowest = int(np.argmin(np.where(available, capacity, np.inf)))
    with np.errstate(over="ignore"):
        if not np.isfinite(load / capacity[slowest]):
            raise ValueError(f"capacity[{slowest}] = {capacity[slowest]}: a load of {load} over it overflows")


def _values(rates: NDArray[np.float64], prefix_tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        values = rates * prefix_tokens
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"prefix_tokens[{at}] = {prefix_tokens[at]}: the product with its rate overflows")
    return rate_vector("rates * prefix_tokens", values)
