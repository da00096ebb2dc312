from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.services import reviews


class Command(PlannerCommand):
    help = "Submit a plan for review (--submit), or approve it on the evidence named by --evidence."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("plan", type=int, help="number of the plan in its fleet")
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--submit", action="store_true", help="submit for review instead of approving")
        parser.add_argument("--evidence", help="sha256 of the evidence that you looked at")
        parser.add_argument("--comment", default="")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Submit or approve."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        if options["submit"]:
            plan = reviews.submit_plan(acting_user=user, plan=plan)
        elif not options["evidence"]:
            raise CommandError("name the evidence that you looked at with --evidence (evaluate_gate --json prints it)")
        else:
            reviews.approve_plan(
                acting_user=user, plan=plan, evidence_digest=options["evidence"], comment=options["comment"]
            )
            plan.refresh_from_db()
        self.say(f"{plan} is {plan.get_state_display()}", id=plan.pk, number=plan.number, state=plan.state)
