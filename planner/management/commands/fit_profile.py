from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from planner.management.commands._base import PlannerCommand
from planner.models import Calibration
from planner.services.calibrations import fits
from planner.simulation.fit import TERMS


class Command(PlannerCommand):
    help = "Fit engine constants to a measured calibration and store them as a serving profile."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--calibration", type=int, required=True, help="its number, as the fleet's page shows it")
        parser.add_argument("--name", required=True, help="of the new serving profile")
        parser.add_argument(
            "--workload", help="name of the workload whose requests were sent (default: the newest of the fleet)"
        )

    def run(self, user: User, options: dict[str, Any]) -> None:
        """Fit, store, and print the constants with what they explain."""
        calibration = (
            Calibration.objects.select_related("fleet", "serving_profile").filter(pk=options["calibration"]).first()
        )
        if calibration is None:
            raise CommandError(f"there is no calibration {options['calibration']}")
        named = calibration.fleet.workloads.all()
        if options["workload"]:
            named = named.filter(name=options["workload"])
        workload = named.first()
        if options["workload"] and workload is None:
            raise CommandError(f"fleet {calibration.fleet.slug} has no workload named {options['workload']!r}")
        profile = fits.fit_profile(acting_user=user, calibration=calibration, name=options["name"], workload=workload)
        constants = profile.engine_constants
        lines = [
            f"Serving profile {profile.name}, fitted to calibration {calibration.pk} by its {profile.fit['method']}: "
            f"{profile.fit['points']} points, rms error {profile.fit['rms_error']:.2%}"
        ]
        lines += [f"  {name} = {constants[name]:.6g}  {constants['provenance'][name]}" for name in TERMS]
        self.say(
            "\n".join(lines),
            id=profile.pk,
            name=profile.name,
            fingerprint=profile.fingerprint,
            calibration=calibration.pk,
            constants={name: constants[name] for name in TERMS},
            provenance={name: constants["provenance"][name] for name in TERMS},
            fit=profile.fit,
        )
