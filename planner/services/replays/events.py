"""Events during a replay: destinations that fail, and a plan that replaces another.

Times are shares of the arrivals' span: 0 is the first arrival and 1 the last. A share is the same request at every
load; a time in seconds would not be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from msgspec import UNSET

from planner.errors import Invalid
from planner.models import Plan
from planner.selectors.replays.other_plans import other_plan
from planner.simulation.options import FaultOption, SwitchOption

KINDS = ("down", "drain", "slow")
# Kinds after which a destination receives no new requests.
AWAY = ("down", "drain")
MAX_FAULTS = 100
MAX_FACTOR = 1_000.0


def check_faults(plan: Plan, faults: Sequence[Mapping[str, Any]]) -> tuple[FaultOption, ...]:
    """Faults as they are stored, with the position of each destination among the plan's.

    Parameters
    ----------
    faults
        Each with ``kind`` (down: dies, and returns cold; drain: takes no new requests; slow: its steps take
        ``factor`` times as long), ``destination`` (its name), ``start`` and ``end`` (shares from 0 to 1; no end:
        to the end of the replay) and, of slow ones, ``factor`` (2 when not given).

    Raises
    ------
    Invalid
        Naming the fault and its field; also where at some moment no destination is left.
    """
    if len(faults) > MAX_FAULTS:
        raise Invalid(f"{MAX_FAULTS} faults at most", field="faults")
    positions = _positions(plan) if faults else {}
    found = tuple(_fault(f"faults/{at}", fault, positions) for at, fault in enumerate(faults))
    for at, fault in enumerate(found):
        for other in found[:at]:
            same = (fault.kind, fault.destination) == (other.kind, other.destination)
            if same and fault.start < other.ends_at and other.start < fault.ends_at:
                what = f"{fault.destination} is {fault.kind} already at that time"
                raise Invalid(what, field=f"faults/{at}/start")
    # Destinations are removed only where a fault starts, so checking these moments is enough.
    for moment in sorted(fault.start for fault in found if fault.kind in AWAY):
        away = {f.destination for f in found if f.kind in AWAY and f.start <= moment < f.ends_at}
        if len(away) == len(positions):
            raise Invalid(
                f"all {len(positions)} destinations of {plan} are down or drained at {moment:g} of the replay: "
                "no destination is left to serve requests",
                field="faults",
            )
    return found


def _positions(plan: Plan) -> dict[str, int]:
    """The position of each destination in the table of the plan, by name."""
    names = dict(plan.fleet.destinations.values_list("index", "name"))
    return {names[index]: at for at, index in enumerate(plan.parameters["destinations"]) if index in names}


def _fault(where: str, fault: Mapping[str, Any], positions: dict[str, int]) -> FaultOption:
    known = ("kind", "destination", "start", "end", "factor")
    for name in fault:
        if name not in known:
            raise Invalid(f"a fault has {', '.join(known)}", field=f"{where}/{name}")
    kind, destination = fault.get("kind"), fault.get("destination")
    if kind not in KINDS:
        raise Invalid(f"a fault is one of {', '.join(KINDS)}", field=f"{where}/kind")
    if destination not in positions:
        names = list(positions)
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise Invalid(
            f"{str(destination)[:60]!r} is not a destination of this plan; it has {shown}", field=f"{where}/destination"
        )
    start, end, factor = fault.get("start"), fault.get("end"), fault.get("factor")
    if not _number(start) or not 0 <= start < 1:
        raise Invalid("a fault starts at a share of the arrivals' span, from 0 to below 1", field=f"{where}/start")
    if end is not None and not (_number(end) and start < end <= 1):
        raise Invalid("a fault ends after its start, at a share of at most 1; null: never", field=f"{where}/end")
    if kind != "slow" and factor is not None:
        raise Invalid("only a slow destination has a factor", field=f"{where}/factor")
    if kind == "slow" and factor is not None and not (_number(factor) and 1 < factor <= MAX_FACTOR):
        raise Invalid(
            f"a slow destination takes a multiple above 1, up to {MAX_FACTOR:g}, of the time", field=f"{where}/factor"
        )
    return FaultOption(
        kind=kind,
        destination=destination,
        position=positions[destination],
        start=float(start),
        end=None if end is None else float(end),
        factor=float(factor or 2.0) if kind == "slow" else UNSET,
    )


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_switch(plan: Plan, switch: Mapping[str, Any]) -> SwitchOption:
    """The plan switch as it is stored: the plan that is active until ``at``, with the digest of its table.

    Raises
    ------
    Invalid
        Naming the field.
    """
    for name in switch:
        if name not in ("from_plan", "at"):
            raise Invalid("a switch has from_plan and at", field=f"switch/{name}")
    at, number = switch.get("at"), switch.get("from_plan")
    if not _number(at) or not 0 < at < 1:
        raise Invalid("the plans switch at a share of the arrivals' span between 0 and 1", field="switch/at")
    if number == plan.number:
        raise Invalid(f"plan {number} cannot replace itself", field="switch/from_plan")
    return SwitchOption(**vars(other_plan(plan, number, field="switch/from_plan")), at=float(at))
