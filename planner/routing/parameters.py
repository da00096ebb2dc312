"""Parameters of a plan: every input of its build beside the rates and an incumbent's table. They are stored as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.records import Record

__all__ = ["PlanParameters"]


@dataclass(frozen=True, kw_only=True)
class PlanParameters(Record):
    """Parameters of a build. Plans of earlier releases lack some entries; their fields have defaults.

    Attributes
    ----------
    admission : str
        Rule by which keys are admitted.
    balance_target : float or None
        Highest max/mean load; None for no target.
    q_cap : float
        Requests/s of one destination of speed 1 at the knee.
    slots_per_destination, slots : int
        Warm slots of one destination (W) and of the fleet (C).
    tokens_per_destination : int or None
        KV tokens of one destination; None where tokens are not limited.
    tenant_quota, tenant_floor : dict of str to int
        Highest and lowest number of warm slots of a tenant.
    destinations : tuple of int
        Indices of the fleet's destinations that were up, in the order of the table's members.
    capacity : tuple of float
        Speed of each of them.
    incumbent : int or None
        Number of the plan that a replan starts from.
    max_imbalance_factor : float or None
        Highest max/mean load of a replan, as a multiple of a fresh plan's.
    max_moved_share : float or None
        Highest share of the admitted rate that a replan moves; None for no limit.
    """

    admission: str
    balance_target: float | None = None
    q_cap: float
    slots_per_destination: int
    slots: int
    tokens_per_destination: int | None = None
    tenant_quota: dict[str, int] = field(default_factory=dict)
    tenant_floor: dict[str, int] = field(default_factory=dict)
    destinations: tuple[int, ...]
    capacity: tuple[float, ...] = ()
    incumbent: int | None = None
    max_imbalance_factor: float | None = None
    max_moved_share: float | None = None
