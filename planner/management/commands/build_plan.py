from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named
from planner.management.commands._wait import wait_for
from planner.models import Plan
from planner.services import plans


class Command(PlannerCommand):
    help = "Order a plan of a fleet and wait until it is built."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--workload", help="name of a workload (default: the newest)")
        parser.add_argument("--calibration", type=int, help="id of a calibration (default: the newest)")
        parser.add_argument("--slots-per-destination", type=int, help="W (default: the calibration's)")
        parser.add_argument("--balance-target", type=float)
        parser.add_argument("--note", default="")
        parser.add_argument("--no-wait", action="store_true")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Order, then wait."""
        fleet = fleet_named(options["fleet"])
        found = fleet.workloads.filter(name=options["workload"]) if options["workload"] else fleet.workloads.all()
        workload = found.first()
        cals = (
            fleet.calibrations.filter(pk=options["calibration"]) if options["calibration"] else fleet.calibrations.all()
        )
        calibration = cals.first()
        if workload is None or calibration is None:
            lacking = "workload" if workload is None else "calibration"
            raise CommandError(f"fleet {fleet.slug} has no such {lacking}")
        plan, job = plans.order_plan(
            acting_user=user,
            fleet=fleet,
            workload=workload,
            calibration=calibration,
            slots_per_destination=options["slots_per_destination"],
            balance_target=options["balance_target"],
            note=options["note"],
        )
        if not options["no_wait"]:
            wait_for(job, self.stderr.write)
            plan = Plan.objects.get(pk=plan.pk)
        self.say(
            f"{plan} is {plan.get_state_display()}",
            id=plan.pk,
            number=plan.number,
            state=plan.state,
            job=job.pk,
            summary=plan.summary,
        )
