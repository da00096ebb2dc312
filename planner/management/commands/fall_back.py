from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named
from planner.services.rollouts.fallback import fall_back


class Command(PlannerCommand):
    help = "Route all traffic of a fleet by Flat-LB, now."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("fleet")
        parser.add_argument("--reason", default="")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Fall back."""
        fleet = fleet_named(options["fleet"])
        rollout = fall_back(acting_user=user, fleet=fleet, reason=options["reason"])
        fleet.refresh_from_db()
        self.say(
            f"{fleet.slug} is on Flat-LB (table version {fleet.table_version})",
            rollout=rollout.pk,
            table_version=fleet.table_version,
        )
