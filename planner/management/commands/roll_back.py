from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.services.rollouts.rollback import roll_back


class Command(PlannerCommand):
    help = "Make a plan active again that was active before, at once and without a new replay."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("fleet")
        parser.add_argument("plan", type=int, help="number of the plan in its fleet")
        parser.add_argument("--reason", required=True)

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Roll back."""
        fleet = fleet_named(options["fleet"])
        plan = plan_numbered(fleet, options["plan"])
        rollout = roll_back(acting_user=user, fleet=fleet, plan=plan, reason=options["reason"])
        fleet.refresh_from_db()
        self.say(
            f"{plan} routes all keys of {fleet.slug} (table version {fleet.table_version})",
            rollout=rollout.pk,
            table_version=fleet.table_version,
        )
