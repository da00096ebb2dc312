from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.models import Rollout
from planner.services import rollouts


class Command(PlannerCommand):
    help = "Start the canary of an approved plan, or take the running one a step on (--advance)."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("plan", type=int, help="number of the plan in its fleet")
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--advance", action="store_true")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Start or advance."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        if options["advance"]:
            running = plan.rollouts.filter(state=Rollout.State.CANARY).first()
            if running is None:
                raise CommandError(f"{plan} has no canary to advance")
            rollout = rollouts.advance_rollout(acting_user=user, rollout=running)
        else:
            rollout = rollouts.start_rollout(acting_user=user, plan=plan)
        self.say(
            f"{plan} is {rollout.get_state_display()} with {rollout.weight:.0%} of keys",
            id=rollout.pk,
            state=rollout.state,
            weight=rollout.weight,
        )
