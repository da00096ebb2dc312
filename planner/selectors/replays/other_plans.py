"""Other plans of a fleet that a replay includes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pyarrow.compute as pc

from planner import artifacts
from planner.errors import Invalid
from planner.models import Artifact, Fleet, Plan
from planner.simulation.options import OtherPlan

KINDS = ("down", "drain", "slow")

Option = TypeVar("Option", bound=OtherPlan)


def other_plan(plan: Plan, number: Any, *, field: str) -> OtherPlan:
    """Return another plan of the fleet that can be replayed on the same destinations.

    Parameters
    ----------
    plan
        The candidate.
    number
        Number of the other plan, as it was sent.
    field
        Name of the option, for the error.

    Returns
    -------
    OtherPlan
        Its number, id and digest of its table.

    Raises
    ------
    Invalid
        When there is no plan of that number with a table, or it is for other destinations or other speeds of them.
    """
    found = table_of(plan.fleet, number, field=field)
    if found.parameters["destinations"] != plan.parameters["destinations"]:
        raise Invalid(f"plan {number} is for other destinations than this one", field=field)
    if found.capacity != plan.capacity:
        # Replayed at the speeds of this plan, it would be judged for conditions that it was not built for.
        at = next(i for i, (its, own) in enumerate(zip(found.capacity, plan.capacity, strict=True)) if its != own)
        raise Invalid(
            f"plan {number} is for other speeds of its destinations than this one: of the first that differs "
            f"{found.capacity[at]:g}, and {plan.capacity[at]:g} here",
            field=field,
        )
    assert found.table is not None  # table_of returns no other kind.
    return OtherPlan(plan=number, id=found.pk, table=found.table.digest)


def table_of(fleet: Fleet, number: Any, *, field: str) -> Plan:
    """Return the plan of a number, which has a table.

    Parameters
    ----------
    fleet
        The fleet.
    number
        Number of the plan, as it was sent.
    field
        Name of the option, for the error.

    Returns
    -------
    Plan
        The plan with its table.

    Raises
    ------
    Invalid
        When there is none.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**31:
        raise Invalid("give the number of a plan in the fleet", field=field)
    found = fleet.plans.filter(number=number).select_related("table").defer("summary").first()
    if found is None or found.table is None:
        raise Invalid(f"the fleet has no built plan {number}", field=field)
    return found


def with_unknown(other: Option, rates: Artifact, *, field: str) -> Option:
    """Return another plan with its number of ``keys``, and the number of keys that the rates lack (``unknown``).

    Keys are found by name; an unknown key gets no request in a replay, so its placement has no effect on the figures.

    Parameters
    ----------
    other
        The other plan, with the digest of its table.
    rates
        Rates of the workload that is replayed; read from storage, as the table is.
    field
        Name of the option, for the error.

    Returns
    -------
    Option
        A copy of `other`.

    Raises
    ------
    Invalid
        When every key is unknown: the table of the plan would route nothing.
    ArtifactLost
        When the table or the rates cannot be read from storage.
    """
    names = artifacts.load(Artifact.objects.get(digest=other.table), ["key"]).column("key")
    there = pc.is_in(names, value_set=artifacts.load(rates, ["key"]).column("key").combine_chunks())
    unknown = len(names) - int(pc.sum(there).as_py() or 0)
    if unknown and unknown == len(names):
        raise Invalid(
            f"none of the {len(names):,} keys of plan {other.plan} is in the workload of this plan", field=field
        )
    return replace(other, keys=len(names), unknown=unknown)
