from __future__ import annotations

import argparse
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named, plan_numbered
from planner.management.commands._wait import wait_for
from planner.models import Plan
from planner.routing.admission import ADMISSIONS
from planner.services.plans.orders import order_plan

# Options that go to the service as they are.
PLAIN = (
    "admission", "balance_target", "slots_per_destination", "tokens_per_destination", "max_imbalance_factor",
    "max_moved_share",
)  # fmt: skip


def slots_of_tenant(text: str) -> tuple[str, int]:
    """NAME=SLOTS; a name may hold "=" itself."""
    name, sign, slots = text.rpartition("=")
    if not sign or not (slots.isascii() and slots.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a tenant and its slots, such as acme=40")
    return name, int(slots)


def by_tenant(option: str, pairs: list[tuple[str, int]]) -> dict[str, int]:
    """Return the pairs as a map; refuse a tenant that occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise CommandError(f"{option}: {twice!r} occurs twice")
    return found


class Command(PlannerCommand):
    help = "Order a plan of a fleet and wait until it is built."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--workload", help="name of a workload (default: the newest)")
        parser.add_argument("--calibration", type=int, help="id of a calibration (default: the newest)")
        parser.add_argument("--slots-per-destination", type=int, help="W (default: the calibration's)")
        parser.add_argument("--balance-target", type=float)
        parser.add_argument("--admission", choices=ADMISSIONS, default="top_rate")
        parser.add_argument("--tokens-per-destination", type=int, help="KV tokens that each may keep warm")
        tenants: dict[str, Any] = {"action": "append", "type": slots_of_tenant, "default": [], "metavar": "NAME=SLOTS"}
        parser.add_argument("--tenant-quota", help="most warm slots of a tenant; repeatable", **tenants)
        parser.add_argument("--tenant-floor", help="warm slots reserved for a tenant; repeatable", **tenants)
        parser.add_argument(
            "--replan-from",
            type=int,
            metavar="NUMBER",
            help="plan whose warm destinations are kept (default: none, a plan from scratch)",
        )
        parser.add_argument("--max-imbalance-factor", type=float, help="of a replan, to a fresh plan's (default: 1.02)")
        parser.add_argument("--max-moved-share", type=float, help="most of the admitted rate that may move")
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
        plan, job = order_plan(
            acting_user=user,
            fleet=fleet,
            workload=workload,
            calibration=calibration,
            incumbent=None if options["replan_from"] is None else plan_numbered(fleet, options["replan_from"]),
            tenant_quota=by_tenant("--tenant-quota", options["tenant_quota"]),
            tenant_floor=by_tenant("--tenant-floor", options["tenant_floor"]),
            **{name: options[name] for name in PLAIN},
            note=options["note"],
        )
        if not options["no_wait"]:
            wait_for(job, self.stderr.write)
            plan = Plan.objects.get(pk=plan.pk)
        self.say(
            "\n".join([f"{plan} is {plan.get_state_display()}", *(figures(plan) if plan.summary else ())]),
            id=plan.pk,
            number=plan.number,
            state=plan.state,
            job=job.pk,
            summary=plan.summary,
        )


def figures(plan: Plan) -> list[str]:
    """What the plan's page says first, a line each."""
    s = plan.summary
    worst = "not known" if s["worst_loss"] is None else f"{s['worst_loss']:.4g}"
    lines = [
        f"  admitted   {s['admitted']:,} of {s['keys']:,} keys, {s['admitted_share']:.1%} of requests, "
        f"{s['slots_used']:,} of {plan.parameters['slots']:,} slots",
        f"  value      {s['value_gap']:.1%} below what no admission exceeds ({s['admission']})",
        f"  max/mean   {s['imbalance']:.4g} planned, {worst} after the worst loss of one destination",
        f"  at most    {s['most_held']:,} keys on a destination, {s['peak_use']:.0%} of its q_cap",
    ]
    if s["moved_keys"] is not None:
        lines.append(
            f"  against {s['incumbent']:<4}{s['moved_keys']:,} keys move ({s['moved_share']:.1%} of the warm rate), "
            f"{s['cooled_keys']:,} lose their warm slots ({s['cooled_share']:.1%} of requests)"
        )
    return lines
