from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.services.reviews.approvals import approve_plan, count_approvals, withdraw_approval
from planner.services.reviews.submissions import submit_plan


class Command(PlannerCommand):
    help = "Submit a plan for review (--submit), approve it on the evidence named by --evidence, or take that back."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("plan", type=int, help="number of the plan in its fleet")
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--submit", action="store_true", help="submit for review instead of approving")
        parser.add_argument("--evidence", help="sha256 of the evidence that you looked at")
        parser.add_argument("--withdraw", action="store_true", help="withdraw your own approval")
        parser.add_argument("--comment", default="", help="of an approval, or the reason of its withdrawal")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Submit, approve or withdraw."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        if options["submit"]:
            plan = submit_plan(acting_user=user, plan=plan)
        elif options["withdraw"]:
            mine = plan.approvals.filter(approver=user, decision="approve", withdrawn_at=None).order_by("-id").first()
            if mine is None:
                raise CommandError(f"{user.get_username()} has given no approval of {plan} that could be withdrawn")
            withdraw_approval(acting_user=user, approval=mine, reason=options["comment"])
            plan.refresh_from_db()
        elif not options["evidence"]:
            raise CommandError("name the evidence that you looked at with --evidence (evaluate_gate --json prints it)")
        else:
            approve_plan(acting_user=user, plan=plan, evidence_digest=options["evidence"], comment=options["comment"])
            plan.refresh_from_db()
        evaluation = plan.gate_evaluations.order_by("-id").first()
        stand = count_approvals(plan, evaluation) if evaluation is not None else 0
        self.say(
            f"{plan} is {plan.get_state_display()}; {stand} of {plan.fleet.min_approvals} approvals stand",
            id=plan.pk,
            number=plan.number,
            state=plan.state,
            approvals=stand,
            needed=plan.fleet.min_approvals,
        )
