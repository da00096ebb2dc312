from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.selectors.plans.explanations import explain


class Command(PlannerCommand):
    help = "Explain the place of a key, or the load of a destination."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--plan", type=int, required=True, help="number of the plan in its fleet")
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--key", help="name of a key")
        which.add_argument("--destination", help="name of a destination")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Print the sentence and the facts behind it."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        told = explain(plan, key=options["key"], destination=options["destination"])
        lines = [told["sentence"], *(_destination(told) if told["kind"] == "destination" else _key(told))]
        self.say("\n".join(lines), **told)


def _key(told: dict[str, Any]) -> list[str]:
    lines = [f"  k: {told['wanted']:,} by rate / q_cap, {told['planned']:,} planned"]
    lines += [
        f"  {row['destination']}: {row['share']:.4g} requests/s on top of {row['load_before']:.4g} "
        f"({row['cold']:.4g} cold, {row['heavier_keys']:,} heavier keys), "
        f"number {row['rank']:,} of {row['among']:,} by load"
        for row in told["members"]
    ]
    return lines


def _destination(told: dict[str, Any]) -> list[str]:
    lines = [f"  {row['key']}: {row['share']:.4g} of {row['rate']:.4g} requests/s" for row in told["busiest"]]
    lines += [
        f"  lost, {row['destination']} takes {row['backup_keys']:,} keys by backup "
        f"({row['backup_rate']:.4g} requests/s), {row['member_rate']:.4g} of keys it holds too, "
        f"{row['cold_rate']:.4g} cold"
        for row in told["receivers"]
    ]
    if (more := told["receiver_count"] - len(told["receivers"])) > 0:
        lines.append(f"  and {more:,} more")
    return lines
