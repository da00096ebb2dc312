from __future__ import annotations

import argparse
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.management.commands._wait import wait_for
from planner.models import Replay
from planner.routing import POLICIES
from planner.services.replays import orders as replay_orders
from planner.services.replays.option_lines import gathered, read_fault, read_parameter
from planner.services.replays.options import ARRIVALS

PASSED_ON = ("policies", "seeds", "arrivals", "cv", "run_length", "requests", "warmup", "also", "refine", "extend")


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
        parser.add_argument(
            "--parameter",
            action="append",
            default=[],
            type=_of_line(read_parameter),
            metavar="POLICY.NAME=VALUE",
            help="a parameter of a policy, such as sticky.vnodes=80; may be given again",
        )
        parser.add_argument("--arrivals", default="poisson", choices=ARRIVALS)
        parser.add_argument("--cv", type=float, help="coefficient of variation of gamma arrivals")
        parser.add_argument("--run-length", type=int, help="gaps in a run of bootstrap arrivals")
        parser.add_argument("--requests", type=int, default=20_000)
        parser.add_argument("--warmup", type=float, default=0.2, help="share of the requests that is not measured")
        parser.add_argument(
            "--fault",
            action="append",
            default=[],
            type=_of_line(lambda text: read_fault(text.replace(":", " "))),
            metavar="KIND:DESTINATION:START[:END][:xFACTOR]",
            help="down, drain or slow, times as shares of the replay, such as slow:d02:0.3:0.8:x2; may be given again",
        )
        parser.add_argument("--switch-from", type=int, metavar="PLAN", help="number of the plan that is active first")
        parser.add_argument("--switch-at", type=float, help="share of the replay at which this plan replaces it")
        parser.add_argument("--also", type=int, nargs="+", metavar="PLAN", help="other plans to replay beside")
        parser.add_argument("--refine", type=int, default=0, help="rounds of bisection after the ladder is done")
        parser.add_argument("--extend", action="store_true", help="also add loads beyond an open end of the ladder")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Start, then wait."""
        plan = plan_numbered(fleet_named(options["fleet"]), options["plan"])
        switch = {"from_plan": options["switch_from"], "at": options["switch_at"]}
        row, job = replay_orders.start_replay(
            acting_user=user,
            plan=plan,
            loads_rps=options["loads"],
            policy_parameters=gathered(options["parameter"]),
            faults=options["fault"],
            switch=switch if any(value is not None for value in switch.values()) else None,
            **{name: options[name] for name in PASSED_ON},
        )
        wait_for(job, self.stderr.write)
        row = Replay.objects.get(pk=row.pk)
        lines = [f"{row}: capacity at p99 <= {row.slo_p99_s:g} s"]
        if row.what_if:
            lines[0] += f", with {' and '.join(row.parameters['what_if'])}: not evidence for the checklist"
        lines += [f"  {policy}: {text} requests/s" for policy, text in row.verdict["capacity"].items()]
        self.say("\n".join(lines), id=row.pk, state=row.state, figures_digest=row.figures_digest, verdict=row.verdict)


def _of_line(read: Any) -> Any:
    """A type of argparse that shows why a text cannot be read."""

    def parse(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse
