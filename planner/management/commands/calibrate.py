from __future__ import annotations

from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand, fleet_named
from planner.models import Calibration, Fleet
from planner.services.calibrations import calibrations, sweep_imports
from planner.simulation.knee import KNEES

SWEEP = ("load_rps", "p50_s", "p95_s", "p99_s", "hit_rate", "busy_share")


class Command(PlannerCommand):
    help = (
        "Calibrate a fleet: simulate a load sweep of one replica, import a measured one (--from-csv), "
        "or record measured figures (--q-cap, --slots)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--fleet", required=True)
        parser.add_argument("--margin", type=float, default=0.8, help="W = warm prefixes kept x margin")
        parser.add_argument("--note", default="", help="of a measured calibration")
        stated = parser.add_argument_group("measured figures")
        stated.add_argument("--q-cap", type=float, help="measured requests/s of one destination at the knee")
        stated.add_argument("--slots", type=int, help="measured warm prefixes that one destination keeps")
        sweep = parser.add_argument_group("a measured sweep")
        sweep.add_argument("--from-csv", metavar="FILE", help="columns load_rps, p99_s and others (see the user guide)")
        sweep.add_argument("--slots-measured", type=int, help="warm prefixes kept, unless the file has trials of W")
        sweep.add_argument("--keep-share", type=float, default=0.95, help="what counts as kept in a trial of W")
        sweep.add_argument("--strict", action="store_true", help="repair nothing")
        simulated = parser.add_argument_group("a simulated sweep")
        simulated.add_argument("--workload", help="name of the workload whose requests are sent (default: the newest)")
        simulated.add_argument("--loads", type=float, nargs="+", metavar="RPS", help="of one destination")
        knee = parser.add_argument_group("how the knee of a sweep is read")
        knee.add_argument("--knee", choices=list(KNEES), default="factor")
        knee.add_argument("--knee-factor", type=float, default=2.0, help="of p99 at the lowest load")
        knee.add_argument("--slo-s", type=float, help="seconds; of --knee slo (default: the fleet's SLO)")

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Simulate, import or record, and print the figures."""
        fleet = fleet_named(options["fleet"])
        done = self._calibrate(user, fleet, options)
        found = done.parameters
        self.say(
            "\n".join([f"Calibration {done.pk}: {done}", *_lines(done)]),
            id=done.pk,
            fleet=fleet.slug,
            source=done.source,
            q_cap=done.q_cap,
            q_cap_censored=done.q_cap_censored,
            knee_method=done.knee_method,
            warm_slots=done.warm_slots,
            slots_measured=done.slots_measured,
            margin=done.margin,
            warm_censored=found.get("warm_censored"),
            serving_profile=done.serving_profile.name,
            fingerprint=done.serving_profile.fingerprint,
            points=done.points,
            warm_points=found.get("warm_points", []),
            notices=found.get("notices", []),
        )

    def _calibrate(self, user: User, fleet: Fleet, options: dict[str, Any]) -> Calibration:
        knee = {name: options[name] for name in ("knee", "knee_factor", "slo_s")}
        margin = options["margin"]
        if options["from_csv"]:
            if options["q_cap"] is not None or options["slots"] is not None:
                raise CommandError("--q-cap and --slots state figures; --from-csv reads them. Give one of the two")
            file = Path(options["from_csv"])
            return sweep_imports.import_sweep(
                acting_user=user,
                fleet=fleet,
                file=file,
                file_name=file.name,
                slots_measured=options["slots_measured"],
                margin=margin,
                keep_share=options["keep_share"],
                strict=options["strict"],
                note=options["note"],
                **knee,
            )
        if options["slots_measured"] is not None:
            raise CommandError("--slots-measured belongs to --from-csv")
        if (options["q_cap"] is None) != (options["slots"] is None):
            raise CommandError("--q-cap and --slots belong together")
        if options["q_cap"] is not None:
            return calibrations.record_calibration(
                acting_user=user,
                fleet=fleet,
                q_cap=options["q_cap"],
                slots_measured=options["slots"],
                margin=margin,
                note=options["note"],
            )
        named = fleet.workloads.filter(name=options["workload"]) if options["workload"] else fleet.workloads.all()
        workload = named.first()
        if workload is None:
            raise CommandError(f"fleet {fleet.slug} has no such workload to calibrate with")
        return calibrations.simulate_calibration(
            acting_user=user, fleet=fleet, workload=workload, margin=margin, loads=options["loads"], **knee
        )


def _lines(done: Calibration) -> list[str]:
    """The sweep and the trials of W, a line each."""
    lines = []
    names = [name for name in SWEEP if any(name in point for point in done.points)]
    if names:
        lines += [f"knee: {done.knee_method}{f' ({done.q_cap_censored}-censored)' if done.q_cap_censored else ''}"]
        lines += ["  " + "".join(f"{name:>12}" for name in names)]
        for point in done.points:
            cells = [f"{point[name]:>12.4g}" if point.get(name) is not None else f"{'-':>12}" for name in names]
            lines.append("  " + "".join(cells) + ("  <- q_cap" if point.get("load_rps") == done.q_cap else ""))
    for trial in done.parameters.get("warm_points", []):
        lines.append(f"  W: {trial['prefixes']:,.0f} prefixes, {trial['kept_share']:.1%} kept")
    lines += [f"  {n['message']} ({n['count']}x)" for n in done.parameters.get("notices", [])]
    return lines
