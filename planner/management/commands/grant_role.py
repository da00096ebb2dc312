from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, user_named
from planner.selectors.access import rights
from planner.services.access import roles
from planner.services.access.roles import remove_role


class Command(PlannerCommand):
    help = "Give a role to an account, on one fleet or on all, or take it away (--take)."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("username")
        parser.add_argument("role", choices=list(rights.GROUPS))
        parser.add_argument("--fleet", help="one fleet only (default: all)")
        parser.add_argument("--take", action="store_true")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Give or take."""
        fleet = fleet_named(options["fleet"]) if options["fleet"] else None
        change = remove_role if options["take"] else roles.grant_role
        other = user_named(options["username"])
        change(acting_user=user, user=other, role=options["role"], fleet=fleet)
        held = "is not" if options["take"] else "is"
        self.say(
            f"{other} {held} {options['role']} on {fleet or 'all fleets'}",
            username=str(other),
            role=options["role"],
            fleet=fleet.slug if fleet else None,
            taken=options["take"],
        )
