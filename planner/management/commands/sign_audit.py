from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand
from planner.services.audit import chain


class Command(PlannerCommand):
    help = "Sign the head of the audit trail (Ed25519). Keep the checkpoint elsewhere, to verify the trail later."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--out", type=Path, help="file to write the checkpoint to")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Sign and print or write the document."""
        row = chain.sign_checkpoint(acting_user=user)
        text = json.dumps(row.document, indent=1, sort_keys=True)
        if options["out"]:
            options["out"].write_text(text + "\n")
            self.say(f"checkpoint at {row.position:,} written to {options['out']}", **row.document)
        else:
            self.stdout.write(text)
