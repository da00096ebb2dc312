"""Files that transitions need, read before the transition takes a lock.

A fallback takes the lock of the fleet and must never wait for object storage. So no file is read under a lock: tables
are verified and the blast radius computed before, by the digests of content-addressed files, and under the lock only
database values are compared with them. When those name other tables meanwhile, the files are read again.
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
# Ids of the plan and its table, and of the plan it is compared with and its table. None of them ever changes.
_Pair = tuple[int, int | None, int, int | None]


class NotPreloaded(Exception):
    """A file is needed under a lock that was not read before it."""


@dataclass(frozen=True)
class Preloaded:
    """The result of reading: for each table, why it cannot be read (empty when it can), and for each pair of plans,
    what
    moves.
    """

    tables: dict[int, str] = field(default_factory=dict)
    radii: dict[_Pair, BlastRadius | None] = field(default_factory=dict)

    def require_table(self, plan: Plan) -> None:
        """Raise ArtifactLost when the table of the plan could not be read, NotPreloaded when it was not read."""
        if self._lost(plan):
            raise ArtifactLost(self._lost(plan))

    def readable(self, plan: Plan) -> bool:
        """Whether the plan has a table that could be read."""
        return plan.table_id is not None and not self._lost(plan)

    def radius(self, plan: Plan, against: Plan) -> BlastRadius | None:
        """What bringing the plan to traffic would change; None where a table or the rates could not be read."""
        try:
            return self.radii[_pair(plan, against)]
        except KeyError:
            raise NotPreloaded from None

    def _lost(self, plan: Plan) -> str:
        assert plan.table_id is not None  # A plan without a table has no evidence.
        try:
            return self.tables[plan.table_id]
        except KeyError:
            raise NotPreloaded from None


def _pair(plan: Plan, against: Plan) -> _Pair:
    return plan.pk, plan.table_id, against.pk, against.table_id


def held_against(plan: Plan) -> Plan:
    """The plan whose place this one takes: its incumbent, or Flat-LB."""
    return incumbent_of(plan) or Plan.objects.get(fleet=plan.fleet_id, kind=Plan.Kind.FLAT)


def read(plan: Plan) -> Preloaded:
    """Read what a transition of the plan needs. As slow as storage: never call it with a row locked."""
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
    """Verify only the table of the plan; otherwise as `read`."""
    if plan.table is None:
        return Preloaded()
    try:
        artifacts.verify(plan.table)
    except ArtifactLost as problem:
        return Preloaded({plan.table.pk: problem.message})
    return Preloaded({plan.table.pk: ""})


def with_preloaded(plan_id: int, work: Callable[[Preloaded], T], *, reader: Callable[[Plan], Preloaded] = read) -> T:
    """Read what a plan needs, then do the work in one transaction.

    Both are repeated when another plan became active meanwhile, at most four times in all.

    Parameters
    ----------
    plan_id
        Id of the plan.
    work
        Called in the transaction with what was read. `NotPreloaded` raised by it rolls the transaction back, and both
        are repeated.
    reader
        Reads what the work needs, before any lock: `read`, or `read_table` for the table only.

    Returns
    -------
    T
        The result of the work.

    Raises
    ------
    Busy
        When the active plan changes faster than its files can be read.
    """
    for _ in range(TRIES):
        stored = reader(Plan.objects.select_related("table", "workload__rates").get(pk=plan_id))
        try:
            with transaction.atomic():
                return work(stored)
        except NotPreloaded:
            continue
    raise Busy("the active plan of this fleet changes faster than its files can be read: try again")
