from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from planner.management.commands._base import fleet_named
from planner.selectors.fleets.routing_tables import routing_table


class Command(BaseCommand):
    help = "Print the published routing table of a fleet."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("fleet")
        parser.add_argument("--format", default="json", choices=["json"])
        parser.add_argument("--json", action="store_true", help="the output is JSON in any case")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the document that routers poll."""
        self.stdout.write(json.dumps(routing_table(fleet_named(options["fleet"])), ensure_ascii=False))
