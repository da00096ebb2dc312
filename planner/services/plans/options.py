"""Options of a plan: each is checked, and an error names the field."""

from __future__ import annotations

from typing import Any

from planner import artifacts
from planner.errors import Conflict, Invalid
from planner.models import Calibration, Destination, Fleet, Plan, Workload
from planner.routing.admission import ADMISSIONS
from planner.routing.parameters import PlanParameters

DEFAULT_IMBALANCE_FACTOR = 1.02
MAX_SLOTS = 1_000_000_000
MAX_TOKENS = 10**15
MAX_TENANTS = 10_000


def checked(
    *,
    fleet: Fleet,
    calibration: Calibration,
    admission: str = "top_rate",
    balance_target: float | None = None,
    slots_per_destination: int | None = None,
    tokens_per_destination: int | None = None,
    tenant_quota: dict[str, int] | None = None,
    tenant_floor: dict[str, int] | None = None,
    incumbent: Plan | None = None,
    max_imbalance_factor: float | None = None,
    max_moved_share: float | None = None,
) -> PlanParameters:
    """Return the parameters of a build: all of its inputs except the rates and the table of the incumbent.

    `check_workload` checks before this what depends on the workload; nothing is read from storage here, so that the
    fleet may be locked.

    Parameters
    ----------
    fleet, calibration
        The fleet, and one of its calibrations, which gives q_cap (requests/s).
    admission
        One of `ADMISSIONS`: which keys get a warm slot.
    balance_target
        Max/mean ratio of the load, at least 1; None for no target.
    slots_per_destination
        Warm slots of one destination, 0 to 1,000,000,000; by default W of the calibration.
    tokens_per_destination
        KV tokens of one destination; None for no budget. Not checked here.
    tenant_quota, tenant_floor
        Most and reserved warm slots of each tenant. Here only the sum of the reserved slots is checked.
    incumbent
        A plan of the fleet with a table; the build is then a replan of it.
    max_imbalance_factor, max_moved_share
        Of a replan only: limit of max/mean as a multiple of that of a fresh plan (at least 1, default 1.02), and share
        of the admitted rate that may move (0 to 1; None for no limit).

    Returns
    -------
    PlanParameters
        Members of the table are positions in ``destinations``, the indices of the destinations of the fleet that are
        up; ``capacity``, their speeds, has the same order.

    Raises
    ------
    Invalid
        For an option that cannot be used; `field` names it.
    Conflict
        When no destination is up.
    """
    if calibration.fleet_id != fleet.pk:
        raise Invalid("this calibration belongs to another fleet", field="calibration")
    if admission not in ADMISSIONS:
        raise Invalid(f"{admission!r} is not one of {', '.join(ADMISSIONS)}", field="admission")
    if balance_target is not None and not 1 <= balance_target < 1e6:
        raise Invalid("the balance target is a max/mean ratio of at least 1", field="balance_target")
    slots = calibration.warm_slots if slots_per_destination is None else slots_per_destination
    if not 0 <= slots <= MAX_SLOTS:
        raise Invalid("warm slots are a whole number from 0 to 1,000,000,000", field="slots_per_destination")
    up = list(fleet.destinations.filter(state=Destination.State.UP).order_by("index"))
    if not up:
        raise Conflict("no destination of this fleet is up; set at least one to up")
    if (reserved := sum((tenant_floor or {}).values())) > slots * len(up):
        raise Invalid(f"{reserved:,} slots are reserved and the fleet has {slots * len(up):,}", field="tenant_floor")
    factor, moved = _replan_options(fleet, incumbent, max_imbalance_factor, max_moved_share)
    return PlanParameters(
        admission=admission,
        balance_target=balance_target,
        q_cap=calibration.q_cap,
        slots_per_destination=slots,
        slots=slots * len(up),
        tokens_per_destination=tokens_per_destination,
        tenant_quota=tenant_quota or {},
        tenant_floor=tenant_floor or {},
        destinations=tuple(d.index for d in up),
        capacity=tuple(d.weight for d in up),
        incumbent=None if incumbent is None else incumbent.number,
        max_imbalance_factor=factor,
        max_moved_share=moved,
    )


