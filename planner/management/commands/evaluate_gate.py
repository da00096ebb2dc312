from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.services.gate import evaluations


class Command(PlannerCommand):
    help = "Judge a plan by the six items of the checklist; checks that do not pass are printed by name."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("plan", type=int, help="number of the plan in its fleet")
        parser.add_argument("--fleet", required=True)

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Evaluate and print the items."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        evaluation = evaluations.evaluate_gate(acting_user=user, plan=plan)
        items = list(evaluation.items.order_by("number"))
        lines = []
        for item in items:
            waived = " (waived)" if item.waived else ""
            lines.append(f"{item.number}. {item.verdict:7} {item.title}{waived}: {item.explanation}")
            lines += [
                f"     {c['verdict']:7} {c['name']}{' (waived)' if c['waiver'] else ''}: {c['explanation']}"
                for c in item.checks
                if c["verdict"] != "pass"
            ]
        self.say(
            "\n".join([*lines, "passed" if evaluation.passed else "does not pass"]),
            id=evaluation.pk,
            passed=evaluation.passed,
            policy_version=evaluation.policy_version,
            evidence_digest=evaluation.evidence_digest,
            items=[
                {
                    "number": i.number,
                    "verdict": i.verdict,
                    "waived": i.waived,
                    "explanation": i.explanation,
                    "checks": [{name: c[name] for name in ("name", "verdict", "explanation")} for c in i.checks],
                }
                for i in items
            ],
        )
