"""Checks of the quotas and floors of tenants."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.routing.validation import index_vector

__all__ = ["NO_LIMIT", "tenant_limits"]

NO_LIMIT = int(np.iinfo(np.int64).max)


def tenant_limits(
    tenants: ArrayLike | None, quota: ArrayLike | None, floor: ArrayLike | None, keys: int, slots: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Check the tenant arguments of `planner.routing.admission.admit`.

    Parameters
    ----------
    tenants : int64[B] or None
        Tenant of each key, >= 0.
    quota : int64[T] or None
        Maximum slots of each tenant, -1 for no limit.
    floor : int64[T] or None
        Slots reserved for each tenant.
    keys : int
        B.
    slots : int
        Slots of the fleet; the floors sum to no more.

    Returns
    -------
    tenants : int64[B]
        Tenant of each key; empty when there is neither quota nor floor, as the other arrays.
    most : int64[T]
        Maximum slots of each tenant, `NO_LIMIT` for none.
    reserved : int64[T]
        Slots reserved for each tenant.

    Raises
    ------
    ValueError
        Naming the argument, the index and the value.
    """
    none = np.zeros(0, dtype=np.int64)
    if tenants is None:
        if quota is not None or floor is not None:
            given = "tenant_quota" if quota is not None else "tenant_floor"
            raise ValueError(f"{given}: requires tenants, the tenant index of each key")
        return none, none, none
    tenant_of = index_vector("tenants", tenants, keys)
    if quota is None and floor is None:
        return none, none, none
    quotas = None if quota is None else index_vector("tenant_quota", quota, least=-1)
    floors = None if floor is None else index_vector("tenant_floor", floor)
    if quotas is not None and floors is not None and len(quotas) != len(floors):
        raise ValueError(f"tenant_floor: {len(floors)} tenants, but tenant_quota has {len(quotas)}")
    count = len(quotas) if quotas is not None else len(floors) if floors is not None else 0
    beyond = tenant_of >= count
    if beyond.any():
        at = int(np.argmax(beyond))
        given = "tenant_quota" if quotas is not None else "tenant_floor"
        raise ValueError(f"tenants[{at}] = {tenant_of[at]}: {given} has {count} tenants")
    most = np.full(count, NO_LIMIT) if quotas is None else np.where(quotas < 0, NO_LIMIT, quotas)
    least = np.zeros(count, dtype=np.int64) if floors is None else floors
    over = least > most
    if over.any():
        at = int(np.argmax(over))
        raise ValueError(f"tenant_floor[{at}] = {least[at]}: above tenant_quota[{at}] = {most[at]}")
    total = sum(least.tolist())
    if total > slots:
        at = int(np.argmax(np.cumsum(least.astype(np.float64)) > slots))
        raise ValueError(f"tenant_floor[{at}] = {least[at]}: the floors sum to {total}, above slots = {slots}")
    return tenant_of, most, least
