from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named
from planner.models import DriftCheck
from planner.selectors.access import rights
from planner.services.monitoring import monitor


class Command(PlannerCommand):
    help = (
        "Check a fleet now as the monitor does every minute: compare telemetry with the validated range, judge its "
        "canary, and act where the fleet's policy says so. Exit status 1 when the fleet is outside the range."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("fleet")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Check."""
        fleet = fleet_named(options["fleet"])
        rights.require(user, rights.OPERATE, fleet)
        check = monitor.watch_fleet(fleet, by_hand=True)
        if check is None:
            raise CommandError("the monitor is checking this fleet at this moment")
        label = " (simulated)" if check.simulated else ""
        self.say(
            f"{fleet.slug}: {check.get_verdict_display()}{label}. {check.explanation}",
            check=check.pk,
            verdict=check.verdict,
            explanation=check.explanation,
            simulated=check.simulated,
            breaches=check.figures.get("breaches", []),
            breaches_in_a_row=check.figures.get("breaches_in_a_row", 0),
        )
        if check.verdict == DriftCheck.Verdict.OUT_OF_RANGE:
            raise SystemExit(1)
