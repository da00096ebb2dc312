from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.services import gates


class Command(PlannerCommand):
    help = "Judge a plan by the six checklist items."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("plan", type=int, help="number of the plan in its fleet")
        parser.add_argument("--fleet", required=True)

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Evaluate and print the items."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        evaluation = gates.evaluate_gate(acting_user=user, plan=plan)
        items = list(evaluation.items.order_by("number"))
        lines = [f"{i.number}. {i.verdict:7} {i.title}: {i.explanation}" for i in items]
        self.say(
            "\n".join([*lines, "passed" if evaluation.passed else "does not pass"]),
            id=evaluation.pk,
            passed=evaluation.passed,
            evidence_digest=evaluation.evidence_digest,
            items=[{"number": i.number, "verdict": i.verdict, "explanation": i.explanation} for i in items],
        )
