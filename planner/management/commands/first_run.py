from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand

from planner.management.commands._wait import wait_for
from planner.models import Fleet, Job, Plan
from planner.services.access import bootstrap
from planner.services.plans import sample


class Command(BaseCommand):
    help = "First start: create the accounts, and the sample fleet with its plan, replay and gate. Later: nothing."

    def handle(self, *args: Any, **options: Any) -> None:
        """Create what is missing; a start that was interrupted continues where it stopped."""
        passwords = bootstrap.create_first_accounts()
        if passwords:
            self.stdout.write("Accounts (these passwords are shown only once):")
            for name, password in passwords.items():
                self.stdout.write(f"  {name:10} {password}")
        admin = User.objects.filter(username="admin").first()
        author = User.objects.filter(username="planner").first()
        if admin is None or author is None:
            return  # Renamed or removed since: this installation has its own users.
        fleet = Fleet.objects.filter(slug=sample.SLUG).first()
        if fleet is None:
            if Fleet.objects.exists():
                return
            fleet = sample.create_fleet(acting_user=admin)
            self.step(f"sample fleet of {sample.DESTINATIONS} destinations created")
        if fleet.plans.filter(kind=Plan.Kind.CACHEROUTE).exists():
            self.wait_for_open_jobs(fleet)
            return
        workload = fleet.workloads.first() or sample.create_workload(acting_user=author, fleet=fleet)
        self.step(f"workload of {workload.key_count:,} keys and {workload.request_count:,} requests generated")
        calibration = fleet.calibrations.first() or sample.calibrate(acting_user=author, fleet=fleet, workload=workload)
        self.step(f"one replica calibrated (simulated): {calibration}")
        sample.order_plan(acting_user=author, fleet=fleet, workload=workload, calibration=calibration)
        self.wait_for_open_jobs(fleet)
        plan = fleet.plans.filter(kind=Plan.Kind.CACHEROUTE).latest("id")
        evaluation = plan.gate_evaluations.first()
        if evaluation is not None:
            verdicts = ", ".join(f"{i.number} {i.verdict}" for i in evaluation.items.order_by("number"))
            self.step(f"checklist {'passed' if evaluation.passed else 'does not pass'} ({verdicts})")

    def wait_for_open_jobs(self, fleet: Fleet) -> None:
        """Build, then replay, waiting for each job."""
        while (job := fleet.jobs.filter(state__in=Job.OPEN).order_by("id").first()) is not None:
            wait_for(job, self.step, timeout_s=600)

    def step(self, text: str) -> None:
        """A line of progress."""
        self.stdout.write(f"  {text}")
        self.stdout.flush()
