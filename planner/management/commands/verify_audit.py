from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from planner.errors import Refused
from planner.services.audit import chain


class Command(BaseCommand):
    help = "Read the audit trail from end to end; exit status 1 names every event altered, missing or moved."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--checkpoint", action="append", type=Path, default=[], help="a signed checkpoint that was kept"
        )
        parser.add_argument("--public-key", help="hex; checkpoints signed with another key are refused")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify and print the result."""
        try:
            kept = [chain.read_checkpoint(path, options["public_key"]) for path in options["checkpoint"]]
        except Refused as refusal:
            raise CommandError(refusal.message) from refusal
        started = time.perf_counter()
        verdict = chain.verify(kept)
        took_s = time.perf_counter() - started
        if options["json"]:
            found = {**asdict(verdict), "intact": verdict.intact, "took_s": round(took_s, 3)}
            self.stdout.write(json.dumps(found))
        else:
            for fault in verdict.faults:
                self.stdout.write(f"{fault.kind}: {fault.message}")
            if verdict.fault_count > len(verdict.faults):
                self.stdout.write(f"and {verdict.fault_count - len(verdict.faults):,} more")
            state = "intact" if verdict.intact else f"{verdict.fault_count:,} faults"
            what = f"{verdict.links:,} events, {verdict.checkpoints} checkpoints"
            self.stdout.write(f"{what}: {state} ({took_s:.1f} s), head {verdict.head}")
        if not verdict.intact:
            raise CommandError(f"the audit trail was altered: {verdict.fault_count:,} faults")
