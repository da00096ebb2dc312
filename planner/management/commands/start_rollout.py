from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, moment, plan_numbered
from planner.models import Plan, Rollout
from planner.selectors.rollouts.queries import rollout_state
from planner.services.rollouts.starts import reschedule_rollout, start_rollout
from planner.services.rollouts.steps import (
    abort_rollout,
    advance_rollout,
    pause_rollout,
    promote_rollout,
    resume_rollout,
)
from planner.templatetags.rollouts import keys_share

# Actions on an open rollout, and whether they take a reason.
MOVES: dict[str, tuple[Callable[..., Rollout], bool]] = {
    "advance": (advance_rollout, False),
    "promote": (promote_rollout, True),
    "pause": (pause_rollout, True),
    "resume": (resume_rollout, False),
    "abort": (abort_rollout, True),
}


class Command(PlannerCommand):
    help = "Start the canary of an approved plan, now or --at a time; or change an open rollout: --advance, --pause..."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("plan", type=int, help="number of the plan in its fleet")
        parser.add_argument("--fleet", required=True)
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--at", type=moment, metavar="TIME", help="start at this time, after all checks are repeated")
        what.add_argument("--move-to", type=moment, metavar="TIME", help="move the start of a scheduled canary")
        for name in MOVES:
            what.add_argument(f"--{name}", action="store_true")
        parser.add_argument("--reason", default="", help="for --promote (needed), --pause and --abort")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Start a rollout, or change an open one."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        move = next((name for name in MOVES if options[name]), None)
        if options["move_to"] is not None:
            rollout = reschedule_rollout(acting_user=user, rollout=_ahead(plan), scheduled_for=options["move_to"])
        elif move is None:
            rollout = start_rollout(acting_user=user, plan=plan, scheduled_for=options["at"])
        else:
            change, takes_reason = MOVES[move]
            reason = {"reason": options["reason"]} if takes_reason else {}
            rollout = change(acting_user=user, rollout=_ahead(plan), **reason)
        self._tell(plan, rollout)

    def _tell(self, plan: Plan, rollout: Rollout) -> None:
        share = f"with {keys_share(rollout.weight)} of keys"
        at = rollout.scheduled_for.isoformat() if rollout.scheduled_for else None
        held = [hold.message for hold in rollout_state(rollout).held]
        when = f" for {at}" if rollout.state == Rollout.State.SCHEDULED else ""
        self.say(
            f"{plan} is {rollout.get_state_display()}{when} {share}" + "".join(f"\n  held: {line}" for line in held),
            id=rollout.pk,
            state=rollout.state,
            weight=rollout.weight,
            scheduled_for=at,
            held=held,
        )


def _ahead(plan: Plan) -> Rollout:
    found = plan.rollouts.filter(state__in=["scheduled", "canary"]).first()
    if found is None:
        raise CommandError(f"{plan} has no canary, and none is scheduled")
    return found
