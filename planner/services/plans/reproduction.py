"""Computing a stored result again from its stored inputs, and comparing the digests."""

from __future__ import annotations

import json
from dataclasses import dataclass

from planner import artifacts
from planner.digests import code_version
from planner.errors import Conflict
from planner.models import Plan, Replay, ReplayCell
from planner.records import JsonObject
from planner.services.plans import tables as plan_tables
from planner.services.replays import cell_runs
from planner.services.replays.completion import digest_of


@dataclass(frozen=True)
class Reproduction:
    """Stored and recomputed digest of a result, and where they differ."""

    what: str
    stored: str
    recomputed: str
    stored_version: str
    version: str
    differences: list[str]

    @property
    def same(self) -> bool:
        """Whether the recomputed result equals the stored one."""
        return self.stored == self.recomputed and not self.differences


def reproduce_plan(plan: Plan) -> Reproduction:
    """Build the table again from the stored rates and parameters; store nothing.

    Raises
    ------
    Conflict
        If the plan has no table.
    ArtifactLost
        When an input is missing or does not match its digest.
    """
    if plan.table is None:
        raise Conflict(f"{plan} is {plan.get_state_display()}: it has no table to reproduce")
    inputs = plan_tables.load_inputs(plan)
    built = plan_tables.build(plan, inputs)
    recomputed = artifacts.table_digest(built.table, inputs.key_names)
    return Reproduction(f"{plan} of {plan.fleet}", plan.table.digest, recomputed, plan.code_version, code_version(), [])


def reproduce_replay(replay: Replay) -> Reproduction:
    """Run every cell of a finished replay again and compare the figures; store nothing.

    Raises
    ------
    Conflict
        If the replay has no figures.
    """
    if replay.state != Replay.State.SUCCEEDED:
        raise Conflict(f"{replay} is {replay.get_state_display()}: it has no figures to reproduce")
    differences: list[str] = []
    again: dict[int, JsonObject] = {}
    cells = ReplayCell.objects.filter(replay=replay, state=ReplayCell.State.SUCCEEDED)
    for cell in cells.select_related("replay__plan__table", "replay__workload__rates", "replay__workload__trace"):
        # As the database returns them.
        again[cell.pk] = json.loads(json.dumps(cell_runs.figures_of(cell).to_json()))
        differing = sorted(k for k in again[cell.pk] if again[cell.pk][k] != cell.figures.get(k))
        if differing:
            differences.append(f"{cell}: {', '.join(differing)}")
    return Reproduction(
        f"{replay}", replay.figures_digest, digest_of(replay, again), replay.code_version, code_version(), differences
    )
