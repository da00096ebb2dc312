from __future__ import annotations

from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.ingest import FORMATS
from planner.management.commands._base import PlannerCommand, fleet_named, moment
from planner.services.workloads import imports


class Command(PlannerCommand):
    help = "Import measured rates or a trace as a workload of a fleet."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", type=Path)
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--format", default="auto", choices=["auto", *FORMATS])
        parser.add_argument("--name", default="", help="name of the workload (default: from the file)")
        parser.add_argument("--key-depth", type=int, default=2, help="blocks of a prompt that make its routing key")
        parser.add_argument("--block-tokens", type=int, default=512)
        parser.add_argument("--measured-at", type=moment, help="end of the measurement, ISO 8601 with a time zone")
        parser.add_argument("--strict", action="store_true", help="refuse what would otherwise be repaired")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Import the file."""
        path: Path = options["file"]
        try:
            file = path.open("rb")
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from error
        with file:
            workload = imports.import_workload(
                acting_user=user,
                fleet=fleet_named(options["fleet"]),
                file=file,
                file_name=path.name,
                name=options["name"],
                format=options["format"],
                key_depth=options["key_depth"],
                block_tokens=options["block_tokens"],
                strict=options["strict"],
                measured_at=options["measured_at"],
            )
        lines = [
            f"Imported {workload.name} (workload {workload.pk}): {workload.key_count:,} keys, "
            f"{workload.request_count:,} requests, {workload.total_rps:.4g} requests/s",
            *(f"  note: {notice['message']} ({notice['count']:,})" for notice in workload.notices),
        ]
        self.say(
            "\n".join(lines),
            id=workload.pk,
            name=workload.name,
            keys=workload.key_count,
            requests=workload.request_count,
            rps=workload.total_rps,
            shape=workload.shape,
            notices=workload.notices,
        )
