from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named
from planner.services import calibrations


class Command(PlannerCommand):
    help = "Calibrate a fleet: simulate a load sweep of one replica, or record measured figures (--q-cap, --slots)."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--q-cap", type=float, help="measured requests/s of one destination at the knee")
        parser.add_argument("--slots", type=int, help="measured warm prefixes that one destination keeps")
        parser.add_argument(
            "--workload", help="name of the workload whose requests are simulated (default: the newest)"
        )
        parser.add_argument("--margin", type=float, default=0.8)
        parser.add_argument("--note", default="")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Record or simulate."""
        fleet = fleet_named(options["fleet"])
        if options["q_cap"] is not None and options["slots"] is not None:
            done = calibrations.record_calibration(
                acting_user=user,
                fleet=fleet,
                q_cap=options["q_cap"],
                slots_measured=options["slots"],
                margin=options["margin"],
                note=options["note"],
            )
        else:
            named = fleet.workloads.filter(name=options["workload"]) if options["workload"] else fleet.workloads.all()
            workload = named.first()
            if workload is None:
                raise CommandError(f"fleet {fleet.slug} has no such workload to calibrate with")
            done = calibrations.simulate_calibration(
                acting_user=user, fleet=fleet, workload=workload, margin=options["margin"]
            )
        self.say(
            f"Calibration {done.pk}: {done}",
            id=done.pk,
            q_cap=done.q_cap,
            q_cap_censored=done.q_cap_censored,
            warm_slots=done.warm_slots,
            source=done.source,
        )
