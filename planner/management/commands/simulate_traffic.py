from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.errors import Conflict
from planner.management.commands._base import PlannerCommand, fleet_named
from planner.selectors.access import rights
from planner.services.telemetry import simulator


class Command(PlannerCommand):
    help = (
        "Simulate the last minutes of traffic of a fleet that nothing serves (the sample fleet) and report it as "
        "telemetry, now instead of by beat. Minutes that were simulated already stay as they are."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--fleet", default="demo")
        parser.add_argument("--minutes", type=int, default=5, help="whole minutes up to now (default 5)")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Simulate."""
        fleet = fleet_named(options["fleet"])
        rights.require(user, rights.OPERATE, fleet)
        if not fleet.simulated_traffic:
            raise Conflict(f"{fleet.slug} is no fleet of simulated traffic: its routers report what they serve")
        count = simulator.simulate_fleet(fleet, minutes=max(1, options["minutes"]))
        self.say(f"{count} windows of simulated traffic were stored for {fleet.slug}", fleet=fleet.slug, windows=count)
