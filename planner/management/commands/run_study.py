from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.management.commands._wait import wait_for
from planner.models import Study
from planner.services.plans import studies

HEAD = "  W x     q_cap x  admitted  imbalance  worst N-1  churn  slots used  replicated"


class Command(PlannerCommand):
    help = "Study how a built plan reacts to wrong inputs, and wait for the result."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("study", choices=Study.Kind.values)
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--plan", type=int, required=True, help="number of the plan in its fleet")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Order, wait, print a table for each share of the busiest key."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        job = studies.order_study(acting_user=user, plan=plan, kind=options["study"])
        job = wait_for(job, self.stderr.write)
        study = Study.objects.get(pk=job.result["study"])
        self.say(
            "\n".join([str(study), *_lines(study.results["settings"])]),
            id=study.pk,
            plan=plan.number,
            kind=study.kind,
            job=job.pk,
            parameters=study.parameters,
            inputs_digest=study.inputs_digest,
            code_version=study.code_version,
            results=study.results,
        )


def _lines(settings: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    shown: Any = ()
    for row in settings:
        if row["head_share"] != shown:
            shown = row["head_share"]
            asked = "as measured" if shown is None else f"raised to {shown:.0%}"
            held = f"it holds {row['held_share']:.2%} of the requests"
            lines += [f"busiest key {asked}: {held}{', as measured' if row['head_left'] else ''}", HEAD]
        worst = "-" if row["worst_loss"] is None else f"{row['worst_loss']:.3f}"
        lines.append(
            f"  {row['w_factor']:<6g}  {row['q_cap_factor']:<7g}  {row['admitted_share']:>8.1%}"
            f"  {row['imbalance']:>9.3f}  {worst:>9}  {row['churn_rate']:>5.1%}"
            f"  {row['slots_used']:>10,}  {row['replicated']:>10,}"
        )
    return lines
