from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named
from planner.models import Freeze
from planner.services.rollouts.freezes import freeze, lift_freeze


class Command(PlannerCommand):
    help = "Freeze the rollouts of a fleet, or of all fleets; --lift ends the freeze. Falling back is never frozen."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("fleet", nargs="?", help="without it: all fleets")
        parser.add_argument("--reason", default="", help="needed to freeze")
        parser.add_argument("--lift", action="store_true")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Freeze, or lift the freeze."""
        fleet = fleet_named(options["fleet"]) if options["fleet"] else None
        what = f"the rollouts of {fleet.slug}" if fleet else "the rollouts of all fleets"
        if options["lift"]:
            known = Freeze.objects.filter(fleet=fleet, lifted_at=None).first()
            if known is None:
                raise CommandError(f"{what} are not frozen")
            row = lift_freeze(acting_user=user, freeze=known, reason=options["reason"])
            self.say(f"{what} may move again", id=row.pk, lifted_at=row.lifted_at)
            return
        row = freeze(acting_user=user, fleet=fleet, reason=options["reason"])
        self.say(f"{what} are frozen: {row.reason}", id=row.pk, fleet=fleet.slug if fleet else None)
