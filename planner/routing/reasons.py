"""The reason why a key is not kept warm, as far as the table and its inputs prove it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.routing.admission import admit
from planner.routing.build import balance_ceiling, replicas_needed
from planner.routing.explain_inputs import Inputs
from planner.routing.problem import MAX_SLOTS
from planner.routing.table import RoutingTable

__all__ = ["Reason", "planned_sizes", "why_not"]


class Reason(StrEnum):
    """Why a key is admitted or not; `why_not` lists the figures of each reason."""

    ADMITTED = "admitted"
    SLOTS_GONE = "slots_gone"
    SLOTS_SHORT = "slots_short"
    TOKENS_SHORT = "tokens_short"
    NO_ROOM = "no_room"
    QUOTA_FULL = "quota_full"
    PREFERRED = "preferred_others"
    UNKNOWN = "not_told"


def planned_sizes(table: RoutingTable, given: Inputs, rates: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return k of keys of these rates as the planner sizes them: eq. 2, clamped, and raised by the balance target.

    Parameters
    ----------
    table : RoutingTable
        Holds ``q_cap`` and ``slots``.
    given : Inputs
        Inputs of the plan.
    rates : float64[n]
        Requests/s of the keys.

    Returns
    -------
    int64[n]
        k of each key.
    """
    most = int(given.available.sum())
    sizes = replicas_needed(rates, table.q_cap, most)
    ceiling = balance_ceiling(
        given.balance_target,
        rates=given.rates,
        slots=table.slots,
        cold_load=given.cold_load,
        capacity=given.capacity[given.available],
    )
    return np.maximum(sizes, replicas_needed(rates, ceiling, most)) if ceiling < np.inf else sizes


def why_not(table: RoutingTable, given: Inputs, key: int) -> tuple[Reason, dict[str, Any]]:
    """Return the reason why a key that the table does not hold was not admitted.

    The remaining budgets only shrink during admission. So a limit that the finished table does not reach never
    refused the key. Where exactly one limit refuses it, that is the reason. Figures by reason:

    ``SLOTS_GONE``
        ``keys_before``, the ``slots`` that these took, ``last_rate`` of the least busy of them (None without any),
        and ``reserved_keys``: keys among them that come later in the order but had slots reserved for their tenant.
    ``SLOTS_SHORT``
        ``needed`` and ``left`` slots at the turn of the key, ``keys_before``.
    ``TOKENS_SHORT``
        ``needed_tokens`` of all its copies, and ``left_tokens`` of the fleet.
    ``NO_ROOM``
        ``needed`` destinations, ``tokens`` of one copy, ``with_room``: destinations with room for it at the end.
    ``QUOTA_FULL``
        ``tenant`` (index), ``quota`` and ``used`` slots, ``needed``.
    ``PREFERRED``
        ``density`` and the ``lowest_density`` that was taken, value per ``unit`` ("slot" or "token"); ``as_a_set``
        is True where the policy compares whole sets, so that the density of the key may be the higher one.
    ``UNKNOWN``
        ``could_be``: values of the possible reasons (none: the inputs are not those of the table), with all their
        figures.

    Cost: O(B); O(B log B) where tenants, tokens or value decide.

    Parameters
    ----------
    table : RoutingTable
        Result of `build_table` or `replan`.
    given : Inputs
        Inputs of the plan.
    key : int
        Index of a key that is not admitted.

    Returns
    -------
    reason : Reason
        The limit that refused the key.
    figures : dict
        Figures of the reason, as above.
    """
    own_rates = given.rates[table.admitted]
    if not np.array_equal(planned_sizes(table, given, own_rates), table.replicas):
        return _unknown({})
    size = int(planned_sizes(table, given, given.rates[key : key + 1])[0])
    if table.admission == "top_rate" and given.room is None and not given.tenants_limited:
        before = (own_rates > given.rates[key]) | ((own_rates == given.rates[key]) & (table.admitted < key))
        turn = _Turn(table, given, key, size, table.admitted[before], table.replicas[before])
        return _one(turn.refusals())
    if table.admission == "exact":  # to solve it again may take long; the remaining budgets are enough
        return _in_the_end(table, given, key, size)
    sizes = planned_sizes(table, given, given.rates)
    chosen = admit(
        table.admission,
        rates=given.rates,
        sizes=sizes,
        values=_values(given),
        slots=min(table.slots, MAX_SLOTS),
        slot_tokens=given.slot_tokens,
        token_budget=None if given.room is None else float(given.room[given.available].sum()),
        tenants=given.tenants if given.tenants_limited else None,
        tenant_quota=given.tenant_quota,
        tenant_floor=given.tenant_floor,
    )
    if not np.array_equal(chosen.admitted, np.sort(table.admitted)):
        # Some keys found no destination with room during placement, and other keys took their slots.
        if given.room is not None and key in chosen.admitted:
            return Reason.NO_ROOM, _room(table, given, key, size)
        return _in_the_end(table, given, key, size)
    turn_of = np.empty(table.keys, dtype=np.int64)
    turn_of[chosen.order] = np.arange(table.keys)
    early = turn_of[table.admitted] < turn_of[key]
    reserved = np.isin(table.admitted, chosen.reserved)
    first = early | reserved
    turn = _Turn(table, given, key, size, table.admitted[first], table.replicas[first], int((~early & reserved).sum()))
    refusals = turn.refusals()
    if table.admission == "density" and Reason.SLOTS_GONE in refusals:
        del refusals[Reason.SLOTS_GONE]
        refusals[Reason.PREFERRED] = _density(table, given, key, size, early & ~reserved, chosen.unit)
    return _one(refusals)


