from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand
from planner.services.access import roles


class Command(PlannerCommand):
    help = "Create an account without any role; its first password is printed this once."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("username")
        parser.add_argument("--email", default="")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Create and print the password."""
        made, password = roles.create_account(acting_user=user, username=options["username"], email=options["email"])
        self.say(f"{made} was created; its first password is {password}", username=str(made), password=password)
