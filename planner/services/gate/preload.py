"""Read the files that transitions need before they take a lock.

Falling back takes the fleet's lock and must not wait for object storage, so no file is read under a lock. The table is
verified and the blast radius computed first. Under the lock only database values (digests) are compared. If they name
other tables by then, everything is read and tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from django.db import transaction

from planner import artifacts
from planner.checklist.evidence import BlastRadius
from planner.errors import ArtifactLost, Busy
from planner.models import Plan
from planner.selectors.rollouts.blast_radius import blast_radius
from planner.selectors.rollouts.incumbents import incumbent_of

T = TypeVar("T")
TRIES = 4
# Ids of the plan and its table, and of the plan it is compared with and its table; none of them changes.
_Pair = tuple[int, int | None, int, int | None]


class NotPreloaded(Exception):
    """A value was requested under a lock that was not read before it."""


@dataclass(frozen=True)
class Preloaded:
    """The values read: for each table why it is unreadable (empty if readable), for each pair of plans the moves."""

    tables: dict[int, str] = field(default_factory=dict)
    radii: dict[_Pair, BlastRadius | None] = field(default_factory=dict)

    def require_table(self, plan: Plan) -> None:
        """Raise ArtifactLost if the table of the plan is unreadable, NotPreloaded if it was not read."""
        if self._lost(plan):
            raise ArtifactLost(self._lost(plan))

    def readable(self, plan: Plan) -> bool:
        """Whether the plan has a table that could be read."""
        return plan.table_id is not None and not self._lost(plan)

    def radius(self, plan: Plan, against: Plan) -> BlastRadius | None:
        """Return the blast radius of the plan; None if a table or the rates could not be read."""
        try:
            return self.radii[_pair(plan, against)]
        except KeyError:
            raise NotPreloaded from None

    def _lost(self, plan: Plan) -> str:
        assert plan.table_id is not None  # a plan without a table has no evidence
        try:
            return self.tables[plan.table_id]
        except KeyError:
            raise NotPreloaded from None


def _pair(plan: Plan, against: Plan) -> _Pair:
    return plan.pk, plan.table_id, against.pk, against.table_id


def held_against(plan: Plan) -> Plan:
    """Return the live plan that this plan replaces: its incumbent, or Flat-LB."""
    return incumbent_of(plan) or Plan.objects.get(fleet=plan.fleet_id, kind=Plan.Kind.FLAT)


def read(plan: Plan) -> Preloaded:
    """Read what a transition of the plan needs. Slow (reads storage): do not call it with a row locked."""
    if plan.table is None:
        return Preloaded()
    try:
        artifacts.verify(plan.table)
        lost = ""
    except ArtifactLost as problem:
        lost = problem.message
    against = held_against(plan)
    try:
        radius = blast_radius(plan, against)
    except ArtifactLost:
        radius = None
    return Preloaded({plan.table.pk: lost}, {_pair(plan, against): radius})


def read_table(plan: Plan) -> Preloaded:
    """Verify only the table of the plan; as `read`."""
    if plan.table is None:
        return Preloaded()
    try:
        artifacts.verify(plan.table)
    except ArtifactLost as problem:
        return Preloaded({plan.table.pk: problem.message})
    return Preloaded({plan.table.pk: ""})


def with_preloaded(plan_id: int, work: Callable[[Preloaded], T], *, reader: Callable[[Plan], Preloaded] = read) -> T:
    """Read what a plan needs, then run the work in one transaction; repeat both if another plan went live meanwhile.

    Raises
    ------
    Busy
        If the live plan changes faster than it can be read.
    """
    for _ in range(TRIES):
        stored = reader(Plan.objects.select_related("table", "workload__rates").get(pk=plan_id))
        try:
            with transaction.atomic():
                return work(stored)
        except NotPreloaded:
            continue
    raise Busy("the live plan of this fleet changed during the request; try again")