def _replan_options(
    fleet: Fleet, incumbent: Plan | None, max_imbalance_factor: float | None, max_moved_share: float | None
) -> tuple[float | None, float | None]:
    if incumbent is None:
        for field, value in (("max_imbalance_factor", max_imbalance_factor), ("max_moved_share", max_moved_share)):
            if value is not None:
                raise Invalid("only a replan of another plan takes this option", field=field)
        return None, None
    if incumbent.fleet_id != fleet.pk:
        raise Invalid("this plan belongs to another fleet", field="incumbent")
    if incumbent.table_id is None:
        raise Invalid(f"{incumbent} has no table to start from", field="incumbent")
    factor = DEFAULT_IMBALANCE_FACTOR if max_imbalance_factor is None else max_imbalance_factor
    if not 1 <= factor < 1e6:
        raise Invalid("a multiple of the fresh plan's max/mean, at least 1", field="max_imbalance_factor")
    if max_moved_share is not None and not 0 <= max_moved_share <= 1:
        raise Invalid("a share of the admitted rate from 0 to 1", field="max_moved_share")
    return factor, max_moved_share


def check_workload(
    fleet: Fleet,
    workload: Workload,
    *,
    tokens_per_destination: int | None = None,
    tenant_quota: dict[str, int] | None = None,
    tenant_floor: dict[str, int] | None = None,
    **_: Any,
) -> None:
    """Check the options that depend on the keys of the workload; `checked` checks the others.

    Reads the rates, which takes seconds for millions of keys: never call it with the fleet locked, because a fallback
    would wait. Workloads do not change, so the answer stays true.

    Parameters
    ----------
    fleet, workload
        The fleet, and a workload that must belong to it.
    tokens_per_destination
        KV tokens of one destination, 1 to 10^15. The workload must have the prefix length of each key.
    tenant_quota, tenant_floor
        Most and reserved warm slots, 0 to 1,000,000,000, of at most 10,000 tenants that the workload has.
    **_
        Options that do not depend on the workload; not checked.

    Raises
    ------
    Invalid
        For an option that cannot be used; `field` names it.
    ArtifactLost
        When the rates cannot be read from storage.
    """
    if workload.fleet_id != fleet.pk:
        raise Invalid("this workload belongs to another fleet", field="workload")
    if tokens_per_destination is None and not tenant_quota and not tenant_floor:
        return
    if tokens_per_destination is not None and not 1 <= tokens_per_destination <= MAX_TOKENS:
        raise Invalid("KV tokens are a whole number from 1 to 10^15", field="tokens_per_destination")
    rates = artifacts.load(workload.rates)
    if tokens_per_destination is not None and artifacts.prefix_tokens_of(rates) is None:
        raise Invalid(
            f"a token budget needs the prefix length of each key, and workload {workload.name} has none",
            field="tokens_per_destination",
        )
    if tenant_quota or tenant_floor:
        found = artifacts.tenants_of(rates)
        _check_tenants(workload, None if found is None else set(found[0]), tenant_quota or {}, tenant_floor or {})


def _check_tenants(workload: Workload, known: set[str] | None, quota: dict[str, int], floor: dict[str, int]) -> None:
    for field, wanted in (("tenant_quota", quota), ("tenant_floor", floor)):
        if not wanted:
            continue
        if known is None:
            raise Invalid(f"workload {workload.name} has no tenants", field=field)
        if len(wanted) > MAX_TENANTS:
            raise Invalid(f"enter at most {MAX_TENANTS:,} tenants", field=field)
        for tenant, count in wanted.items():
            if tenant not in known:
                raise Invalid(f"workload {workload.name} has no tenant {tenant!r}", field=field)
            if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_SLOTS:
                raise Invalid(
                    f"{tenant!r}: {count!r} is not a whole number of slots from 0 to 1,000,000,000", field=field
                )
    for tenant, count in floor.items():
        if tenant in quota and count > quota[tenant]:
            raise Invalid(
                f"{tenant!r}: {count:,} slots are reserved and {quota[tenant]:,} allowed", field="tenant_floor"
            )