@dataclass(frozen=True)
class _Turn:
    """Keys that were taken before the turn of the key."""

    table: RoutingTable
    given: Inputs
    key: int
    size: int
    taken: NDArray[np.int64]
    replicas: NDArray[np.int64]
    reserved: int = 0

    def refusals(self) -> dict[Reason, dict[str, Any]]:
        """Return every limit that refused the key, with its figures."""
        found: dict[Reason, dict[str, Any]] = {}
        left = self.table.slots - int(self.replicas.sum())
        keys = len(self.taken)
        if left == 0:
            rates = self.given.rates[self.taken]
            found[Reason.SLOTS_GONE] = {
                "keys_before": keys,
                "slots": self.table.slots,
                "last_rate": float(rates.min()) if keys else None,
                "reserved_keys": self.reserved,
            }
        elif self.size > left:
            found[Reason.SLOTS_SHORT] = {"needed": self.size, "left": left, "keys_before": keys}
        return found | self._quota() | self._tokens()

    def _quota(self) -> dict[Reason, dict[str, Any]]:
        given = self.given
        if given.tenants is None or given.tenant_quota is None:
            return {}
        tenant = int(given.tenants[self.key])
        quota = int(given.tenant_quota[tenant])
        used = int(self.replicas[given.tenants[self.taken] == tenant].sum())
        if quota < 0 or self.size <= quota - used:
            return {}
        return {Reason.QUOTA_FULL: {"tenant": tenant, "quota": quota, "used": used, "needed": self.size}}

    def _tokens(self) -> dict[Reason, dict[str, Any]]:
        given = self.given
        if given.room is None or given.slot_tokens is None:
            return {}
        used = float((self.replicas * given.slot_tokens[self.taken]).sum())
        left = float(given.room[given.available].sum()) - used
        needed = self.size * float(given.slot_tokens[self.key])
        if needed <= left:
            return {}
        return {Reason.TOKENS_SHORT: {"needed_tokens": needed, "left_tokens": left}}


def _in_the_end(table: RoutingTable, given: Inputs, key: int, size: int) -> tuple[Reason, dict[str, Any]]:
    """Return the limit that the finished table reaches, if it is only one."""
    refusals = _Turn(table, given, key, size, table.admitted, table.replicas).refusals()
    if given.room is not None and Reason.TOKENS_SHORT not in refusals:
        room = _room(table, given, key, size)
        if room["with_room"] < size:
            refusals[Reason.NO_ROOM] = room
    weighed = [reason for reason in (Reason.SLOTS_GONE, Reason.SLOTS_SHORT) if reason in refusals]
    if table.admission == "exact" and weighed and size <= table.slots:
        del refusals[weighed[0]]
        everything = np.ones(len(table.admitted), dtype=bool)
        unit = "slot" if given.room is None else "token"
        refusals[Reason.PREFERRED] = _density(table, given, key, size, everything, unit, as_a_set=True)
    return _one(refusals)


def _one(refusals: dict[Reason, dict[str, Any]]) -> tuple[Reason, dict[str, Any]]:
    return next(iter(refusals.items())) if len(refusals) == 1 else _unknown(refusals)


def _unknown(refusals: dict[Reason, dict[str, Any]]) -> tuple[Reason, dict[str, Any]]:
    figures: dict[str, Any] = {"could_be": [reason.value for reason in refusals]}
    for each in refusals.values():
        figures |= each
    return Reason.UNKNOWN, figures


def _values(given: Inputs) -> NDArray[np.float64]:
    return given.rates if given.prefix_tokens is None else given.rates * given.prefix_tokens


def _density(
    table: RoutingTable,
    given: Inputs,
    key: int,
    size: int,
    among: NDArray[np.bool_],
    unit: str,
    *,
    as_a_set: bool = False,
) -> dict[str, Any]:
    keys = np.concatenate([table.admitted[among], [key]])
    cost = np.concatenate([table.replicas[among], [size]]).astype(np.float64)
    if unit == "token" and given.slot_tokens is not None:
        cost *= given.slot_tokens[keys]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        density = np.where(_values(given)[keys] > 0, _values(given)[keys] / cost, 0.0)
    return {
        "density": float(density[-1]),
        "lowest_density": float(density[:-1].min()) if len(density) > 1 else None,
        "unit": unit,
        "as_a_set": as_a_set,
    }


def _room(table: RoutingTable, given: Inputs, key: int, size: int) -> dict[str, Any]:
    assert given.room is not None
    assert given.slot_tokens is not None  # room needs tokens
    held = np.repeat(given.slot_tokens[table.admitted], table.replicas)
    left = given.room - np.bincount(table.members, weights=held, minlength=table.destinations)
    tokens = float(given.slot_tokens[key])
    return {"needed": size, "tokens": tokens, "with_room": int((left[given.available] >= tokens).sum())}
