from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from planner.errors import Refused
from planner.models import Plan, Replay
from planner.services.plans.reproduction import reproduce_plan, reproduce_replay


class Command(BaseCommand):
    help = "Compute a plan's table or a replay's figures again from the stored inputs, and compare digests."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["plan", "replay"])
        parser.add_argument("id", type=int, help="id of the row, as the API shows it")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Reproduce; exit status 1 when the results differ."""
        model = Plan if options["what"] == "plan" else Replay
        row: Any = model.objects.filter(pk=options["id"]).first()
        if row is None:
            raise CommandError(f"there is no {options['what']} {options['id']}")
        try:
            found = reproduce_plan(row) if options["what"] == "plan" else reproduce_replay(row)
        except Refused as refusal:
            raise CommandError(refusal.message) from refusal
        if options["json"]:
            self.stdout.write(json.dumps({**vars(found), "same": found.same}))
        else:
            self.stdout.write(f"{found.what}\nstored      {found.stored}\nrecomputed  {found.recomputed}")
            for line in found.differences[:20]:
                self.stdout.write(f"differs: {line}")
        if not found.same:
            note = ""
            if found.stored_version != found.version:
                note = f"; it was made by {found.stored_version}, this is {found.version}"
            raise CommandError(f"{found.what} is not reproduced{note}")
        if not options["json"]:
            self.stdout.write("the same")
