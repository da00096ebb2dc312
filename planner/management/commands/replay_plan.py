from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.management.commands._wait import wait_for
from planner.models import Replay
from planner.routing import POLICIES
from planner.services import replays


class Command(PlannerCommand):
    help = "Replay a built plan against Flat-LB and wait for the verdict."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("plan", type=int, help="number of the plan in its fleet")
        parser.add_argument("--fleet", required=True)
        parser.add_argument(
            "--loads", type=float, nargs="+", help="requests/s (default: shares of the calibrated knee)"
        )
        parser.add_argument("--seeds", type=int, nargs="+")
        parser.add_argument("--policies", nargs="+", choices=list(POLICIES))
        parser.add_argument("--arrivals", default="poisson", choices=replays.ARRIVALS)
        parser.add_argument("--cv", type=float, help="coefficient of variation of gamma arrivals")
        parser.add_argument("--requests", type=int, default=20_000)

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Start, then wait."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        row, job = replays.start_replay(
            acting_user=user,
            plan=plan,
            policies=options["policies"],
            loads_rps=options["loads"],
            seeds=options["seeds"],
            arrivals=options["arrivals"],
            cv=options["cv"],
            requests=options["requests"],
        )
        wait_for(job, self.stderr.write)
        row = Replay.objects.get(pk=row.pk)
        lines = [f"{row}: capacity at p99 <= {row.slo_p99_s:g} s"]
        lines += [f"  {policy}: {text} requests/s" for policy, text in row.verdict["capacity"].items()]
        self.say("\n".join(lines), id=row.pk, state=row.state, verdict=row.verdict)
